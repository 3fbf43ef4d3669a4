//! The seccomp filters of a thread (seccomp.rs).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU8;

use doppel_algo::bpf::Program;
use doppel_machine::sync::SpinLock;

pub(crate) type Filters = Arc<Vec<Arc<Program>>>;

/// What a thread has installed.
#[derive(Default)]
pub struct Seccomp {
    pub(crate) mode: AtomicU8,
    /// Oldest first.
    pub(crate) filters: SpinLock<Filters>,
}
