//! `processes`: the domain's processes, as docs/sessions.md describes them.

use std::fs;
use std::io::Write;
use std::path::Path;

use doppel_abi_machine::builtin::ProcessRecord;

use super::outcome::{About, Outcome};

/// Nanoseconds of a tick (USER_HZ).
const TICK: u64 = 10_000_000;
const PAGE: u64 = 4096;

pub fn run(out: &mut dyn Write) -> Outcome {
    let uptime = fs::read_to_string("/proc/uptime").about(b"/proc/uptime")?;
    let seconds: f64 = uptime.split(' ').next().and_then(|t| t.parse().ok()).unwrap_or(0.0);
    let now = (seconds * 1e9) as u64;
    let mut all: Vec<u32> = fs::read_dir("/proc")
        .about(b"/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        // Not this one.
        .filter(|pid| *pid != std::process::id())
        .collect();
    all.sort_unstable();
    for pid in all {
        // One that has gone meanwhile is none.
        let Some(record) = record(pid, now) else { continue };
        out.write_all(&record).about(b"standard output")?;
    }
    Ok(())
}

fn record(pid: u32, now: u64) -> Option<Vec<u8>> {
    let dir = format!("/proc/{pid}");
    let read = |name: &str| fs::read(Path::new(&dir).join(name)).ok();
    let stat = String::from_utf8_lossy(&read("stat")?).into_owned();
    let status = String::from_utf8_lossy(&read("status")?).into_owned();
    let id = |name: &str| status.lines().find_map(|l| l.strip_prefix(name))?.split_whitespace().nth(1);
    let (uid, gid) = (id("Uid:")?, id("Gid:")?);
    // The name may contain anything, parentheses and spaces too.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Numbered as in proc(5), where the state is the third.
    let field = |n: usize| fields.get(n - 3).copied();
    let number = |n: usize| field(n)?.parse::<u64>().ok();
    let cpu = (number(14)? + number(15)?) * TICK;
    let age = now.saturating_sub(number(22)? * TICK);
    let record = ProcessRecord {
        pid: i32::try_from(pid).ok()?,
        ppid: field(4)?.parse().ok()?,
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        state: field(3)?.chars().next()?,
        threads: number(20)?,
        cpu_ns: cpu,
        age_ns: age,
        resident: number(24)? * PAGE,
    };
    let head = record.to_string();
    let mut command = read("cmdline").unwrap_or_default();
    while command.last() == Some(&0) {
        command.pop();
    }
    command.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    if command.is_empty() {
        command = format!("[{name}]").into_bytes();
    }
    Some([head.as_bytes(), &command, b"\0"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_has_a_record() {
        let text = String::from_utf8(record(std::process::id(), u64::MAX).unwrap()).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(words[0], std::process::id().to_string());
        assert!(words.len() > 9 && text.ends_with('\0'), "{text}");
        assert!(words[8].parse::<u64>().unwrap() > 0, "resident memory");
    }
}
