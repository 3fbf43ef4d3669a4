//! `doppel hibernate` and `wake`: a domain sleeps on disk as the frozen image `NAME.asleep`.
//!
//! The image stays while the domain is awake, so that a crash of the host loses only what came after. It goes when
//! the domain ends by itself, and is replaced when the domain hibernates again. Its lock is the waking process'
//! alone: there is no second wake beside the first, and no clone of it.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use doppel_domain::{Domain, DomainConfig, Outcome, Request, Resume};
use doppel_freezer::Medium;
use doppel_image::Store;
use doppel_spec::CreateDomain;

use crate::options::storage::Storage;
use crate::standalone::freeze::{Outcomes, ask_freeze, said};
use crate::standalone::run::{exit_code, frozen_store};
use crate::supervised;
use crate::terminal::out::{say, tell};

/// Options of `doppel hibernate`.
#[derive(Args)]
pub struct HibernateArgs {
    /// Print what it cost as JSON
    #[arg(long)]
    json: bool,
    /// Name of the running domain
    domain: String,
}

/// Options of `doppel wake`.
#[derive(Args)]
pub struct WakeArgs {
    /// Connect standard input
    #[arg(short, long)]
    interactive: bool,
    /// Neither use nor record which pages the domain touches first: read and check all before it starts
    #[arg(long)]
    no_prefetch: bool,
    /// Name of the hibernated domain
    domain: String,
}

/// Frozen image of a hibernated domain.
fn asleep(domain: &str) -> String {
    format!("{domain}.asleep")
}

/// Freezes a domain to disk and ends it.
pub fn hibernate(args: &HibernateArgs) -> Outcomes {
    if let Some(done) = supervised::clones::hibernate(&args.domain, args.json)? {
        return Ok(done);
    }
    crate::options::defaults::read()?.choose();
    let name = asleep(&args.domain);
    let store = frozen_store();
    // One that is there may be what the domain woke from. Whether it is, the domain's own process knows.
    let to = store.path(&name).or_else(|_| store.vacant(&name, Medium::Disk))?;
    let report = ask_freeze(&args.domain, Request::Hibernate { to })?;
    if args.json {
        say!("{}", serde_json::to_string(&report)?)?;
    } else {
        say!("{}", said(&args.domain, &report))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes on with a hibernated domain: in the foreground, but for the supervisor's.
pub fn wake(args: &WakeArgs) -> Outcomes {
    if let Some(done) = supervised::clones::wake(&args.domain)? {
        return Ok(done);
    }
    crate::options::defaults::read()?.choose();
    let name = asleep(&args.domain);
    let store = frozen_store();
    let image = Arc::new(store.open_to_wake(&name, !args.no_prefetch)?);
    let resume = Resume { image: image.clone(), index: 0, wake: true, hold: false };
    let spec =
        CreateDomain { name: Some(args.domain.clone()), stdin: args.interactive, ..CreateDomain::default() };
    let place = Store::from_env().root().to_owned();
    let storage = Storage::of_sleeper(&image, &place)?;
    let mut config = DomainConfig { spec, store: Some(place), ..DomainConfig::default() };
    storage.give(&mut config);
    let mut domain = Domain::resume(resume, &config, &mut |text| tell!("doppel: warning: {text}"))?;
    storage.wait_served()?;
    if !args.no_prefetch {
        domain.settle_wake(|text| tell!("doppel: {text}"))?;
    }
    let outcome = domain.wait()?;
    match &outcome {
        Outcome::Exited(_) if !domain.is_asleep() => store.discard(&image)?,
        Outcome::Ended { .. } => {
            tell!("doppel: {name} is kept; `doppel wake {}` goes on from there again", args.domain);
        }
        Outcome::Exited(_) => {}
    }
    Ok(exit_code(&args.domain, &outcome))
}
