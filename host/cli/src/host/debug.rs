//! `doppel debug`: the host-call policy and the gates, for tests and documents.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use doppel_abi_machine::builtin::ThreadRecord;
use doppel_api::Code;
use doppel_confine::{host_call_table, service, service_call_table};
use doppel_domain::{Kernel, Piped, Reply, Request, ask, running};

use crate::options::values;
use crate::supervised;
use crate::supervised::shown;
use crate::terminal::out::{self, say};

/// What to show.
#[derive(Subcommand)]
pub enum DebugCommand {
    /// The host system calls a domain can reach
    HostCalls,
    /// The host system calls a service domain can make
    ServiceCalls,
    /// The filter of system calls of a service domain: an instruction a line, its eight bytes in hexadecimal
    ServiceFilter,
    /// Threads of a running domain, with state, wait channel and calls in the kernel
    Stacks {
        /// Name or id
        domain: String,
    },
    /// Change the memory that programs of a stand-alone domain may have
    Memory {
        /// Name of the running domain
        domain: String,
        /// Most memory
        #[arg(long, value_name = "SIZE", value_parser = values::size)]
        limit: Option<u64>,
        /// The balloon's target
        #[arg(long, value_name = "SIZE", value_parser = values::size)]
        target: Option<u64>,
    },
    /// Addresses of the guest kernel's gates, as JSON
    Gate {
        /// Guest kernel ELF to look at instead of the built-in one
        #[arg(long, value_name = "FILE")]
        kernel: Option<PathBuf>,
    },
}

/// Prints it.
pub fn run(command: &DebugCommand) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        DebugCommand::HostCalls => out::print(format_args!("{}", host_call_table()))?,
        DebugCommand::ServiceCalls => out::print(format_args!("{}", service_call_table()))?,
        DebugCommand::ServiceFilter => {
            for instruction in service::filter() {
                say!("{:016x}", u64::from_be_bytes(instruction.to_bytes()))?;
            }
        }
        DebugCommand::Stacks { domain } => stacks(domain)?,
        DebugCommand::Memory { domain, limit, target } => {
            let (limit, target) = (*limit, *target);
            if let Reply::Refused(why) = ask(domain, &Request::Memory { limit, target })? {
                return Err(why.into());
            }
        }
        DebugCommand::Gate { kernel } => {
            let kernel = match kernel {
                Some(path) => Kernel::from_file(path)?,
                None => Kernel::embedded()?,
            };
            let gates = kernel.gates();
            say!(
                "{{\"syscall\": {}, \"syscall_end\": {}, \"sigreturn_end\": {}}}",
                gates.syscall,
                gates.syscall_end,
                gates.sigreturn_end
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Most bytes that a domain may say of its threads.
const STACKS_MAX: usize = 16 << 20;

/// Prints a domain's threads: of the supervisor's domain, or of the process that runs it.
fn stacks(domain: &str) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(client) = supervised::running()? {
        match client.stacks(domain) {
            Ok(threads) => {
                for t in threads {
                    let calls: Vec<&str> = t.kernel_stack.iter().map(String::as_str).collect();
                    thread(t.pid, t.tid, &t.state, &t.name, &t.wait_channel, &calls)?;
                }
                return Ok(());
            }
            // It may be one of a command of its own.
            Err(e)
                if e.code() == Some(Code::DomainNotFound) && running().iter().any(|name| name == domain) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let answer = Piped::builtin(domain, &["stacks".into()])?.output(STACKS_MAX)?;
    for found in ThreadRecord::all(&String::from_utf8_lossy(&answer)) {
        let (record, [name, channel, calls]) = found.ok_or("the domain's answer cannot be read")?;
        let calls: Vec<&str> = calls.lines().collect();
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
