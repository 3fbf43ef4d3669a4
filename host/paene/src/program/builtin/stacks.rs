//! `stacks`: where the host's kernel has the domain's threads, as far as it tells (`wchan`, and `stack` for the host's root
//! alone).

use std::fs;
use std::io::Write;
use std::path::Path;

use doppel_abi_machine::builtin::ThreadRecord;

use super::outcome::{About, Outcome};

pub fn run(out: &mut dyn Write) -> Outcome {
    let mut all: Vec<i32> = numbers(Path::new("/proc")).about(b"/proc")?;
    // Not this one.
    all.retain(|pid| u32::try_from(*pid) != Ok(std::process::id()));
    all.sort_unstable();
    for pid in all {
        // One that has gone meanwhile is none.
        let tasks = Path::new("/proc").join(pid.to_string()).join("task");
        for tid in numbers(&tasks).unwrap_or_default() {
            let Some(record) = record(&tasks.join(tid.to_string()), pid, tid) else { continue };
            out.write_all(&record).about(b"standard output")?;
        }
    }
    Ok(())
}

/// The numbers among the names of a directory.
fn numbers(dir: &Path) -> std::io::Result<Vec<i32>> {
    Ok(fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn record(dir: &Path, pid: i32, tid: i32) -> Option<Vec<u8>> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let stat = fs::read(dir.join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name may contain anything, parentheses and spaces too.
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let record = ThreadRecord { pid, tid, state: rest.trim_start().chars().next()? };
    let channel = read("wchan");
    let channel = if channel == "0" { "" } else { &channel };
    // The host's kernel does not tell the calls of programs.
    Some(format!("{record}{name}\0{channel}\0{}\0\0", read("stack")).into_bytes())
}
