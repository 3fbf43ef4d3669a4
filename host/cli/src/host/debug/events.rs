//! `doppel debug events`: what has happened in a domain's guest kernel.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use doppel_abi_machine::events::{EventRecord, Level};
use doppel_api::{DebugEvent, DebugEventOptions, SetDebugEvents};
use doppel_domain::{Error, Piped};

use super::of_supervisor;
use crate::supervised::{Outcome, shown};
use crate::terminal::out::{self, say, tell};
use crate::terminal::time;

/// Most bytes that a domain may say of one event.
const RECORD_MAX: u64 = 4096;
/// Most bytes that a command without output may print.
const NOTHING: usize = 1;

/// Options of `doppel debug events`.
#[derive(Args)]
pub struct EventsArgs {
    /// Keep events up to this level from now on; `off` keeps none
    #[arg(long, value_parser = PossibleValuesParser::new(["off", "error", "warning", "info", "debug"]))]
    level: Option<String>,
    /// Go on with what comes
    #[arg(short, long)]
    follow: bool,
    /// One line of JSON an event
    #[arg(long)]
    json: bool,
    /// Name or id
    domain: String,
}

/// Sets the level, if one is given, and prints the events that are kept.
pub fn run(args: &EventsArgs) -> Outcome {
    if let Some(level) = args.level.as_deref().and_then(Level::parse) {
        set(&args.domain, level)?;
    }
    let which = DebugEventOptions { follow: args.follow };
    let printed = match of_supervisor(&args.domain, |client| client.debug_events(&args.domain, &which))? {
        Some(mut lines) => {
            let mut n = 0;
            while let Some(event) = lines.next() {
                print(args, &event?)?;
                n += 1;
                if !lines.more_is_here() {
                    out::stdout().flush()?;
                }
            }
            n
        }
        None => own(args)?,
    };
    if printed == 0 && args.level.is_none() && !args.follow {
        tell!("doppel: no events are kept; --level info has them kept from now on");
    }
    Ok(ExitCode::SUCCESS)
}

fn set(domain: &str, level: Level) -> Result<(), Box<dyn std::error::Error>> {
    let to = SetDebugEvents { level: level.into() };
    if of_supervisor(domain, |client| client.set_debug_events(domain, &to))?.is_none() {
        Piped::builtin(domain, &["event-level".into(), level.word().into()])?.output(NOTHING)?;
    }
    Ok(())
}

/// Prints those of a domain of a command of its own; how many.
fn own(args: &EventsArgs) -> Result<usize, Box<dyn std::error::Error>> {
    let argv: &[&str] = if args.follow { &["events", "-f"] } else { &["events"] };
    let argv: Vec<_> = argv.iter().map(Into::into).collect();
    let mut reader = BufReader::new(Piped::builtin(&args.domain, &argv)?);
    let mut n = 0;
    let mut record = Vec::new();
    loop {
        record.clear();
        (&mut reader).take(RECORD_MAX).read_until(0, &mut record)?;
        let Some((0, text)) = record.split_last() else { break };
        if text.is_empty() {
            continue;
        }
        let text = String::from_utf8_lossy(text);
        let (r, message) = EventRecord::parse(&text).ok_or("the domain's answer cannot be read")?;
        let event = DebugEvent {
            number: r.number,
            at: time::format(r.time_ns as f64 / 1e9),
            count: r.count,
            level: r.level.into(),
            pid: r.pid,
            tid: r.tid,
            cpu: r.cpu,
            kind: r.kind.to_owned(),
            message: message.to_owned(),
        };
        print(args, &event)?;
        n += 1;
        if reader.buffer().is_empty() {
            out::stdout().flush()?;
        }
    }
    match reader.into_inner().finish() {
        // Its end is the end of its events.
        Err(Error::Ended(_)) if args.follow => Ok(n),
        result => Ok(result.map(|()| n)?),
    }
}

/// A domain chose the words: nothing of it reaches the terminal as a control sequence.
fn print(args: &EventsArgs, e: &DebugEvent) -> Result<(), Box<dyn std::error::Error>> {
    if args.json {
        say!("{}", serde_json::to_string(e)?)?;
        return Ok(());
    }
    let times = if e.count > 1 { format!(" ({} times)", e.count) } else { String::new() };
    let level = serde_json::to_value(e.level)?;
    say!(
        "{} {:7} {}/{} cpu {} {}: {}{times}",
        e.at,
        level.as_str().unwrap_or_default(),
        e.pid,
        e.tid,
        e.cpu,
        shown(&e.kind),
        shown(&e.message)
    )?;
    Ok(())
}
