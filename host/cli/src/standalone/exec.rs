//! `doppel exec`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use doppel_domain::{Error, ExecConfig, Piped, Program, SessionEnd, attach, terminal_size};
use doppel_image::{IDENTITY_FILE_MAX, Identity, identity};
use doppel_spec::{CreateExec, ResizeTerminal};

use crate::options::values;
use crate::terminal::out::tell;

/// Options of `doppel exec`; of an option given twice, the later counts.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct ExecArgs {
    #[command(flatten)]
    pub(crate) spec: CreateExec,
    /// Set an environment variable, or pass the caller's on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
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
    let user = user(&args.domain, args.spec.user.as_deref().unwrap_or_default())?;
    let name = args.command.first().cloned().unwrap_or_default();
    let mut spec = args.spec;
    if spec.tty {
        let (rows, columns) = terminal_size();
        spec.terminal = Some(ResizeTerminal { rows, columns });
    }
    let program = Program {
        argv: args.command,
        env: values::environment(spec.tty, &[], &user.home, &args.env, |name| std::env::var_os(name))?,
        cwd: spec.working_dir.take().unwrap_or_else(|| "/".into()).into(),
        uid: user.uid,
        gid: user.gid,
        groups: user.groups,
    };
    let config = ExecConfig { program, builtin: args.builtin, spec };
    let end = attach(&args.domain, &config)?;
    match end {
        SessionEnd::Failed(errno) => {
            let why = std::io::Error::from_raw_os_error(errno);
            tell!("doppel: cannot run {}: {why}", name.display());
        }
        SessionEnd::DomainEnded => tell!("doppel: domain {} has ended", args.domain),
        SessionEnd::Broken => tell!("doppel: domain {} broke the session's protocol", args.domain),
        SessionEnd::Exited(_) => {}
    }
    Ok(ExitCode::from(end.code()))
}

/// Who a user of the domain is: it may have others than its image.
fn user(domain: &str, user: &str) -> Result<Identity, Box<dyn std::error::Error>> {
    let mut failed = None;
    let read = |name: &str| {
        let most = IDENTITY_FILE_MAX.to_string();
        let argv = ["read", name, "0", &most].map(OsString::from);
        match Piped::builtin(domain, &argv).and_then(|file| file.output(IDENTITY_FILE_MAX)) {
            Ok(bytes) => Some(bytes),
            Err(Error::InDomain(text)) if text.contains("ENOENT") => None,
            Err(error) => {
                failed = Some(error);
                None
            }
        }
    };
    let found = identity(user, read);
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(found.map_err(|e| format!("the domain's {e}"))?),
    }
}
