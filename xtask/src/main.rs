//! Repository chores: `cargo run -p xtask -- deny` checks the dependencies.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod deny;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("deny") => deny::run(),
        _ => Err("usage: cargo run -p xtask -- deny".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
