//! `doppel completion` and `doppel man`: made from the same description as the command line itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::supervised::Outcome;

/// Options of `doppel completion`.
#[derive(Args)]
pub struct CompletionArgs {
    /// Which shell
    shell: Shell,
}

/// Options of `doppel man`.
#[derive(Args)]
pub struct ManArgs {
    /// Where the pages go; made if it is not there
    directory: PathBuf,
}

/// Prints a completion script.
pub fn completion(args: &CompletionArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "doppel", &mut script);
    std::io::Write::write_all(&mut crate::terminal::out::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each verb.
pub fn man(args: &ManArgs) -> Outcome {
    std::fs::create_dir_all(&args.directory)?;
    clap_mangen::generate_to(Cli::command(), &args.directory)?;
    Ok(ExitCode::SUCCESS)
}
