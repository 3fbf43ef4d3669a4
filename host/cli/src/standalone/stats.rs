//! `doppel stats`: what running domains use. Those of the supervisor if one runs and --standalone is not given, else the
//! memory of those that `doppel run` keeps itself.

use std::error::Error;
use std::process::ExitCode;

use doppel_domain::{DomainStats, Reply, Request, ask, running};

use crate::standalone::image::bytes;
use crate::supervised;
use crate::terminal::format::Format;
use crate::terminal::out::say;

/// Options of `doppel stats`.
#[derive(clap::Args)]
pub struct StatsArgs {
    /// Print one line of JSON a domain
    #[arg(long)]
    json: bool,
    /// A template as {{.Name}}, or json, or table TEMPLATE; of the supervisor's domains
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    format: Option<String>,
    /// Once, instead of again every second
    #[arg(long)]
    no_stream: bool,
    /// Of domains without the supervisor, even if one runs
    #[arg(long, conflicts_with_all = ["format", "no_stream"])]
    standalone: bool,
    /// Names of running domains; none means all
    domains: Vec<String>,
}

/// Prints what domains use.
pub fn run(args: &StatsArgs) -> supervised::Outcome {
    if !args.standalone
        && let Some(client) = supervised::running()?
    {
        let format = Format::new(args.json, args.format.as_deref())?;
        return supervised::watch::usage(&client, &args.domains, &format, args.no_stream || args.json);
    }
    standalone(args).map(|()| ExitCode::SUCCESS)
}

fn standalone(args: &StatsArgs) -> Result<(), Box<dyn Error>> {
    let all = args.domains.is_empty();
    let names = if all { running() } else { args.domains.clone() };
    let mut rows: Vec<DomainStats> = Vec::new();
    for name in names {
        match ask(&name, &Request::Stats) {
            Ok(Reply::Stats(stats)) => rows.push(stats),
            // It may have ended since it was listed.
            Ok(_) | Err(_) if all => {}
            Ok(Reply::Refused(why)) => return Err(why.into()),
            Ok(_) => return Err("the domain answered something else".into()),
            Err(e) => return Err(e.into()),
        }
    }
    if args.json {
        for row in &rows {
            say!("{}", serde_json::to_string(row)?)?;
        }
        return Ok(());
    }
    say!("{:<24} {:>9} {:>12} {:>12} {:>12}", "NAME", "PROCESSES", "PRIVATE", "SHARED", "SAVED")?;
    for r in &rows {
        say!(
            "{:<24} {:>9} {:>12} {:>12} {:>12}",
            r.name,
            r.processes,
            bytes(r.private_bytes),
            bytes(r.shared_bytes),
            bytes(r.saved_bytes)
        )?;
    }
    Ok(())
}
