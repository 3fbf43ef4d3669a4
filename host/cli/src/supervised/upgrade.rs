//! `doppel upgrade`: the supervisor's host goes on with the program that is installed now.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use doppel_api::{Operation, OperationState, UpgradeReport, Version};
use doppel_client::{Client, Error};

use super::show::Printed;
use super::{Outcome, failed, supervisor};
use crate::terminal::format::Format;
use crate::terminal::out::say;

/// Between two looks how far it is.
const LOOK: Duration = Duration::from_millis(50);
/// How long the supervisor may be away.
const AWAY: Duration = Duration::from_secs(60);

/// Options of `doppel upgrade`.
#[derive(Args)]
pub struct UpgradeArgs {
    /// Only check that the installed program begins and takes the configuration, and say what would be done
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    printed: Printed,
}

/// Does it.
pub fn run(args: &UpgradeArgs) -> Outcome {
    let client = supervisor()?;
    let format = args.printed.get()?;
    if args.check {
        return check(&client, &format);
    }
    let operation = match client.upgrade().and_then(|begun| ended(&client, begun)) {
        Ok(operation) => operation,
        Err(e) => return failed(&e),
    };
    if let Some(problem) = operation.problem {
        return failed(&problem);
    }
    let value = operation.result.unwrap_or_default();
    if !matches!(format, Format::Default) {
        format.print(&[value], &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    let report: UpgradeReport = serde_json::from_value(value)?;
    let (before, after) = (named(&report.before), named(&report.after));
    if before == after {
        say!("supervisor: {after}, as before")?;
    } else {
        say!("supervisor: {before} -> {after}")?;
    }
    for keeper in &report.keepers {
        match &keeper.stays {
            None => say!("keeper {}: {after}", keeper.number)?,
            Some(why) => say!("keeper {}: as it was: {why}", keeper.number)?,
        }
    }
    match &report.services_stay {
        None => say!("service domains: {} of {after}", report.services.len())?,
        Some(why) => say!("service domains: {} as they were: {why}", report.services.len())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(client: &Client, format: &Format) -> Outcome {
    let check = match client.upgrade_check() {
        Ok(check) => check,
        Err(e) => return failed(&e),
    };
    if !matches!(format, Format::Default) {
        format.print(&[serde_json::to_value(&check)?], &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("runs:      {}", named(&check.running))?;
    let same = if check.same { " (the same file)" } else { "" };
    say!("installed: {}{same}", named(&check.installed))?;
    if !check.same {
        say!("would hang up {} exec sessions and end {} operations", check.execs, check.operations)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn named(version: &Version) -> String {
    format!("{} (guest kernel {})", version.version, version.kernel)
}

/// The operation when it has ended. The connection ends with the program before.
fn ended(client: &Client, begun: Operation) -> Result<Operation, Error> {
    let mut operation = begun;
    let mut heard = Instant::now();
    while operation.state == OperationState::Running {
        std::thread::sleep(LOOK);
        match client.operation(&operation.id) {
            Ok(now) => {
                operation = now;
                heard = Instant::now();
            }
            Err(Error::Unreachable { .. } | Error::Broken(_)) if heard.elapsed() < AWAY => {}
            Err(error) => return Err(error),
        }
    }
    Ok(operation)
}
