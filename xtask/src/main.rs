//! Repository chores: `deny` checks the dependencies, `compat` writes docs/COMPATIBILITY.md (`compat --check` verifies it),
//! `layers` holds who uses whom against the table of layers.txt (`layers --arrows` names all that stands against it),
//! `vectors` proves that the built guest kernel touches no vector registers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod compat;
mod deny;
mod layers;
mod vectors;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("deny") => deny::run(),
        Some("compat") => compat::run(std::env::args().any(|a| a == "--check")).map_err(|e| e.to_string()),
        Some("layers") => layers::run(std::env::args().any(|a| a == "--arrows")),
        Some("vectors") => vectors::run(),
        _ => Err("usage: cargo run -p xtask -- deny | compat [--check] | layers [--arrows] | vectors".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
