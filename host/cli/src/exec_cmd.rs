//! `doppel exec`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use doppel_domain::{ExecConfig, SessionEnd, attach, terminal_size};

use crate::values::{self, User};

/// Options of `doppel exec`; of an option given twice, the later counts.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct ExecArgs {
    /// Connect standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Set an environment variable, or pass the caller's on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Working directory
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<OsString>,
    /// User and group, numeric
    #[arg(short, long, value_name = "UID[:GID]", value_parser = values::user)]
    pub(crate) user: Option<User>,
    /// Run a command of the guest kernel itself instead of a program (docs/sessions.md)
    #[arg(long, hide = true)]
    pub(crate) builtin: bool,
    /// Name of the domain
    pub(crate) domain: String,
    /// Command and arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// Runs the command and returns its exit code.
pub fn run(args: ExecArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let user = args.user.unwrap_or_default();
    let name = args.command.first().cloned().unwrap_or_default();
    let config = ExecConfig {
        env: values::environment(args.tty, &[], "/root", &args.env, |name| std::env::var_os(name))?,
        cwd: args.workdir.unwrap_or_else(|| "/".into()),
        uid: user.uid,
        gid: user.gid,
        tty: args.tty.then(terminal_size),
        stdin: args.interactive,
        builtin: args.builtin,
        ..ExecConfig::new(args.command)
    };
    let end = attach(&args.domain, &config)?;
    match end {
        SessionEnd::Failed(errno) => {
            let why = std::io::Error::from_raw_os_error(errno);
            eprintln!("doppel: cannot run {}: {why}", name.display());
        }
        SessionEnd::DomainEnded => eprintln!("doppel: domain {} has ended", args.domain),
        SessionEnd::Broken => eprintln!("doppel: domain {} broke the session's protocol", args.domain),
        SessionEnd::Exited(_) => {}
    }
    Ok(ExitCode::from(end.code()))
}
