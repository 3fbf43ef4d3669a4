//! `doppel run`, `start -a` and `attach` through the supervisor.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{AttachOptions, CreateDomain, Created, DomainState, LogOptions, Output, RemoveOptions};
use doppel_client::{Client, Error};

use super::attached::{End, Program, Tied, Ties, detach_keys};
use super::create::{More, wanted_of};
use super::waiting::told;
use super::{Names, Outcome, failed, not_started, running, supervisor};
use crate::options::pull;
use crate::standalone::run::{self, RunArgs};
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::{say, tell};

/// Keys that detach from a terminal.
const DETACH: &str = "ctrl-p,ctrl-q";

/// Options of `doppel run`.
#[derive(Args)]
pub struct RunVerb {
    /// Leave it running in the background and print its id
    #[arg(short, long)]
    detach: bool,
    /// Do without the supervisor even if one runs: the domain is this command's, and ends with it
    #[arg(long, conflicts_with = "detach")]
    standalone: bool,
    /// Keys that detach from a terminal
    #[arg(long, value_name = "KEYS", default_value = DETACH, value_parser = detach_keys)]
    detach_keys: std::vec::Vec<u8>,
    #[command(flatten)]
    more: More,
    #[command(flatten)]
    args: RunArgs,
}

/// Runs a command in a new domain: through the supervisor if one runs, else alone.
pub fn run(verb: RunVerb) -> Outcome {
    let alone = verb.args.alone();
    let client = if verb.standalone || alone.is_some() { None } else { running()? };
    let Some(client) = client else {
        if verb.detach || !verb.more.is_empty() || verb.args.spec.supervised().is_some() {
            let why = match alone {
                Some(option) => {
                    format!("{option} works without the supervisor only; --detach and the like need it")
                }
                None => "--detach, --restart, --label and the like need the supervisor; is doppeld running?"
                    .into(),
            };
            return Err(why.into());
        }
        return run::run(verb.args);
    };
    pull::pull(&verb.args.spec.image, verb.args.pull, Some(&client))?;
    if verb.args.spec.auto_remove && !verb.detach {
        return brief(&client, verb);
    }
    let created = match client.create(&wanted_of(&client, &verb.args, &verb.more)?) {
        Ok(created) => created,
        Err(e) => return refused(&e),
    };
    for warning in &created.warnings {
        tell!("doppel: warning: {warning}");
    }
    if verb.detach {
        let id = &created.domain.id;
        return match told(&client, id, || client.start(id)) {
            Ok(domain) => {
                say!("{}", domain.id)?;
                Ok(ExitCode::SUCCESS)
            }
            // Nobody has its id: it would only keep its name from others.
            Err(e) => not_run(&client, &created, &e, true),
        };
    }
    let CreateDomain { stdin, tty, .. } = verb.args.spec;
    let ties = Ties { stdin, tty, signals: true, detach: verb.detach_keys };
    foreground(&client, &created, ties)
}

/// One that is removed when it ends is made, started, followed and removed by one request.
fn brief(client: &Client, verb: RunVerb) -> Outcome {
    let wanted = wanted_of(client, &verb.args, &verb.more)?;
    let CreateDomain { stdin, tty, .. } = verb.args.spec;
    let tied = Tied::new(Ties { stdin, tty, signals: true, detach: verb.detach_keys })?;
    let run = || client.run(&wanted);
    // One without a name cannot be asked about before it has begun.
    let begun = match &wanted.name {
        Some(name) => told(client, name, run),
        None => run(),
    };
    let mut lines = match begun {
        Ok(lines) => lines,
        Err(e) => return refused(&e),
    };
    let (id, name) = match lines.next() {
        Some(Ok(Output::Started { id, name, warnings })) => {
            for warning in &warnings {
                tell!("doppel: warning: {warning}");
            }
            (id, name)
        }
        Some(Err(e)) => return Err(e.into()),
        _ => return Err("the supervisor does not say what it has started".into()),
    };
    let end = tied.run(&Program::Domain(id.clone()), lines)?;
    ended(client, &id, &name, end)
}

fn refused(error: &Error) -> Outcome {
    tell!("doppel: {error}");
    Ok(ExitCode::from(not_started(error)))
}

/// It was made but could not be started.
fn not_run(client: &Client, created: &Created, error: &Error, remove: bool) -> Outcome {
    if (remove || created.domain.config.auto_remove)
        && let Err(e) = client.remove(&created.domain.id, &RemoveOptions { force: true, volumes: true })
        && e.code() != Some(doppel_api::Code::DomainNotFound)
    {
        tell!("doppel: {} is not removed: {e}", created.domain.name);
    }
    refused(error)
}

fn foreground(client: &Client, created: &Created, ties: Ties) -> Outcome {
    let id = &created.domain.id;
    let tied = Tied::new(ties)?;
    // Before the start, so that nothing is missed.
    let lines = match client.attach(id, &AttachOptions { backlog: true }) {
        Ok(lines) => lines,
        Err(e) => return not_run(client, created, &e, false),
    };
    if let Err(e) = told(client, id, || client.start(id)) {
        return not_run(client, created, &e, false);
    }
    let end = tied.run(&Program::Domain(id.clone()), lines)?;
    ended(client, id, &created.domain.name, end)
}

/// The exit code for how it ended.
fn ended(client: &Client, id: &str, name: &str, end: End) -> Outcome {
    match end {
        End::Exit { code, reason } => {
            if let Some(reason) = reason {
                tell!("doppel: domain {name} ended: {reason}");
            }
            Ok(ExitCode::from(code))
        }
        End::Detached => {
            tell!("\r\ndetached from {name}");
            Ok(ExitCode::SUCCESS)
        }
        // The supervisor may just be starting anew; the domain goes on.
        End::Cut => match client.wait(id) {
            Ok(waited) => Ok(ExitCode::from(waited.exit.exit_code)),
            Err(e) => {
                tell!("doppel: lost sight of domain {name}: {e}");
                Ok(ExitCode::from(TOOL_ERROR))
            }
        },
    }
}

/// Options of `doppel attach`.
#[derive(Args)]
pub struct AttachArgs {
    /// Do not connect standard input
    #[arg(long)]
    no_stdin: bool,
    /// Pass signals on
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    sig_proxy: bool,
    /// Keys that detach from a terminal
    #[arg(long, value_name = "KEYS", default_value = DETACH, value_parser = detach_keys)]
    detach_keys: std::vec::Vec<u8>,
    /// Name or id
    domain: String,
}

/// Ties this terminal to a running domain.
pub fn attach(args: AttachArgs) -> Outcome {
    let client = supervisor()?;
    let domain = match client.inspect(&args.domain) {
        Ok(domain) => domain,
        Err(e) => return failed(&e),
    };
    // One that hibernates wakes for it.
    if !matches!(domain.state, DomainState::Running | DomainState::Paused | DomainState::Hibernated) {
        return failed(&format!("domain {} does not run", domain.name));
    }
    let ties = Ties {
        stdin: domain.config.stdin && !args.no_stdin,
        tty: domain.config.tty,
        signals: args.sig_proxy,
        detach: args.detach_keys,
    };
    let tied = Tied::new(ties)?;
    let lines = match client.attach(&domain.id, &AttachOptions { backlog: domain.config.tty }) {
        Ok(lines) => lines,
        Err(e) => return failed(&e),
    };
    let end = tied.run(&Program::Domain(domain.id.clone()), lines)?;
    ended(&client, &domain.id, &domain.name, end)
}

/// Options of `doppel start`.
#[derive(Args)]
pub struct StartArgs {
    /// Attach to its output, and give its exit code
    #[arg(short, long)]
    attach: bool,
    /// Attach to its input too
    #[arg(short, long, requires = "attach")]
    interactive: bool,
    #[command(flatten)]
    names: Names,
}

/// Starts domains.
pub fn start(args: &StartArgs) -> Outcome {
    let client = supervisor()?;
    if !args.attach {
        return super::each(&args.names, |name| told(&client, name, || client.start(name)));
    }
    let [name] = args.names.domains.as_slice() else {
        return Err("--attach is for one domain".into());
    };
    let domain = match client.inspect(name) {
        Ok(domain) => domain,
        Err(e) => return failed(&e),
    };
    let ties = Ties {
        stdin: args.interactive && domain.config.stdin,
        tty: domain.config.tty,
        signals: true,
        detach: detach_keys(DETACH)?,
    };
    let tied = Tied::new(ties)?;
    // One that has ended cannot be attached to before it runs again, and may have ended again by then: its log has all.
    let before = client.attach(&domain.id, &AttachOptions { backlog: false }).ok();
    if let Err(e) = told(&client, &domain.id, || client.start(&domain.id)) {
        return refused(&e);
    }
    let lines = match before {
        Some(lines) => lines,
        None => {
            // What is younger than its last end is of this run; it may print before its start is written down.
            let since = domain.exit.as_ref().map(|e| e.at.clone());
            match client.logs(&domain.id, &LogOptions { follow: true, since, ..LogOptions::default() }) {
                Ok(lines) => lines,
                Err(e) => return failed(&e),
            }
        }
    };
    let end = tied.run(&Program::Domain(domain.id.clone()), lines)?;
    ended(&client, &domain.id, &domain.name, end)
}
