//! `doppel run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use doppel_domain::{Domain, DomainConfig, Outcome};
use doppel_image::Store;

use crate::TOOL_ERROR;
use crate::values::{self, User};

/// Exit code when the host killed the domain for want of memory, as Docker's.
const OUT_OF_MEMORY: u8 = 137;

/// Options of `doppel run`; of an option given twice, the later counts.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct RunArgs {
    /// Name of the domain
    #[arg(long)]
    name: Option<String>,
    /// Remove the domain when it ends (always done; accepted for habit's sake)
    #[arg(long)]
    rm: bool,
    /// Connect standard input
    #[arg(short, long)]
    interactive: bool,
    /// Give the program a terminal
    #[arg(short, long)]
    tty: bool,
    /// Set an environment variable, or pass the caller's on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Working directory
    #[arg(short, long, value_name = "DIR", default_value = "/")]
    workdir: OsString,
    /// User and group, numeric
    #[arg(short, long, value_name = "UID[:GID]", value_parser = values::user)]
    user: Option<User>,
    /// Host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<OsString>,
    /// Number of CPUs, fractions allowed
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Memory limit, for example 512m
    #[arg(short, long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Print the program's system calls on standard error
    #[arg(long)]
    trace: bool,
    /// Do not use the image's patched system calls: every one traps
    #[arg(long)]
    no_patch: bool,
    /// Guest kernel ELF to use instead of the built-in one
    #[arg(long, value_name = "FILE", hide = true)]
    kernel: Option<PathBuf>,
    /// Image: a name, or the path of an EROFS file
    image: String,
    /// Command and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the command and returns its exit code.
pub fn run(args: RunArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    // What it asks for happens anyway.
    let RunArgs { rm: _, .. } = args;
    let user = args.user.unwrap_or_default();
    let config = DomainConfig {
        kernel: args.kernel,
        store: Some(Store::from_env().root().to_owned()),
        env: values::environment(args.tty, &args.env, |name| std::env::var_os(name))?,
        cwd: args.workdir,
        uid: user.uid,
        gid: user.gid,
        name: args.name,
        hostname: args.hostname.unwrap_or_default(),
        cpus: args.cpus,
        memory: args.memory,
        tty: args.tty,
        stdin: args.interactive,
        trace: args.trace,
        no_patch: args.no_patch,
        ..DomainConfig::new(image_path(&args.image)?, args.command)
    };
    let mut domain = Domain::start(&config, &mut |text| eprintln!("doppel: warning: {text}"))?;
    let name = domain.name();
    match domain.wait()? {
        Outcome::Exited(code) => Ok(ExitCode::from(code)),
        Outcome::Ended { reason, out_of_memory } => {
            eprintln!("doppel: domain {name} ended: {reason}");
            Ok(ExitCode::from(if out_of_memory { OUT_OF_MEMORY } else { TOOL_ERROR }))
        }
    }
}

/// The file of an image given by name or by path.
fn image_path(image: &str) -> Result<PathBuf, doppel_image::Error> {
    if image.contains('/') || image.ends_with(".erofs") {
        return Ok(image.into());
    }
    Ok(Store::from_env().open(image)?.path)
}
