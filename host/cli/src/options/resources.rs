//! What a domain may use: the options, filled into the interface's type and nowhere else.

use clap::Args;
use doppel_api::Resources;

use super::block_io::BlockIo;
use super::values;

/// Limits that any domain may have.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct LimitArgs {
    /// Number of CPUs, fractions allowed
    #[arg(long, value_name = "N", value_parser = values::cpus)]
    cpus: Option<f64>,
    /// Memory limit, for example 512m; 0 or unlimited: no bound
    #[arg(short, long, value_name = "SIZE", value_parser = values::memory)]
    memory: Option<u64>,
}

impl LimitArgs {
    /// What is given.
    pub fn given(&self) -> Resources {
        Resources { cpus: self.cpus, memory_bytes: self.memory, ..Resources::default() }
    }
}

/// Weights, reservations and limits that only the supervisor can carry out.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ShareArgs {
    /// Most processes and threads; 0 or -1: no bound
    #[arg(long, value_name = "N", value_parser = values::tasks, allow_negative_numbers = true)]
    pids_limit: Option<u32>,
    /// Share of the CPU when it is scarce, 1 to 10000; 100 by default
    #[arg(long, value_name = "N")]
    cpu_weight: Option<u32>,
    /// The same in Docker's measure, where 1024 is the default
    #[arg(short, long, value_name = "N", conflicts_with = "cpu_weight")]
    cpu_shares: Option<u32>,
    /// CPUs set aside
    #[arg(long, value_name = "N", value_parser = values::cpus)]
    cpu_reservation: Option<f64>,
    /// Memory set aside, for example 256m
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_reservation: Option<u64>,
    /// Memory the guest kernel should try to stay under
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_target: Option<u64>,
    #[command(flatten)]
    block_io: BlockIo,
}

impl ShareArgs {
    /// What is given, beside `limits`.
    pub fn beside(&self, limits: Resources) -> Resources {
        // Docker's 1024 is our 100.
        let shares = |s: u32| u32::try_from((u64::from(s) * 100 / 1024).clamp(1, 10_000)).ok();
        Resources {
            cpu_weight: self.cpu_weight.or_else(|| self.cpu_shares.and_then(shares)),
            cpu_reservation: self.cpu_reservation,
            memory_reservation_bytes: self.memory_reservation,
            memory_target_bytes: self.memory_target,
            pids: self.pids_limit,
            io_weight: self.block_io.weight(),
            io_devices: self.block_io.devices(),
            ..limits
        }
    }
}
