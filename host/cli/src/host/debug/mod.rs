//! `doppel debug`: the host-call policy and the gates, for tests and documents.

mod events;
mod stacks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use doppel_api::Code;
use doppel_client::Client;
use doppel_confine::service::{NETWORK, Service};
use doppel_confine::{STORAGE, host_call_table, service_call_table};
use doppel_domain::{Kernel, Reply, Request, ask, running};

use crate::options::values;
use crate::supervised;
use crate::terminal::out::{self, say};

/// A kind of service domain.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum ServiceKind {
    /// Sockets.
    Network,
    /// Files.
    Storage,
}

impl ServiceKind {
    fn of(self) -> &'static Service {
        match self {
            Self::Network => &NETWORK,
            Self::Storage => &STORAGE,
        }
    }
}

/// What to show.
#[derive(Subcommand)]
pub enum DebugCommand {
    /// The host system calls a domain can reach
    HostCalls,
    /// The host system calls a service domain can make
    ServiceCalls {
        /// Which
        #[arg(default_value = "network")]
        service: ServiceKind,
    },
    /// The filter of system calls of a service domain: an instruction a line, its eight bytes in hexadecimal
    ServiceFilter {
        /// Which
        #[arg(default_value = "network")]
        service: ServiceKind,
    },
    /// Threads of a running domain, with state, wait channel and calls in kernel and program
    Stacks {
        /// Name or id
        domain: String,
    },
    /// Events of a running domain's guest kernel
    Events(events::EventsArgs),
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
        DebugCommand::ServiceCalls { service } => {
            out::print(format_args!("{}", service_call_table(service.of())))?;
        }
        DebugCommand::ServiceFilter { service } => {
            for instruction in service.of().filter() {
                say!("{:016x}", u64::from_be_bytes(instruction.to_bytes()))?;
            }
        }
        DebugCommand::Stacks { domain } => stacks::print(domain)?,
        DebugCommand::Events(args) => return events::run(args),
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

/// What the supervisor says of its domain; none if it is one of a command of its own.
fn of_supervisor<T>(
    domain: &str,
    ask: impl FnOnce(&Client) -> doppel_client::Result<T>,
) -> Result<Option<T>, Box<dyn std::error::Error>> {
    let Some(client) = supervised::running()? else { return Ok(None) };
    match ask(&client) {
        Ok(answer) => Ok(Some(answer)),
        Err(e) if e.code() == Some(Code::DomainNotFound) && running().iter().any(|name| name == domain) => {
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}
