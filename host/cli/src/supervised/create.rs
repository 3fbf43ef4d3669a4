//! `doppel create`, and what it has in common with `doppel run` through the supervisor.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Args;
use doppel_api::{CreateDomain, Files, HealthCheck, LogTarget, RestartPolicy};
use doppel_client::Client;

use super::{Outcome, not_started, supervisor};
use crate::options::pull;
use crate::options::values;
use crate::standalone::run::RunArgs;
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::{say, tell};

/// Options that only the supervisor can carry out, as they are written on a command line.
#[derive(Args, Debug, Default, PartialEq)]
pub struct More {
    /// When the domain is started again: no, always, unless-stopped, on-failure or on-failure:N
    #[arg(long, value_name = "POLICY", value_parser = restart)]
    pub restart: Option<RestartPolicy>,
    /// Key and value for your own use
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    /// Set the environment variables of a file, a line each
    #[arg(long, value_name = "FILE")]
    env_file: Vec<std::path::PathBuf>,
    /// Command that tells whether the domain is well, run by its /bin/sh
    #[arg(long, value_name = "COMMAND")]
    health_cmd: Option<String>,
    /// Time between checks, as 30s
    #[arg(long, value_name = "TIME", value_parser = values::seconds, requires = "health_cmd")]
    health_interval: Option<f64>,
    /// Time after which a check has failed
    #[arg(long, value_name = "TIME", value_parser = values::seconds, requires = "health_cmd")]
    health_timeout: Option<f64>,
    /// Time from the start in which failures do not count
    #[arg(long, value_name = "TIME", value_parser = values::seconds, requires = "health_cmd")]
    health_start_period: Option<f64>,
    /// Failures in a row that make it unhealthy
    #[arg(long, value_name = "N", requires = "health_cmd")]
    health_retries: Option<u32>,
    /// Do not check its health, whatever the image says
    #[arg(long, conflicts_with = "health_cmd")]
    no_healthcheck: bool,
    /// Mount what another domain has of volumes and of the host's files, at the same places: `DOMAIN[:ro]`
    #[arg(long, value_name = "DOMAIN")]
    volumes_from: Vec<String>,
    /// Log files: max-size=SIZE, max-file=N
    #[arg(long, value_name = "OPTION=VALUE")]
    log_opt: Vec<String>,
}

impl More {
    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn health(&self) -> Option<HealthCheck> {
        let command = match (&self.health_cmd, self.no_healthcheck) {
            (Some(command), _) => vec!["/bin/sh".into(), "-c".into(), command.clone()],
            (None, true) => Vec::new(),
            (None, false) => return None,
        };
        let mut check = HealthCheck::new(command);
        check.interval_seconds = self.health_interval.unwrap_or(check.interval_seconds);
        check.timeout_seconds = self.health_timeout.unwrap_or(check.timeout_seconds);
        check.start_period_seconds = self.health_start_period.unwrap_or(check.start_period_seconds);
        check.retries = self.health_retries.unwrap_or(check.retries);
        Some(check)
    }
}

/// Reads a restart policy as Docker writes it.
pub fn restart(text: &str) -> Result<RestartPolicy, String> {
    Ok(match text {
        "no" => RestartPolicy::No,
        "always" => RestartPolicy::Always,
        "unless-stopped" => RestartPolicy::UnlessStopped,
        "on-failure" => RestartPolicy::OnFailure { max_retries: 0 },
        _ => {
            let retries = text.strip_prefix("on-failure:").and_then(|n| n.parse().ok());
            let max_retries = retries.ok_or("no, always, unless-stopped, on-failure or on-failure:N")?;
            RestartPolicy::OnFailure { max_retries }
        }
    })
}

fn text(what: &str, value: &OsStr) -> Result<String, String> {
    value.to_str().map(str::to_owned).ok_or_else(|| format!("{what}: {value:?} is no UTF-8"))
}

/// Key-value pairs of labels.
pub fn labels(given: &[String]) -> BTreeMap<String, String> {
    given.iter().map(|l| l.split_once('=').unwrap_or((l, ""))).map(|(k, v)| (k.into(), v.into())).collect()
}

/// Variables as `-e` and `--env-file` give them.
pub fn environment(
    given: &[OsString],
    files: &[std::path::PathBuf],
) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for file in files {
        let content = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        for line in content.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#')) {
            add(&mut all, line)?;
        }
    }
    for variable in given {
        add(&mut all, &text("-e", variable)?)?;
    }
    Ok(all)
}

fn add(all: &mut BTreeMap<String, String>, variable: &str) -> Result<(), String> {
    let (name, value) = match variable.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (variable, std::env::var(variable).ok()),
    };
    if name.is_empty() {
        return Err(format!("-e {variable:?} has no name"));
    }
    if let Some(value) = value {
        all.insert(name.to_owned(), value);
    }
    Ok(())
}

fn log(options: &[String]) -> Result<LogTarget, String> {
    let mut log = LogTarget::default();
    for option in options {
        match option.split_once('=') {
            Some(("max-size", value)) => log.max_bytes = values::size(value)?,
            Some(("max-file", value)) => {
                log.max_files = value.parse().map_err(|_| format!("--log-opt {option:?}: no number"))?;
            }
            _ => return Err(format!("--log-opt {option:?}: there are max-size=SIZE and max-file=N")),
        }
    }
    Ok(log)
}

/// The request that the options make.
pub fn wanted(args: &RunArgs, more: &More) -> Result<CreateDomain, String> {
    let mut env = environment(&args.env, &more.env_file)?;
    if args.spec.tty {
        let term = std::env::var("TERM").ok().filter(|t| !t.is_empty()).unwrap_or_else(|| "xterm".into());
        env.entry("TERM".into()).or_insert(term);
    }
    let entrypoint = match args.entrypoint.as_deref() {
        None => None,
        Some(program) if program.is_empty() => Some(Vec::new()),
        Some(program) => Some(vec![text("--entrypoint", program)?]),
    };
    Ok(CreateDomain {
        kind: args.kind.choose(),
        image: image(&args.spec.image),
        command: args.command.iter().map(|a| text("command", a)).collect::<Result<_, _>>()?,
        entrypoint,
        env,
        restart: more.restart.unwrap_or_default(),
        labels: labels(&more.label),
        resources: args.resources.given(),
        health: more.health(),
        log: log(&more.log_opt)?,
        files: args.files.given(),
        network: args.network.supervised()?,
        ..args.spec.clone()
    })
}

/// The same, with the volumes of other domains that are to be had as well.
pub fn wanted_of(client: &Client, args: &RunArgs, more: &More) -> Result<CreateDomain, Box<dyn Error>> {
    let mut wanted = wanted(args, more)?;
    for from in &more.volumes_from {
        let (name, read_only) = match from.rsplit_once(':') {
            Some((name, "ro")) => (name, true),
            Some((name, "rw")) => (name, false),
            Some((_, mode)) => {
                return Err(format!("--volumes-from {from:?}: {mode:?} is neither ro nor rw").into());
            }
            None => (from.as_str(), false),
        };
        add_volumes(&mut wanted.files, &client.inspect(name)?.config.files, read_only);
    }
    Ok(wanted)
}

/// Adds another domain's volumes where nothing else is mounted.
fn add_volumes(files: &mut Files, others: &Files, read_only: bool) {
    for mount in others.volumes() {
        if files.mounts.iter().all(|own| own.target != mount.target) {
            let mut mount = mount.clone();
            mount.options.extend(read_only.then(|| "ro".to_owned()));
            files.mounts.push(mount);
        }
    }
}

/// A path is the caller's; the supervisor has another working directory.
fn image(image: &str) -> String {
    let path = image.starts_with(['/', '.']) || image.ends_with(".erofs");
    let full = path.then(|| std::path::Path::new(image).canonicalize().ok()).flatten();
    full.and_then(|p| p.to_str().map(str::to_owned)).unwrap_or_else(|| image.to_owned())
}

/// Options of `doppel create`.
#[derive(Args)]
pub struct CreateArgs {
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    more: More,
    #[command(flatten)]
    run: RunArgs,
}

/// Makes a domain.
pub fn create(args: &CreateArgs) -> Outcome {
    if let Some(option) = args.run.alone() {
        return Err(format!("{option} is for `doppel run` without the supervisor").into());
    }
    let client = supervisor()?;
    pull::pull(&args.run.spec.image, args.run.pull, Some(&client))?;
    let created = match client.create(&wanted_of(&client, &args.run, &args.more)?) {
        Ok(created) => created,
        Err(e) => {
            tell!("doppel: {e}");
            return Ok(ExitCode::from(not_started(&e).max(TOOL_ERROR)));
        }
    };
    for warning in &created.warnings {
        tell!("doppel: warning: {warning}");
    }
    match args.json {
        true => say!("{}", serde_json::to_string(&created.domain)?)?,
        false => say!("{}", created.domain.id)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use doppel_api::{Mount, MountKind};

    use super::*;

    #[test]
    fn policies() {
        assert_eq!(restart("on-failure:3"), Ok(RestartPolicy::OnFailure { max_retries: 3 }));
        assert_eq!(restart("unless-stopped"), Ok(RestartPolicy::UnlessStopped));
        assert!(restart("sometimes").is_err() && restart("on-failure:x").is_err());
    }

    #[test]
    fn volumes_of_others() {
        let mount = |target: &str, source: &str| Mount {
            kind: MountKind::Volume,
            source: Some(source.into()),
            target: target.into(),
            ..Mount::default()
        };
        let tmpfs = Mount { target: "/t".into(), ..Mount::default() };
        let others =
            Files { mounts: vec![mount("/a", "theirs"), tmpfs, mount("/b", "b1")], ..Files::default() };
        let mut files = Files { mounts: vec![mount("/a", "mine")], ..Files::default() };
        add_volumes(&mut files, &others, true);
        let found: Vec<_> = files.mounts.iter().map(|m| (m.source.as_deref(), m.is_read_only())).collect();
        assert_eq!(found, [(Some("mine"), false), (Some("b1"), true)]);
    }

    #[test]
    fn maps() {
        let found = labels(&["a=b=c".into(), "d".into()]);
        assert_eq!((found["a"].as_str(), found["d"].as_str()), ("b=c", ""));
        let env = environment(&["A=1".into(), "B=".into(), "NOT_SET_ANYWHERE".into()], &[]).unwrap();
        assert_eq!(env.len(), 2);
        assert!(environment(&["=x".into()], &[]).is_err());
        assert_eq!(log(&["max-size=1m".into(), "max-file=2".into()]).unwrap().max_bytes, 1 << 20);
        assert!(log(&["colour=red".into()]).is_err());
    }
}
