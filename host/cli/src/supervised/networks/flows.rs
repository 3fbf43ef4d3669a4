//! Live flows: `doppel network flows`.

use std::process::ExitCode;

use clap::Args;
use doppel_api::{Flow, FlowOptions};
use serde_json::{Value, json};

use crate::standalone::image::bytes;
use crate::supervised::show::Printed;
use crate::supervised::{Outcome, failed, supervisor};
use crate::terminal::format::Format;
use crate::terminal::out::tell;

/// Options of `doppel network flows`.
#[derive(Args)]
pub struct FlowsArgs {
    /// Of this domain alone
    domain: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    printed: Printed,
}

/// Flows asked for at once.
const PAGE: usize = 1000;

/// Shows flows.
pub fn run(args: &FlowsArgs) -> Outcome {
    let client = supervisor()?;
    let format = args.printed.get()?;
    let (mut flows, mut left_out, mut after) = (Vec::new(), 0, None);
    let more = loop {
        let limit = (args.limit - flows.len()).min(PAGE);
        if limit == 0 {
            break true;
        }
        let list = match client.flows(args.domain.as_deref(), &FlowOptions { limit: Some(limit), after }) {
            Ok(list) => list,
            Err(e) => return failed(&e),
        };
        flows.extend(list.flows);
        left_out += list.left_out;
        if list.next.is_none() {
            break false;
        }
        after = list.next;
    };
    let rows = flows.iter().map(|flow| row(flow, &format)).collect::<Result<Vec<_>, _>>()?;
    format.print(
        &rows,
        &[
            ("DOMAIN", "name"),
            ("PROTOCOL", "protocol"),
            ("DIRECTION", "direction"),
            ("LOCAL", "local"),
            ("PEER", "peer"),
            ("THROUGH", "through"),
            ("STATE", "state"),
            ("SENT", "sent_bytes"),
            ("RECEIVED", "received_bytes"),
            ("AGE", "age_seconds"),
        ],
    )?;
    if more {
        tell!("doppel: there are more flows; --limit takes a larger number");
    }
    if left_out > 0 {
        tell!("doppel: {left_out} peers of datagram sockets are not shown: of each socket the latest 64 are");
    }
    Ok(ExitCode::SUCCESS)
}

fn row(flow: &Flow, format: &Format) -> Result<Value, serde_json::Error> {
    let mut row = serde_json::to_value(flow)?;
    if matches!(format, Format::Default) {
        row["through"] = json!(flow.through.map_or_else(|| "-".to_owned(), |a| a.to_string()));
        row["sent_bytes"] = json!(bytes(flow.sent_bytes));
        row["received_bytes"] = json!(bytes(flow.received_bytes));
        row["age_seconds"] = json!(format!("{:.1} s", flow.age_seconds));
    }
    Ok(row)
}
