//! Verbs that look on: logs events stats top.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use doppel_api::{Code, DomainStats, EventOptions, ListOptions, LogOptions, Output};
use doppel_client::Client;
use serde_json::{Value, json};

use super::show::Printed;
use super::{Outcome, failed, shown, supervisor};
use crate::standalone::image::bytes;
use crate::terminal::format::Format;
use crate::terminal::out::{self, say};
use crate::terminal::time;

/// Between two looks.
const BEAT: Duration = Duration::from_secs(1);

/// Options of `doppel logs`.
#[derive(Args)]
pub struct LogsArgs {
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
    /// Only so many lines from the end, or all
    #[arg(short = 'n', long, value_name = "LINES", default_value = "all")]
    tail: String,
    /// Only from then on: RFC 3339, seconds since 1970, or how long ago, as 10m
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    since: Option<String>,
    /// Only up to then
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    until: Option<String>,
    /// Put the time before each piece
    #[arg(short, long)]
    timestamps: bool,
    /// One line of JSON a piece
    #[arg(long)]
    json: bool,
    /// Name or id
    domain: String,
}

/// Prints what a domain printed.
pub fn logs(args: &LogsArgs) -> Outcome {
    let tail = match args.tail.as_str() {
        "all" => None,
        n => Some(n.parse().map_err(|_| format!("--tail {n:?}: a number, or all"))?),
    };
    let which = LogOptions {
        follow: args.follow,
        tail,
        since: args.since.clone(),
        until: args.until.clone(),
        ..LogOptions::default()
    };
    let mut lines = match supervisor()?.logs(&args.domain, &which) {
        Ok(lines) => lines,
        Err(e) => return failed(&e),
    };
    let (mut out, mut err) = (out::stdout(), out::stderr());
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(e) => return failed(&e),
        };
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
            out.flush()?;
            continue;
        }
        let (to, data, at): (&mut dyn Write, _, _) = match &line {
            Output::Stdout { data, at } => (&mut out, data, at),
            Output::Stderr { data, at } => (&mut err, data, at),
            Output::Lost { bytes } => {
                writeln!(err, "doppel: {bytes} bytes of output were lost")?;
                continue;
            }
            Output::Started { .. } => continue,
            Output::Exit { .. } => break,
        };
        if args.timestamps {
            write!(to, "{} ", at.as_deref().unwrap_or("-"))?;
        }
        to.write_all(&STANDARD.decode(data)?)?;
        if !lines.more_is_here() {
            out.flush()?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Options of `doppel events`.
#[derive(Args)]
pub struct EventsArgs {
    /// From then on, as far as they are kept: RFC 3339, seconds since 1970, or how long ago, as 10m
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    since: Option<String>,
    /// Up to then
    #[arg(long, value_name = "TIME", value_parser = time::point)]
    until: Option<String>,
    /// Only of this domain or image
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Only some: event=KIND, domain=NAME; of several of a kind, any
    #[arg(short, long, value_name = "FILTER")]
    filter: Vec<String>,
    #[command(flatten)]
    printed: Printed,
}

/// Prints what happens.
pub fn events(args: &EventsArgs) -> Outcome {
    let which =
        EventOptions { since: args.since.clone(), until: args.until.clone(), subject: args.subject.clone() };
    let format = args.printed.get()?;
    let (mut kinds, mut names) = (Vec::new(), Vec::new());
    for filter in &args.filter {
        match filter.split_once('=') {
            // Docker's "remove" of a container is "destroy".
            Some(("event", "destroy")) => kinds.push("remove"),
            Some(("event", kind)) => kinds.push(kind),
            Some(("domain" | "container", name)) => names.push(name),
            _ => return Err(format!("--filter {filter:?}: there are event= and domain=").into()),
        }
    }
    let lines = match supervisor()?.events(&which) {
        Ok(lines) => lines,
        Err(e) => return failed(&e),
    };
    for event in lines {
        let event = match event {
            Ok(event) => event,
            Err(e) => return failed(&e),
        };
        let value = serde_json::to_value(&event)?;
        let is = |name: &&str| event.name.as_deref() == Some(*name) || event.subject.starts_with(*name);
        if !(kinds.is_empty() || value["kind"].as_str().is_some_and(|k| kinds.contains(&k)))
            || !(names.is_empty() || names.iter().any(is))
        {
            continue;
        }
        match &format {
            Format::Default => {
                let attributes = event.name.iter().map(|n| format!("name={}", shown(n)));
                let attributes =
                    attributes.chain(event.attributes.iter().map(|(k, v)| format!("{k}={}", shown(v))));
                let attributes = attributes.collect::<Vec<_>>().join(", ");
                let kind = value["kind"].as_str().unwrap_or_default();
                say!("{} {kind} {} ({attributes})", event.at, shown(&event.subject))?;
            }
            format => format.print(&[value], &[])?,
        }
        out::stdout().flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Options of `doppel top`.
#[derive(Args)]
pub struct TopArgs {
    /// Once, instead of again every second
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    printed: Printed,
    /// Name or id: its processes, once; without it, all running domains
    domain: Option<String>,
}

/// Shows the processes of a domain, or what all domains use.
pub fn top(args: &TopArgs) -> Outcome {
    let client = supervisor()?;
    let format = args.printed.get()?;
    let Some(domain) = &args.domain else {
        return usage(&client, &[], &format, args.once);
    };
    let list = match client.top(domain) {
        Ok(list) => list,
        Err(e) => return failed(&e),
    };
    let rows: Vec<Value> = list
        .iter()
        .map(|p| {
            json!({
                "UID": p.uid, "PID": p.pid, "PPID": p.ppid, "State": p.state,
                "Time": format!("{:.2}", p.cpu_seconds), "RSS": bytes(p.resident_bytes),
                "Command": shown(&p.command),
            })
        })
        .collect();
    format.print(
        &rows,
        &[
            ("UID", "UID"),
            ("PID", "PID"),
            ("PPID", "PPID"),
            ("S", "State"),
            ("TIME", "Time"),
            ("RSS", "RSS"),
            ("CMD", "Command"),
        ],
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what domains use, again every second: all that run, or those that are named.
pub fn usage(client: &Client, names: &[String], format: &Format, once: bool) -> Outcome {
    let live = !once && out::stdout().is_terminal() && matches!(format, Format::Default);
    let mut before: Vec<(DomainStats, Instant)> = Vec::new();
    loop {
        let all = names.is_empty();
        let names = match names {
            [] => match client.domains(&ListOptions::default()) {
                Ok(domains) => domains.into_iter().map(|d| d.id).collect(),
                Err(e) => return failed(&e),
            },
            names => names.to_vec(),
        };
        let mut now = Vec::new();
        for name in &names {
            match client.stats(name) {
                Ok(stats) => now.push((stats, Instant::now())),
                // It may have ended since it was listed.
                Err(e) if all && matches!(e.code(), Some(Code::DomainNotFound | Code::WrongState)) => {}
                Err(e) => return failed(&e),
            }
        }
        // A share of the CPU takes two looks.
        if before.is_empty() && !now.is_empty() {
            before = now;
            std::thread::sleep(if once { BEAT / 5 } else { BEAT });
            continue;
        }
        let rows: Vec<Value> = now.iter().map(|(stats, at)| row(stats, *at, &before)).collect();
        if live {
            // To the first line and column; what is below goes.
            out::print(format_args!("\x1b[H\x1b[J"))?;
        }
        format.print(&rows, &COLUMNS)?;
        out::stdout().flush()?;
        if once {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
        std::thread::sleep(BEAT);
    }
}

const COLUMNS: [(&str, &str); 9] = [
    ("DOMAIN ID", "ID"),
    ("NAME", "Name"),
    ("CPU %", "CPUPerc"),
    ("MEM USAGE / LIMIT", "MemUsage"),
    ("PRIVATE", "Private"),
    ("SHARED", "Shared"),
    ("NET I/O", "NetIO"),
    ("BLOCK I/O", "BlockIO"),
    ("PIDS", "PIDs"),
];

fn row(stats: &DomainStats, at: Instant, before: &[(DomainStats, Instant)]) -> Value {
    let percent = before.iter().find(|(s, _)| s.id == stats.id).map_or(0.0, |(s, then)| {
        let wall = at.duration_since(*then).as_secs_f64();
        if wall > 0.0 { (stats.cpu_seconds - s.cpu_seconds).max(0.0) / wall * 100.0 } else { 0.0 }
    });
    let memory = &stats.memory;
    let limit = memory.limit_bytes.map_or_else(|| "-".into(), bytes);
    let io = match (stats.io_read_bytes, stats.io_write_bytes) {
        (None, None) => "-".into(),
        (read, write) => format!("{} / {}", bytes(read.unwrap_or(0)), bytes(write.unwrap_or(0))),
    };
    // As Docker has it: received first.
    let net = stats
        .network
        .map_or_else(|| "-".into(), |n| format!("{} / {}", bytes(n.received.bytes), bytes(n.sent.bytes)));
    json!({
        "ID": stats.id.get(..12).unwrap_or(&stats.id),
        "Name": stats.name,
        "CPUPerc": format!("{percent:.2}%"),
        "MemUsage": format!("{} / {limit}", bytes(memory.usage_bytes)),
        "Private": bytes(memory.private_bytes),
        "Shared": bytes(memory.shared_bytes),
        "NetIO": net,
        "BlockIO": io,
        "PIDs": stats.pids,
        "CPUSeconds": stats.cpu_seconds,
        "MemoryBytes": memory.usage_bytes,
        "PeakBytes": memory.peak_bytes,
        "Network": stats.network,
        "Storage": stats.storage,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_columns() {
        let stats = DomainStats { id: "0123456789abcdef".into(), name: "web".into(), ..Default::default() };
        let begun = Instant::now();
        let mut later = stats.clone();
        later.cpu_seconds = 0.5;
        let value = row(&later, begun + BEAT, &[(stats, begun)]);
        assert_eq!(value["CPUPerc"], "50.00%");
        for (heading, field) in COLUMNS {
            assert!(!value[field].is_null(), "{heading}");
        }
    }
}
