//! Verbs that change domains: stop kill pause unpause restart rm rename wait update prune.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{Code, KillOptions, RemoveOptions, RestartPolicy, StopOptions, UpdateDomain, UpdateNetwork};

use super::{Names, Outcome, create, each, each_shown, failed, supervisor};
use crate::options::rates::RateArgs;
use crate::options::rules::RuleArgs;
use crate::standalone::image::bytes;
use crate::terminal::out::{self, say, tell};

/// Options of `doppel stop` and `restart`.
#[derive(Args)]
pub struct StopArgs {
    /// Seconds before it is killed
    #[arg(short, long, visible_alias = "timeout", value_name = "SECONDS")]
    time: Option<u32>,
    /// Signal that asks it to stop
    #[arg(short, long, value_name = "SIGNAL")]
    signal: Option<String>,
    #[command(flatten)]
    names: Names,
}

impl StopArgs {
    fn how(&self) -> StopOptions {
        StopOptions { signal: self.signal.clone(), timeout_seconds: self.time }
    }
}

/// Options of `doppel kill`.
#[derive(Args)]
pub struct KillArgs {
    /// Signal, by name or number
    #[arg(short, long, value_name = "SIGNAL", default_value = "SIGKILL")]
    signal: String,
    #[command(flatten)]
    names: Names,
}

/// Options of `doppel rm`.
#[derive(Args)]
pub struct RmArgs {
    /// Kill it first if it runs
    #[arg(short, long)]
    force: bool,
    /// Remove its volumes without a name of their own too
    #[arg(short, long)]
    volumes: bool,
    #[command(flatten)]
    names: Names,
}

/// Options of `doppel rename`.
#[derive(Args)]
pub struct RenameArgs {
    /// Name or id
    domain: String,
    /// New name
    name: String,
}

/// Options of `doppel prune`.
#[derive(Args)]
pub struct PruneArgs {
    /// Do not ask
    #[arg(short, long)]
    force: bool,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `doppel update`.
#[derive(Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    resources: doppel_spec::ResourceArgs,
    #[command(flatten)]
    residency: doppel_spec::Residency,
    /// When it is started again: no, always, unless-stopped, on-failure or on-failure:N
    #[arg(long, value_name = "POLICY", value_parser = create::restart)]
    restart: Option<RestartPolicy>,
    /// Seconds from now after which it is stopped; 0: never
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Labels, in place of all there were
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    label: Vec<String>,
    #[command(flatten)]
    rules: RuleArgs,
    /// No rules of its network any more
    #[arg(long, conflicts_with_all = ["allow", "deny", "allow-in", "deny-in", "rules"])]
    no_rules: bool,
    #[command(flatten)]
    rate: RateArgs,
    #[command(flatten)]
    names: Names,
}

/// Asks domains to stop, then kills them.
pub fn stop(args: &StopArgs) -> Outcome {
    let client = supervisor()?;
    each(&args.names, |name| client.stop(name, &args.how()))
}

/// Stops and starts domains.
pub fn restart(args: &StopArgs) -> Outcome {
    let client = supervisor()?;
    each(&args.names, |name| client.restart(name, &args.how()))
}

/// Sends a signal.
pub fn kill(args: &KillArgs) -> Outcome {
    let client = supervisor()?;
    let how = KillOptions { signal: Some(args.signal.clone()) };
    each(&args.names, |name| client.kill(name, &how))
}

/// Lets domains stand still.
pub fn pause(args: &Names) -> Outcome {
    let client = supervisor()?;
    each(args, |name| client.pause(name))
}

/// Lets them go on.
pub fn unpause(args: &Names) -> Outcome {
    let client = supervisor()?;
    each(args, |name| client.unpause(name))
}

/// Removes domains.
pub fn remove(args: &RmArgs) -> Outcome {
    let RmArgs { force, volumes, names } = args;
    let client = supervisor()?;
    let how = RemoveOptions { force: *force, volumes: *volumes };
    let remove = |name: &str| match client.remove(name, &how) {
        // As with Docker: what is to be gone is gone.
        Err(e) if *force && e.code() == Some(Code::DomainNotFound) => {
            tell!("doppel: {e}");
            Ok(None)
        }
        done => done.map(Some),
    };
    each_shown(names, remove, |name, done| done.map(|()| name.to_owned()))
}

/// Gives a domain a new name.
pub fn rename(args: &RenameArgs) -> Outcome {
    match supervisor()?.rename(&args.domain, &args.name) {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(e) => failed(&e),
    }
}

/// Waits for the end of domains and prints their exit codes.
pub fn wait(args: &Names) -> Outcome {
    let client = supervisor()?;
    each_shown(args, |name| client.wait(name), |_, waited| Some(waited.exit.exit_code.to_string()))
}

/// Changes limits.
pub fn update(args: &UpdateArgs) -> Outcome {
    let client = supervisor()?;
    let rules = args.rules.all()?;
    let network = UpdateNetwork {
        rules: (args.no_rules || !args.rules.is_empty()).then_some(rules),
        allow: None,
        rate: args.rate.given(),
        weight: args.rate.weight(),
        guarantee: args.rate.guarantee(),
    };
    let network = (network != UpdateNetwork::default()).then_some(network);
    let to = UpdateDomain {
        network,
        resources: args.resources.given(),
        residency: args.residency.clone(),
        restart: args.restart,
        timeout_seconds: args.timeout,
        labels: (!args.label.is_empty()).then(|| create::labels(&args.label)),
    };
    each(&args.names, |name| {
        let domain = client.update(name, &to)?;
        for warning in doppel_api::validate::brought_down(&to.resources, &domain.config.resources) {
            tell!("doppel: warning: {name}: {warning}");
        }
        Ok(domain)
    })
}

/// Removes domains that have ended.
pub fn prune(args: &PruneArgs) -> Outcome {
    let client = supervisor()?;
    if !args.force && !out::confirmed("This removes all domains that do not run.")? {
        return Ok(ExitCode::SUCCESS);
    }
    let report = match client.prune() {
        Ok(report) => report,
        Err(e) => return failed(&e),
    };
    if args.json {
        say!("{}", serde_json::to_string(&report)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for id in &report.removed {
        say!("{id}")?;
    }
    say!("{} domains removed, {} free again", report.removed.len(), bytes(report.freed_bytes))?;
    Ok(ExitCode::SUCCESS)
}
