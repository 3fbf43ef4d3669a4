//! `doppel debug`: the host-call policy and the gates, for tests and documents.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use doppel_confine::host_call_table;
use doppel_domain::Kernel;

/// What to show.
#[derive(Subcommand)]
pub enum DebugCommand {
    /// The host system calls a domain can reach
    HostCalls,
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
        DebugCommand::HostCalls => print!("{}", host_call_table()),
        DebugCommand::Gate { kernel } => {
            let kernel = match kernel {
                Some(path) => Kernel::from_file(path)?,
                None => Kernel::embedded()?,
            };
            let gates = kernel.gates();
            println!(
                "{{\"syscall\": {}, \"syscall_end\": {}, \"sigreturn_end\": {}}}",
                gates.syscall, gates.syscall_end, gates.sigreturn_end
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
