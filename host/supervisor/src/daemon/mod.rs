//! The process around the supervisor: configuration, logs, signals, the service manager.

pub mod config;
mod handover;
mod log;
mod notify;
pub mod token;

use std::error::Error;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use doppel_paene::confined;
use doppel_supervisor::http::{Ending, Listen, Listener, Server, Source, Tls};
use doppel_supervisor::keeper::{self, KeeperConfig};
use doppel_supervisor::{Config, Replacement, Supervisor};
use rustix::fs::{FlockOperation, Mode, OFlags};
use tokio::signal::unix::{SignalKind, signal};

use config::{Overrides, Settings};
use handover::Handover;
use log::Logs;

/// Serves until SIGTERM or SIGINT; domains live on.
pub fn serve(file: Option<PathBuf>, overrides: Overrides, check: bool) -> Result<(), Box<dyn Error>> {
    if check {
        let settings = Settings::read(file.as_deref(), &overrides)?;
        settings.check_tokens()?;
        print!("{}", settings.to_toml());
        return Ok(());
    }
    // What the program before has left, until this one serves: if it does not get there, that one goes on.
    let mut handed = handover::take()?;
    match (serve_as(file, overrides, &mut handed), handed) {
        (Err(e), Some(handed)) if !handed.failed() => Err(handed.back(&e.to_string())),
        (result, _) => result,
    }
}

fn serve_as(
    file: Option<PathBuf>,
    overrides: Overrides,
    handed: &mut Option<Handover>,
) -> Result<(), Box<dyn Error>> {
    let settings = Settings::read(file.as_deref(), &overrides)?;
    // The program before has done so, unless it did not know how.
    let confined = if handed.is_some() { confined::unless_inherited() } else { confined::now() };
    confined.map_err(unconfined)?;
    let managers = |fd| Listener { source: Source::Manager, fd };
    let inherited = match handed {
        Some(handed) => handed.listeners()?,
        None => doppel_sys::inherited::take().into_iter().map(managers).collect(),
    };
    let logs = Logs::start(&settings.log)?;
    raise_descriptor_limit();
    std::fs::create_dir_all(&settings.runtime)
        .map_err(|e| format!("{}: {e}; doppeld runs as root", settings.runtime.display()))?;
    // A `doppel run` may have been there first. Others go through it to the socket, which has a mode of its own.
    let mode = std::fs::metadata(&settings.runtime)?.permissions().mode();
    std::fs::set_permissions(&settings.runtime, Permissions::from_mode(mode & 0o7777 | 0o111))?;
    // Held until the process ends: two supervisors would undo each other's work.
    let lock = match handed {
        Some(handed) => handed.lock.try_clone()?,
        None => lock(&settings)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(run(file, overrides, &settings, inherited, handed, &logs));
    if let Ok(Some((listeners, replacement))) = result {
        // At once: nothing of this program goes on.
        return Err(handover::replace(lock, listeners, replacement));
    }
    // What blocks in a thread of the runtime must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result.map(|_| ())
}

async fn run(
    file: Option<PathBuf>,
    overrides: Overrides,
    settings: &Settings,
    inherited: Vec<Listener>,
    handed: &mut Option<Handover>,
    logs: &Logs,
) -> Result<Option<(Vec<Listener>, Replacement)>, Box<dyn Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let server = Server::bind(Listen {
        socket: settings.http.socket.clone().unwrap_or_else(|| settings.runtime.join("doppeld.sock")),
        group: Some(settings.http.group.clone()),
        inherited,
        tcp: settings.tcp.listen,
        tls: match (&settings.tcp.certificate, &settings.tcp.key) {
            (Some(certificate), Some(key)) => {
                Some(Tls { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        },
        tokens: settings.tcp.tokens.clone(),
        connections: settings.http.connections,
        head_time: Duration::from_secs_f64(settings.http.head_seconds),
    })?;
    let config = Config {
        store: settings.store.clone(),
        runtime: settings.runtime.clone(),
        spare_seconds: settings.spare_seconds,
        network_shards: settings.network_shards,
        keeper_domains: settings.keeper_domains,
        keeper_idle: Duration::from_secs(settings.keeper_idle_seconds.into()),
        defaults: settings.domains.clone(),
        network: settings.network.clone(),
        gatekeeper: settings.gatekeeper.clone(),
        binds: settings.volumes.binds.clone(),
        program: None,
        arguments: Some(std::env::args_os().skip(1).collect()),
        replacement: handed.as_ref().map(|h| h.replacement.clone()),
    };
    if handed.is_some() {
        handover::collect_children()?;
    }
    let supervisor = Supervisor::open(config).await?;
    *handed = None;
    let doppel_api::Version { version, kernel, .. } = doppel_supervisor::version();
    notify::send("READY=1");
    tracing::info!(version, kernel, store = %settings.store.display(), "ready");
    let next = supervisor.clone();
    let end = async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                replacement = next.replaced() => {
                    tracing::info!(program = %replacement.program.display(), "goes on as another program");
                    return Ending::Replaced(replacement);
                }
                _ = hangup.recv() => match Settings::read(file.as_deref(), &overrides) {
                    Ok(now) => logs.set_level(&now.log),
                    Err(e) => tracing::error!("the configuration stays as it was: {e}"),
                },
            }
        }
        notify::send("STOPPING=1");
        tracing::info!("ends; domains live on");
        Ending::Stop
    };
    let replaced = server.serve(supervisor.clone(), end).await;
    if replaced.is_some()
        && let Err(problem) = supervisor.written().await
    {
        // As if it had been killed: the next one finds out.
        tracing::error!("{problem}");
    }
    Ok(replaced)
}

/// Says what this program is.
pub fn about() -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::to_string(&doppel_supervisor::version())?);
    Ok(())
}

/// Keeps domains until there are none and no supervisor; its log is standard error.
pub fn keep(config: KeeperConfig) -> Result<(), Box<dyn Error>> {
    confined::unless_inherited().map_err(unconfined)?;
    let _logs = Logs::start(&config::Log { format: config::Format::Text, ..config::Log::default() })?;
    raise_descriptor_limit();
    Ok(keeper::run(config)?)
}

fn lock(settings: &Settings) -> Result<std::os::fd::OwnedFd, Box<dyn Error>> {
    let path = settings.runtime.join("doppeld.lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(format!("another doppeld runs over {}", settings.runtime.display()).into())
        }
        Err(e) => Err(format!("{}: {e}", path.display()).into()),
    }
}

fn unconfined(error: std::io::Error) -> String {
    format!("cannot give up rights that are not needed: {error}")
}

/// Each connection is a descriptor, and each domain several.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of descriptors stays: {e}");
    }
}
