//! What a domain's limits are for its control group, which has more in it than its programs.

use doppel_abi_machine::group_limit;

use doppel_spec::{Kind, NO_PIDS_LIMIT, Resources, UNBOUNDED};

use crate::limits::cgroup;

/// The control group's limits.
pub(crate) fn limits(kind: Kind, vcpus: u32, asked: &Resources) -> cgroup::Limits {
    let memory = asked.memory_bytes.map(|bytes| match kind {
        _ if bytes == UNBOUNDED => u64::MAX,
        Kind::Para => group_limit(bytes),
        Kind::Paene => bytes.saturating_add(ATTENDANT_MEMORY),
    });
    let mut resources = asked.clone();
    if kind == Kind::Para {
        // A guest kernel keeps the limit itself (`VirtualRegisters::task_limit`); the host's bounds one that does not.
        resources.pids = resources.pids.map(|tasks| match tasks {
            NO_PIDS_LIMIT => tasks,
            _ => tasks.saturating_mul(vcpus).saturating_add(KERNEL_TASKS),
        });
    }
    let (pauses, served) = (kind == Kind::Paene, kind == Kind::Para);
    cgroup::Limits { memory, resources, pauses, served, ..cgroup::Limits::default() }
}

/// Host tasks of a guest kernel besides its programs' vCPUs: PID 1's, and address spaces kept ready for exec.
const KERNEL_TASKS: u32 = 16;
/// What an attendant may need on top of its domain's memory.
const ATTENDANT_MEMORY: u64 = 16 << 20;
