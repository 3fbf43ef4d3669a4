//! `doppel run`.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use doppel_api::{CreateDomain, Resources, Validate};
use doppel_domain::{Domain, DomainConfig, Outcome};
use doppel_freezer::{FrozenStore, Place};
use doppel_image::{ImageConfig, Store, Wanted, launch, small_file};
use doppel_spec::ResourceArgs;

use crate::options::defaults;
use crate::options::pull::{self, PullPolicy};
use crate::options::storage::Storage;
use crate::options::values;
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::tell;

/// Exit code when the host killed the domain for want of memory, as Docker's.
const OUT_OF_MEMORY: u8 = 137;

/// Options of `doppel run`; of an option given twice, the later counts.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) kind: crate::options::kind::KindArgs,
    /// Name of the domain
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Remove the domain when it ends (without the supervisor it always is)
    #[arg(long)]
    pub(crate) rm: bool,
    /// Connect standard input
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the program a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Set an environment variable, or pass the caller's on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Working directory; by default the image's
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<OsString>,
    /// User and group, by number or by their names in the image
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Program to run in place of the image's entry point; empty: none
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<OsString>,
    /// Host name
    #[arg(short = 'h', long, value_name = "NAME")]
    pub(crate) hostname: Option<OsString>,
    #[command(flatten)]
    pub(crate) resources: ResourceArgs,
    #[command(flatten)]
    pub(crate) files: crate::options::files::FileArgs,
    #[command(flatten)]
    pub(crate) network: crate::options::network::NetworkArgs,
    /// Print the program's system calls on standard error
    #[arg(long)]
    pub(crate) trace: bool,
    /// Do not use the image's patched system calls: every one traps
    #[arg(long)]
    pub(crate) no_patch: bool,
    /// Frozen image to make when the program writes "freeze" to /sys/power/state
    #[arg(long, value_name = "FROZEN")]
    pub(crate) freeze_as: Option<String>,
    /// Keep that image in memory instead of on disk
    #[arg(long, requires = "freeze_as")]
    pub(crate) in_memory: bool,
    /// End the domain once it has frozen itself
    #[arg(long, requires = "freeze_as")]
    pub(crate) freeze_stop: bool,
    /// When to get the image from its registry first
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_default_value = true)]
    pub(crate) pull: PullPolicy,
    /// Guest kernel ELF to use instead of the built-in one
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) kernel: Option<PathBuf>,
    /// Image: a name, or the path of an EROFS file
    pub(crate) image: String,
    /// Command and arguments; by default the image's
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// The first option given that only a domain of this command's own can have.
    pub(crate) fn alone(&self) -> Option<&'static str> {
        let options = [
            (self.trace, "--trace"),
            (self.in_memory, "--in-memory"),
            (self.freeze_stop, "--freeze-stop"),
            (self.kernel.is_some(), "--kernel"),
        ];
        options.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// Runs the command and returns its exit code.
pub fn run(args: RunArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    // What it asks for happens anyway.
    let RunArgs { rm: _, .. } = args;
    defaults::read()?.choose();
    let resources = within_host(checked(&args)?);
    pull::pull(&args.image, args.pull, None)?;
    let (path, image) = image(&args.image)?;
    let wanted =
        Wanted { command: args.command, entrypoint: args.entrypoint, user: args.user, workdir: args.workdir };
    let launch = launch(&image, wanted, |name| File::open(&path).ok().and_then(|f| small_file(&f, name)))?;
    let kind = args.kind.choose();
    let (mut files, store) = (args.files.given(), Store::from_env().root().to_owned());
    let storage = Storage::prepare(&mut files, kind, &path, &store)?;
    let network = args.network.attach(resources.memory_bytes)?;
    let config = DomainConfig {
        kind,
        network: network.as_ref().map(crate::options::network::Network::link),
        kernel: args.kernel,
        store: Some(store),
        env: values::environment(args.tty, &image.env, &launch.user.home, &args.env, |name| {
            std::env::var_os(name)
        })?,
        cwd: launch.cwd,
        uid: launch.user.uid,
        gid: launch.user.gid,
        groups: launch.user.groups,
        name: args.name,
        hostname: args.hostname.unwrap_or_default(),
        resources,
        tty: args.tty,
        stdin: args.interactive,
        trace: args.trace,
        no_patch: args.no_patch,
        files,
        sources: storage.sources(),
        storage: storage.link(),
        freeze_to: match &args.freeze_as {
            Some(name) => Some(frozen_store().vacant(name, place(args.in_memory))?),
            None => None,
        },
        freeze_stop: args.freeze_stop,
        ..DomainConfig::new(path, launch.argv)
    };
    let mut domain = Domain::start(&config, &mut |text| tell!("doppel: warning: {text}"))?;
    let name = domain.name();
    Ok(exit_code(&name, &domain.wait()?))
}

/// What it may use, refused as the supervisor would.
fn checked(args: &RunArgs) -> Result<Resources, String> {
    let resources = args.resources.given();
    let names_and_limits = CreateDomain {
        image: args.image.clone(),
        name: args.name.clone(),
        freeze_as: args.freeze_as.clone(),
        resources: resources.clone(),
        ..CreateDomain::default()
    };
    names_and_limits.validate().map_err(|problem| problem.detail)?;
    match resources.supervised() {
        Some(field) => Err(format!("resources.{field}: needs the supervisor; is doppeld running?")),
        None => Ok(resources),
    }
}

/// Limits brought down to what the host has, with a warning.
pub fn within_host(mut limits: Resources) -> Resources {
    let host_cpus = std::thread::available_parallelism().map_or(f64::MAX, |n| n.get() as f64);
    let memory = rustix::system::sysinfo();
    let memory = u64::from(memory.mem_unit) * memory.totalram;
    for warning in doppel_api::validate::within_host(&mut limits, host_cpus, memory) {
        tell!("doppel: warning: {warning}");
    }
    limits
}

/// The exit code for how a domain ended; says so if its program did not.
pub fn exit_code(name: &str, outcome: &Outcome) -> ExitCode {
    match outcome {
        Outcome::Exited(code) => ExitCode::from(*code),
        Outcome::Ended { reason, out_of_memory } => {
            tell!("doppel: domain {name} ended: {reason}");
            ExitCode::from(if *out_of_memory { OUT_OF_MEMORY } else { TOOL_ERROR })
        }
    }
}

/// The frozen images of the store.
pub fn frozen_store() -> FrozenStore {
    FrozenStore::new(Store::from_env().root())
}

/// Where a frozen image goes.
pub fn place(in_memory: bool) -> Place {
    if in_memory { Place::Memory } else { Place::Disk }
}

/// The file of an image given by name or by path, and what the image says about running it.
fn image(image: &str) -> Result<(PathBuf, ImageConfig), doppel_image::Error> {
    if image.starts_with(['/', '.']) || image.ends_with(".erofs") {
        return Ok((image.into(), ImageConfig::default()));
    }
    let store = Store::from_env();
    let open = store.open(&store.find(image)?)?;
    Ok((open.path, open.record.oci.map(|o| o.config).unwrap_or_default()))
}
