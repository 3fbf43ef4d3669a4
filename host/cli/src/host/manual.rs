//! `doppel completion` and `doppel man`: made from the same description as the command line itself.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

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

/// Prints a completion script for `command`.
pub fn completion(args: &CompletionArgs, command: &mut Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "doppel", &mut script);
    std::io::Write::write_all(&mut crate::terminal::out::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for `command` and one for each of its verbs.
pub fn man(args: &ManArgs, command: Command) -> Outcome {
    std::fs::create_dir_all(&args.directory)?;
    clap_mangen::generate_to(command, &args.directory)?;
    Ok(ExitCode::SUCCESS)
}
