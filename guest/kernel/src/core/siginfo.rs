//! What a signal carries, and its form in user memory.

use doppel_abi_linux::signal::frame::SIGINFO_SIZE;

use crate::process::signal::{code, sig};

/// What a signal carries (`siginfo_t`).
#[derive(Clone, Copy, Debug)]
pub struct SigInfo {
    /// Signal number, 1 to 64.
    pub signo: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_pid`, `si_uid` of the sender or the child; `si_timerid`, `si_overrun` of a timer; `si_fd`;
    /// `si_syscall` and `si_errno` (SIGSYS).
    pub pid: i32,
    /// See [`Self::pid`].
    pub uid: u32,
    /// `si_status` (SIGCHLD), `si_int`/`si_ptr` (queued value), `si_addr` (faults), `si_band` (SIGIO).
    pub value: u64,
    /// Fault details for the frame: trap number, error code, cr2.
    pub trapno: u64,
    /// See [`Self::trapno`].
    pub err: u64,
}

/// Which member of the union in `siginfo_t` is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// pid, uid, value (also timers: id, overrun, value).
    Value,
    Child,
    Fault,
    Poll,
    Sys,
}

impl SigInfo {
    /// A signal the kernel itself sends (SI_KERNEL).
    pub fn kernel(signo: i32) -> Self {
        Self { signo, code: code::SI_KERNEL, pid: 0, uid: 0, value: 0, trapno: 0, err: 0 }
    }

    /// A signal a process sends (`kill`, `sigqueue`): `code` says how.
    pub fn from_user(signo: i32, code: i32, pid: i32, uid: u32, value: u64) -> Self {
        Self { signo, code, pid, uid, value, trapno: 0, err: 0 }
    }

    fn layout(&self) -> Layout {
        if self.code == code::SI_SIGIO {
            return Layout::Poll;
        }
        if self.code <= 0 || self.code >= code::SI_KERNEL {
            return Layout::Value;
        }
        match self.signo {
            sig::SIGCHLD => Layout::Child,
            sig::SIGSEGV | sig::SIGBUS | sig::SIGILL | sig::SIGFPE | sig::SIGTRAP => Layout::Fault,
            sig::SIGSYS => Layout::Sys,
            // POLL_IN to POLL_HUP, of whichever signal F_SETSIG chose.
            _ if self.code <= 6 => Layout::Poll,
            _ => Layout::Value,
        }
    }

    /// Whether it names the process and the user that caused it.
    pub fn names_sender(&self) -> bool {
        let sent = self.code <= 0 && self.code != code::SI_TIMER && self.code != code::SI_SIGIO;
        sent || self.layout() == Layout::Child
    }

    /// The `siginfo_t` a program sees.
    pub fn to_bytes(&self) -> [u8; SIGINFO_SIZE] {
        let mut b = [0u8; SIGINFO_SIZE];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.signo.to_le_bytes());
        put(8, &self.code.to_le_bytes());
        match self.layout() {
            Layout::Value => {
                put(16, &self.pid.to_le_bytes());
                put(20, &self.uid.to_le_bytes());
                put(24, &self.value.to_le_bytes());
            }
            Layout::Child => {
                put(16, &self.pid.to_le_bytes());
                put(20, &self.uid.to_le_bytes());
                put(24, &(self.value as u32).to_le_bytes());
            }
            Layout::Fault => put(16, &self.value.to_le_bytes()),
            Layout::Sys => {
                const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
                put(4, &self.uid.to_le_bytes());
                put(16, &self.value.to_le_bytes());
                put(24, &self.pid.to_le_bytes());
                put(28, &AUDIT_ARCH_X86_64.to_le_bytes());
            }
            Layout::Poll => {
                put(16, &self.value.to_le_bytes());
                put(24, &self.pid.to_le_bytes());
            }
        }
        b
    }

    /// The signal a program described in a `siginfo_t` (rt_sigqueueinfo): only the value form can be sent.
    pub fn from_bytes(signo: i32, b: &[u8; SIGINFO_SIZE]) -> Self {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let value = u64::from(word(24)) | u64::from(word(28)) << 32;
        Self::from_user(signo, word(8).cast_signed(), word(16).cast_signed(), word(20), value)
    }
}
