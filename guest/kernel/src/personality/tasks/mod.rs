//! System calls on threads and processes.

pub mod clone;
pub mod cred;
pub mod exec;
pub mod exit;
pub mod ids;
pub mod limits;
pub mod namespaces;
pub mod prctl;
pub mod ptrace;
pub mod refused;
pub mod sched;
pub mod seccomp;
pub mod sys_info;
pub mod wait;
