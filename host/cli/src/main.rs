//! The `doppel` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod image_cmd;

/// Runs unmodified Linux programs in isolated domains.
#[derive(Parser)]
#[command(name = "doppel", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make, list, check and remove root images.
    Image(image_cmd::Args),
}

/// Exit code of an error of the tool itself.
const TOOL_ERROR: u8 = 125;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let code = if e.use_stderr() { TOOL_ERROR } else { 0 };
            return match e.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::from(TOOL_ERROR),
            };
        }
    };
    let result = match cli.verb {
        Verb::Image(args) => image_cmd::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("doppel: {e}");
            ExitCode::from(TOOL_ERROR)
        }
    }
}
