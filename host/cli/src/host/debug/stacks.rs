//! `doppel debug stacks`: where a domain's threads are.

use doppel_abi_machine::builtin::ThreadRecord;
use doppel_domain::Piped;

use super::of_supervisor;
use crate::supervised::shown;
use crate::terminal::out::say;

/// Most bytes that a domain may say of its threads.
const STACKS_MAX: usize = 16 << 20;

/// Prints a domain's threads: of the supervisor's domain, or of the process that runs it.
pub fn print(domain: &str) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(threads) = of_supervisor(domain, |client| client.stacks(domain))? {
        for t in threads {
            let calls: Vec<&str> = t.kernel_stack.iter().chain(&t.user_stack).map(String::as_str).collect();
            thread(t.pid, t.tid, &t.state, &t.name, &t.wait_channel, &calls)?;
        }
        return Ok(());
    }
    let answer = Piped::builtin(domain, &["stacks".into()])?.output(STACKS_MAX)?;
    for found in ThreadRecord::all(&String::from_utf8_lossy(&answer)) {
        let (record, [name, channel, calls, program]) = found.ok_or("the domain's answer cannot be read")?;
        let calls: Vec<&str> = calls.lines().chain(program.lines()).collect();
        thread(record.pid, record.tid, &record.state.to_string(), name, channel, &calls)?;
    }
    Ok(())
}

/// A domain chose the names and the rest: nothing of it reaches the terminal as a control sequence.
fn thread(pid: i32, tid: i32, state: &str, name: &str, channel: &str, calls: &[&str]) -> std::io::Result<()> {
    let channel = if channel.is_empty() { "-" } else { channel };
    say!("{pid}/{tid} {} {} {}", shown(state), shown(name), shown(channel))?;
    for call in calls {
        say!("    {}", shown(call))?;
    }
    Ok(())
}
