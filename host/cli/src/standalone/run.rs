//! `doppel run`.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use doppel_api::{CreateDomain, Kind, Resources, Validate};
use doppel_domain::{Domain, DomainConfig, Outcome, Program};
use doppel_freezer::{FrozenStore, Medium};
use doppel_image::{ImageConfig, LaunchOptions, Store, launch, small_file};
use doppel_spec::ResourceArgs;

use crate::options::defaults;
use crate::options::pull::{self, PullPolicy};
use crate::options::storage::{Storage, Subject};
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
    #[command(flatten)]
    pub(crate) spec: CreateDomain,
    /// Set an environment variable, or pass the caller's on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Program to run in place of the image's entry point; empty: none
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<OsString>,
    #[command(flatten)]
    pub(crate) resources: ResourceArgs,
    #[command(flatten)]
    pub(crate) files: crate::options::files::FileArgs,
    #[command(flatten)]
    pub(crate) network: crate::options::network::NetworkArgs,
    /// Print the program's system calls on standard error
    #[arg(long)]
    pub(crate) trace: bool,
    /// Keep the image of --freeze-as in memory instead of on disk
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
    let defaults = defaults::read()?;
    defaults.choose();
    let kind = args.kind.choose();
    if kind == Kind::Para {
        // They take as long as all that comes before the domain's first process.
        doppel_domain::begin_namespaces();
    }
    let given = checked(&args)?;
    let resources = within_host(given.over(&defaults.resources.of_kind(kind))?);
    let asked = args.spec;
    pull::pull(&asked.image, args.pull, None)?;
    let (path, image) = image(&asked.image)?;
    let wanted = LaunchOptions {
        command: args.command,
        entrypoint: args.entrypoint,
        user: asked.user.clone(),
        workdir: asked.working_dir.clone().map(Into::into),
    };
    let launch = launch(&image, wanted, |name| File::open(&path).ok().and_then(|f| small_file(&f, name)))?;
    let (mut files, store) = (args.files.given(), Store::from_env().root().to_owned());
    if files.is_kept() && files.layer.is_none() {
        files.layer =
            Some(asked.name.clone().ok_or("--persist needs a name here: --persist=NAME, or --name")?);
    }
    let subject = Subject { kind, resources: &resources, image: &asked.image, path: &path };
    let storage = Storage::prepare(&mut files, &subject, &store)?;
    let network = args.network.attach(resources.memory_bytes)?;
    let program = Program {
        argv: launch.argv,
        env: values::environment(asked.tty, &image.env, &launch.user.home, &args.env, |name| {
            std::env::var_os(name)
        })?,
        cwd: launch.cwd,
        uid: launch.user.uid,
        gid: launch.user.gid,
        groups: launch.user.groups,
    };
    let freeze_to = match &asked.freeze_as {
        Some(name) => Some(frozen_store().vacant(name, place(args.in_memory))?),
        None => None,
    };
    let config = DomainConfig {
        spec: CreateDomain { kind, files, resources, ..asked },
        program,
        image: path,
        kernel: args.kernel,
        store: Some(store),
        trace: args.trace,
        sources: storage.sources(),
        layer: storage.layer(),
        freeze_to,
        freeze_stop: args.freeze_stop,
        network: network.as_ref().map(crate::options::network::Network::link),
        storage: storage.link(),
        ..DomainConfig::default()
    };
    let mut domain = Domain::start(&config, &mut |text| tell!("doppel: warning: {text}"))?;
    storage.wait_served()?;
    let name = domain.name();
    Ok(exit_code(&name, &domain.wait()?))
}

/// What it may use, refused as the supervisor would.
fn checked(args: &RunArgs) -> Result<Resources, String> {
    let resources = args.resources.given();
    // What a host name and a directory are, the domain says itself.
    let (hostname, working_dir) = (None, None);
    let asked = CreateDomain { hostname, working_dir, resources: resources.clone(), ..args.spec.clone() };
    asked.validate().map_err(|problem| problem.detail)?;
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
pub fn place(in_memory: bool) -> Medium {
    if in_memory { Medium::Memory } else { Medium::Disk }
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
