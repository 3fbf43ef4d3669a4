//! Freeze, hibernate, wake and clone of the supervisor's domains.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{CloneFrozen, CloneResult, DomainState, FreezeDomain, FreezeReport, RollBack};

use super::waiting::told;
use super::{Outcome, keeper_of, supervisor};
use crate::standalone::image::bytes;
use crate::terminal::out::{say, tell};

fn print(name: &str, report: &FreezeReport, json: bool) -> Outcome {
    if json {
        say!("{}", serde_json::to_string(report)?)?;
    } else {
        let ms = |us: u64| us as f64 / 1000.0;
        let (size, written) = (bytes(report.bytes), bytes(report.written_bytes));
        let (stop, pause) = (ms(report.stop_us), ms(report.pause_us));
        say!(
            "{name}: {size} of memory, {written} of it written; stopped in {stop:.1} ms, paused for {pause:.1} ms"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Freezes a domain if it is the supervisor's.
pub fn freeze(
    domain: &str,
    how: &FreezeDomain,
    json: bool,
) -> Result<Option<ExitCode>, Box<dyn std::error::Error>> {
    let Some((client, found)) = keeper_of(domain)? else { return Ok(None) };
    let report = client.freeze(&found.id, how)?;
    print(&how.frozen, &report, json).map(Some)
}

/// Hibernates a domain if it is the supervisor's.
pub fn hibernate(domain: &str, json: bool) -> Result<Option<ExitCode>, Box<dyn std::error::Error>> {
    let Some((client, found)) = keeper_of(domain)? else { return Ok(None) };
    let hibernated = client.hibernate(&found.id)?;
    print(domain, &hibernated.report, json).map(Some)
}

/// Wakes a domain, in the background, if it is the supervisor's.
pub fn wake(domain: &str) -> Result<Option<ExitCode>, Box<dyn std::error::Error>> {
    match keeper_of(domain)? {
        Some((client, found)) if found.state == DomainState::Hibernated => {
            say!("{}", told(&client, &found.id, || client.wake(&found.id))?.id)?;
            Ok(Some(ExitCode::SUCCESS))
        }
        Some((_, found)) => Err(format!("domain {} is not hibernated", found.name).into()),
        None => Ok(None),
    }
}

/// Options of `doppel rollback`.
#[derive(Args)]
pub struct RollbackArgs {
    /// Print the domain as JSON
    #[arg(long)]
    json: bool,
    /// Name or id of the domain
    domain: String,
    /// Name of the frozen image
    frozen: String,
}

/// Has a domain of the supervisor go back to a frozen image.
pub fn roll_back(args: &RollbackArgs) -> Outcome {
    let RollbackArgs { json, domain, frozen } = args;
    let how = RollBack { frozen: frozen.clone() };
    match keeper_of(domain)? {
        Some((client, found)) => {
            let domain = told(&client, &found.id, || client.roll_back(&found.id, &how))?;
            match json {
                true => say!("{}", serde_json::to_string(&domain)?)?,
                false => say!("{}", domain.name)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        None => Err(format!("no domain {domain:?} of a supervisor; only those can be rolled back").into()),
    }
}

/// Starts clones as the supervisor's domains and prints their ids.
pub fn clone(frozen: &str, how: &CloneFrozen, json: bool) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for result in supervisor()?.clone_frozen(frozen, how)?.results {
        if let CloneResult::Domain(domain) = &result {
            for warning in doppel_api::validate::brought_down(&how.resources, &domain.config.resources) {
                tell!("doppel: warning: {}: {warning}", domain.name);
            }
        }
        match result {
            CloneResult::Domain(domain) if json => say!("{}", serde_json::to_string(&domain)?)?,
            CloneResult::Domain(domain) => say!("{}", domain.id)?,
            CloneResult::Problem(problem) => {
                tell!("doppel: {problem}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
