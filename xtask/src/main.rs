//! Repository chores: `deny` checks the dependencies, `compat` writes docs/COMPATIBILITY.md (`compat --check` verifies it),
//! `layers` holds who uses whom against the table of layers.txt (`layers --arrows` names all that stands against it,
//! `layers --circle CRATE` who uses whom in the largest circle of a crate, as guest/kernel),
//! `vectors` proves that the built guest kernel touches no vector registers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod compat;
mod deny;
mod layers;
mod vectors;

const USAGE: &str = "usage: cargo run -p xtask -- \
    deny | compat [--check] | layers [--arrows | --circle CRATE] | vectors";

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("deny") => deny::run(),
        Some("compat") => compat::run(std::env::args().any(|a| a == "--check")).map_err(|e| e.to_string()),
        Some("layers") => match std::env::args().skip_while(|a| a != "--circle").nth(1) {
            Some(dir) => layers::show_circle(&dir),
            None => layers::run(std::env::args().any(|a| a == "--arrows")),
        },
        Some("vectors") => vectors::run(),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
