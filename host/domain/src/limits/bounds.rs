//! Bounds of limits, and the numbers that mean none.

/// Least memory limit: below this not even the guest kernel fits.
pub const LEAST_MEMORY: u64 = 8 << 20;

/// The memory limit of a domain that wants none, nor the one that all have by default.
pub const UNBOUNDED: u64 = 0;

/// The limit on processes and threads of a domain that wants none, as if it said nothing.
pub const NO_PIDS_LIMIT: u32 = 0;
/// Most CPUs of one domain.
pub const MOST_CPUS: f64 = 256.0;
