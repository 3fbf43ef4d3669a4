//! What a domain's limits are for its control group, which has more in it than its programs.

use doppel_abi_machine::group_limit;

use crate::limits::cgroup::{self, Resources};
use crate::{Kind, NO_PIDS_LIMIT, UNBOUNDED};

/// Limits as [`crate::Fleet::set_limits`] has them.
#[derive(Clone, Debug)]
pub struct NewLimits {
    /// Most memory in bytes; none leaves the control group's as it is, and the guest kernel without one.
    pub memory: Option<u64>,
    /// What it should try to stay under.
    pub memory_target: Option<u64>,
    /// CPUs; none leaves it as it is.
    pub cpus: Option<f64>,
    /// The rest.
    pub resources: Resources,
}

/// The control group's limits.
pub(crate) fn limits(
    kind: Kind,
    vcpus: u32,
    memory: Option<u64>,
    cpus: Option<f64>,
    mut resources: Resources,
) -> cgroup::Limits {
    let memory = memory.map(|bytes| match kind {
        _ if bytes == UNBOUNDED => u64::MAX,
        Kind::Para => group_limit(bytes),
        Kind::Paene => bytes.saturating_add(ATTENDANT_MEMORY),
    });
    if kind == Kind::Para {
        // A guest kernel keeps the limit itself (`VirtualRegisters::task_limit`); the host's bounds one that does not.
        resources.pids = resources.pids.map(|tasks| match tasks {
            NO_PIDS_LIMIT => tasks,
            _ => tasks.saturating_mul(vcpus).saturating_add(KERNEL_TASKS),
        });
    }
    cgroup::Limits { memory, by_default: None, cpus, resources, pauses: kind == Kind::Paene, service: false }
}

/// Host tasks of a guest kernel besides its programs' vCPUs: PID 1's, and address spaces kept ready for exec.
const KERNEL_TASKS: u32 = 16;
/// What an attendant may need on top of its domain's memory.
const ATTENDANT_MEMORY: u64 = 16 << 20;
