//! Service domains: `doppel service`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::show::Printed;
use super::{Outcome, failed, supervisor};
use crate::standalone::image::bytes;
use crate::terminal::format::Format;

/// Service domains.
#[derive(Subcommand)]
pub enum ServiceCommand {
    /// List service domains: which of a kind, its process, how often it was replaced, what it serves and uses
    Ls(Printed),
    /// Replace service domains by those of the supervisor's program as it is installed now; established connections are
    /// reset, programs and listening sockets go on
    Upgrade(Printed),
}

/// Runs one.
pub fn run(command: &ServiceCommand) -> Outcome {
    let client = supervisor()?;
    let (found, printed) = match command {
        ServiceCommand::Ls(printed) => (client.services(), printed),
        ServiceCommand::Upgrade(printed) => (client.upgrade_services(), printed),
    };
    let services = match found {
        Ok(services) => services,
        Err(e) => return failed(&e),
    };
    let format = printed.get()?;
    let row = |s: &doppel_api::Service| -> Result<Value, serde_json::Error> {
        let mut row = serde_json::to_value(s)?;
        if matches!(format, Format::Default) {
            row["pid"] = json!(s.pid.map_or_else(|| "-".to_owned(), |p| p.to_string()));
            row["cpu_seconds"] = json!(format!("{:.2} s", s.cpu_seconds));
            row["memory_bytes"] = json!(bytes(s.memory_bytes));
        }
        Ok(row)
    };
    let rows = services.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let columns = [
        ("SERVICE", "kind"),
        ("SHARD", "shard"),
        ("PID", "pid"),
        ("STARTS", "starts"),
        ("RESTARTS", "restarts"),
        ("DOMAINS", "domains"),
        ("NETWORKS", "networks"),
        ("CPU", "cpu_seconds"),
        ("MEMORY", "memory_bytes"),
    ];
    format.print(&rows, &columns)?;
    Ok(ExitCode::SUCCESS)
}
