//! The `doppel` command.
//!
//! Exit codes are Docker's: 125 an error of this tool, 126 and 127 a command that cannot be executed or
//! found, 128 + n a program ended by signal n, else the program's own.
#![forbid(unsafe_code)]

mod debug_cmd;
mod image_cmd;
mod run_cmd;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs unmodified Linux programs in isolated domains.
#[derive(Parser)]
#[command(name = "doppel", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a command in a new domain.
    Run(Box<run_cmd::RunArgs>),
    /// Make, list, check and remove root images.
    Image(image_cmd::Args),
    /// Show what the security tests need to know.
    #[command(subcommand, hide = true)]
    Debug(debug_cmd::DebugCommand),
}

/// Exit code of an error of the tool itself, as opposed to those of the program it runs.
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
        Verb::Run(args) => run_cmd::run(*args),
        Verb::Image(args) => image_cmd::run(args).map(|()| ExitCode::SUCCESS),
        Verb::Debug(command) => debug_cmd::run(&command),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("doppel: {e}");
            ExitCode::from(TOOL_ERROR)
        }
    }
}
