//! What a thread knows of its tracer, and a process of the threads it traces.

use alloc::sync::Weak;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

use doppel_machine::sync::SpinLock;

use crate::core::siginfo::SigInfo;
use crate::process::task::{Process, Thread};

/// Why a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A signal is about to be delivered.
    Signal,
    /// Entry of a system call.
    Enter,
    /// Exit of a system call.
    Leave,
    /// An event, or PTRACE_INTERRUPT.
    Event,
    /// Its process is stopped (job control).
    Group,
}

/// One stop of a tracee.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// Signal, with the event in the second byte: the wait status from its second byte on.
    pub code: i32,
    pub kind: Kind,
    /// What PTRACE_GETSIGINFO shows; nothing in a group stop of an attached tracee.
    pub info: Option<SigInfo>,
    /// The tracer has waited for it.
    pub reported: bool,
    /// PTRACE_LISTEN: stopped, but not for requests.
    pub listening: bool,
}

bitflags::bitflags! {
    /// `PTRACE_O_` options: what PTRACE_SETOPTIONS may ask for. Bit n asks for event n.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct Options: u32 {
        /// System call stops say SIGTRAP | 0x80.
        const SYSGOOD = 1;
        const EVENTS = 0xfe;
        /// Tracees die with their tracer.
        const EXITKILL = 0x10_0000;
    }
}

impl Options {
    /// Whether they ask for an event ([`super::event`]).
    pub(super) fn ask_for(self, which: i32) -> bool {
        self.bits() & 1 << which != 0
    }
}

/// What the tracer set up.
#[derive(Default)]
pub(crate) struct State {
    pub tracer: Weak<Process>,
    pub options: Options,
    pub seized: bool,
    pub stop: Option<Stop>,
    /// PTRACE_GETEVENTMSG.
    pub message: u64,
    /// The signal the tracer lets the tracee go on with.
    pub signal: i32,
    /// PTRACE_SETSIGINFO.
    pub replaced: Option<SigInfo>,
    /// The thread pointer the tracer set while the tracee was stopped.
    pub fs_base: Option<u64>,
}

/// What a thread knows of its tracer.
#[derive(Default)]
pub struct Traced {
    pub(crate) flags: AtomicU32,
    /// PTRACE_INTERRUPT, or the first stop of a new tracee.
    pub(crate) interrupt: AtomicBool,
    /// It was let go on while its process is stopped.
    pub(crate) past_stop: AtomicBool,
    pub(crate) state: SpinLock<State>,
}

/// The threads a process traces.
#[derive(Default)]
pub struct Tracer {
    pub(crate) tracees: SpinLock<Vec<Weak<Thread>>>,
    pub(crate) dead: SpinLock<Vec<Dead>>,
    /// Tracees of other parents that end, by thread and process group: their tracer will hear of them.
    pub(crate) ending: SpinLock<Vec<(i32, i32)>>,
    /// Who traces this process' leader, also once that has ended: a process id, 0 for nobody.
    pub leader_by: AtomicI32,
    /// Who traced this process' leader, if that has ended before other threads.
    pub(crate) of_leader: SpinLock<Option<Weak<Process>>>,
}

/// The end of a tracee that its tracer, not being its parent, has yet to hear of.
#[derive(Clone, Copy)]
pub struct Dead {
    /// Thread id.
    pub tid: i32,
    /// The number that the tracer knows it by.
    pub shown: i32,
    /// Process group, for waiting by group.
    pub pgid: i32,
    /// Real user.
    pub uid: u32,
    /// Wait status.
    pub status: i32,
}
