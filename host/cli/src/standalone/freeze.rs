//! `doppel freeze` and `clone`.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use doppel_api::{CloneFrozen, CreateDomain, Kind, Resources, Validate};
use doppel_domain::{Domain, DomainConfig, FreezeReport, Program, Reply, Request, Resume, Sharing, ask};
use doppel_freezer::{FrozenImage, Medium};
use doppel_image::Store;

use crate::options::storage::Storage;
use crate::options::values;
use crate::standalone::clones::Clones;
use crate::standalone::image;
use crate::standalone::run::{exit_code, frozen_store, place, within_host};
use crate::supervised;
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::{say, tell};

/// Options of `doppel freeze`.
#[derive(Args)]
pub struct FreezeArgs {
    /// End the domain afterwards
    #[arg(long)]
    stop: bool,
    /// Keep the image in memory instead of on disk
    #[arg(long)]
    in_memory: bool,
    /// Write all of its memory, and do not refer to the image that it was last frozen to or cloned from
    #[arg(long)]
    whole: bool,
    /// Print what it cost as JSON
    #[arg(long)]
    json: bool,
    /// Name of the running domain
    domain: String,
    /// Name of the frozen image to make
    frozen: String,
}

/// Options of `doppel clone`.
#[derive(Args)]
pub struct CloneArgs {
    /// How many clones to start
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) n: u32,
    /// A line of /sys/doppel/args in every clone; may be given several times
    #[arg(long, value_name = "ARG")]
    arg: Vec<OsString>,
    #[command(flatten)]
    pub(crate) spec: CloneFrozen,
    /// Host name
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    #[command(flatten)]
    resources: doppel_spec::ResourceArgs,
    /// Make all clones ready first, then let them go at once; times count from then
    #[arg(long)]
    pub(crate) warm: bool,
    /// Call this many clones one after the other, out of a pool of -n that is refilled between the calls; prints JSON
    #[arg(long, value_name = "K", default_value_t = 0, hide_default_value = true, conflicts_with_all = ["warm", "stdin", "freeze_as"])]
    pub(crate) repeat: u32,
    /// Print one line of JSON a clone when it has ended: output, exit code, times
    #[arg(long)]
    json: bool,
    /// Share pages that become equal after the start among the clones of this command
    #[arg(long)]
    share: bool,
    #[command(flatten)]
    network: crate::options::network::NetworkArgs,
    /// Leave the clones to the supervisor and print their ids
    #[arg(short, long, conflicts_with_all = ["stdin", "warm", "repeat", "share", "freeze_as", "hostname"])]
    detach: bool,
    /// Frozen image to make when a clone freezes itself; only for one clone
    #[arg(long, value_name = "FROZEN")]
    freeze_as: Option<String>,
    /// Name of the frozen image
    frozen: String,
    /// Command to run in the clone beside what was frozen; the clone ends with it
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) type Outcomes = Result<ExitCode, Box<dyn Error>>;

/// Asks the domain to be frozen.
pub fn freeze(args: &FreezeArgs) -> Outcomes {
    let how = doppel_api::FreezeDomain {
        frozen: args.frozen.clone(),
        stop: args.stop,
        in_memory: args.in_memory,
        whole: args.whole,
        temporary: false,
    };
    if let Some(done) = supervised::clones::freeze(&args.domain, &how, args.json)? {
        return Ok(done);
    }
    let to = frozen_store().vacant(&args.frozen, place(args.in_memory))?;
    let report = ask_freeze(&args.domain, Request::Freeze { to, stop: args.stop, whole: args.whole })?;
    if args.json {
        say!("{}", serde_json::to_string(&report)?)?;
    } else {
        say!("{}", said(&args.frozen, &report))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn said(name: &str, r: &FreezeReport) -> String {
    let ms = |us: u64| us as f64 / 1000.0;
    format!(
        "{name}: {} of memory, {} of it written, in {} segments; stopped in {:.1} ms, paused for {:.1} ms",
        image::bytes(r.bytes),
        image::bytes(r.written),
        r.segments,
        ms(r.stop_us),
        ms(r.pause_us)
    )
}

pub(crate) fn ask_freeze(domain: &str, request: Request) -> Result<FreezeReport, Box<dyn Error>> {
    match ask(domain, &request)? {
        Reply::Frozen(report) => Ok(report),
        Reply::Refused(why) => Err(why.into()),
        _ => Err("the domain answered something else".into()),
    }
}

/// What the supervisor is asked for.
fn supervised(args: &CloneArgs) -> Result<CloneFrozen, String> {
    let text = |a: &OsString| a.to_str().map(str::to_owned).ok_or_else(|| format!("{a:?} is no UTF-8"));
    Ok(CloneFrozen {
        count: Some(args.n),
        args: args.arg.iter().map(text).collect::<Result<_, _>>()?,
        command: args.command.iter().map(text).collect::<Result<_, _>>()?,
        network: args.network.supervised()?,
        resources: args.resources.given(),
        ..args.spec.clone()
    })
}

/// What each may use, refused as the supervisor would.
fn checked(args: &CloneArgs) -> Result<Resources, String> {
    let resources = args.resources.given();
    let limits = CloneFrozen { resources: resources.clone(), ..CloneFrozen::default() };
    limits.validate().map_err(|problem| problem.detail)?;
    match resources.supervised() {
        Some(field) => Err(format!("resources.{field}: needs --detach")),
        None => Ok(resources),
    }
}

/// Starts clones and waits for them.
pub fn clone(args: &CloneArgs) -> Outcomes {
    if args.detach {
        return supervised::clones::clone(&args.frozen, &supervised(args)?, args.json);
    }
    if args.n > 1 && (args.spec.stdin || args.freeze_as.is_some()) {
        return Err("--interactive and --freeze-as are for a single clone; leave out -n".into());
    }
    if args.n > 1 || args.repeat > 0 {
        args.network.none_alone()?;
    }
    let called = Instant::now();
    let defaults = crate::options::defaults::read()?;
    defaults.choose();
    doppel_domain::begin_namespaces();
    // Its memory limit is the one that was frozen.
    let limits = Resources { memory_bytes: None, ..defaults.resources.of_kind(Kind::Para) };
    let resources = within_host(checked(args)?.over(&limits)?);
    let network = args.network.attach(resources.memory_bytes)?;
    let store = frozen_store();
    let image = Arc::new(store.open(&args.frozen)?);
    let place = Store::from_env().root().to_owned();
    let hostname = args.hostname.clone();
    let spec = CreateDomain { hostname, resources, ..args.spec.domain() };
    let env = values::environment(false, &[], "/root", &[], |name| std::env::var_os(name))?;
    let config = DomainConfig {
        spec,
        program: Program { env, ..Program::new(args.command.clone()) },
        clone_args: args.arg.clone(),
        capture: args.json || args.n > 1 || args.warm || args.repeat > 0,
        store: Some(place.clone()),
        share: if args.share { Some(Sharing::new()?) } else { None },
        network: network.as_ref().map(crate::options::network::Network::link),
        freeze_to: match &args.freeze_as {
            Some(name) => Some(store.vacant(name, Medium::Disk)?),
            None => None,
        },
        ..DomainConfig::default()
    };
    if !config.capture {
        let storage = Storage::of_clone(&image, 1, &config.spec.resources, &place, &mut None)?;
        let mut config = config;
        storage.give(&mut config);
        let resume = Resume { image, index: 1, wake: false, hold: false };
        let mut domain = Domain::resume(resume, &config, &mut warn)?;
        let name = domain.name();
        return Ok(exit_code(&name, &domain.wait()?));
    }
    let mut clones = Clones::new(called, !args.json && args.repeat == 0)?;
    if args.repeat > 0 {
        check_pool(&image)?;
        return clones.repeat(args, image, &config);
    }
    clones.start(args, &image, &config, &place)?;
    if args.warm {
        clones.run_until(|c| c.waiting().next().is_none())?;
        clones.called = Instant::now();
        clones.all_go(&config);
    }
    clones.run_until(|c| c.fleet.is_empty())?;
    let mut code = 0;
    for (index, clone) in clones.all {
        match clone.end {
            Some(Ok(end)) => {
                if args.json {
                    say!("{}", serde_json::to_string(&end)?)?;
                }
                code = if code == 0 { end.exit_code } else { code };
            }
            Some(Err(e)) => {
                tell!("doppel: clone {index}: {e}");
                code = TOOL_ERROR;
            }
            None => return Err(format!("clone {index} was lost").into()),
        }
    }
    Ok(ExitCode::from(code))
}

/// Refuses an image of which a pool has no clones.
fn check_pool(image: &FrozenImage) -> Result<(), Box<dyn Error>> {
    if image.layers()?.is_some() {
        let text = "a pool has no clones of a frozen image with files in a layer; freeze with --in-memory";
        return Err(text.into());
    }
    if image.volumes().is_some() {
        return Err("a pool has no clones of a frozen image with volumes".into());
    }
    Ok(())
}

/// Tells what could not be enforced.
pub(crate) fn warn(text: &str) {
    tell!("doppel: warning: {text}");
}
