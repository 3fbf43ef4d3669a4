//! Signals (`signal(7)`, `sigaction(2)`): numbers, codes, flags and frame constants of x86-64.

/// Signal numbers.
#[allow(missing_docs)]
pub mod sig {
    pub const SIGHUP: i32 = 1;
    pub const SIGINT: i32 = 2;
    pub const SIGQUIT: i32 = 3;
    pub const SIGILL: i32 = 4;
    pub const SIGTRAP: i32 = 5;
    pub const SIGABRT: i32 = 6;
    pub const SIGBUS: i32 = 7;
    pub const SIGFPE: i32 = 8;
    pub const SIGKILL: i32 = 9;
    pub const SIGUSR1: i32 = 10;
    pub const SIGSEGV: i32 = 11;
    pub const SIGUSR2: i32 = 12;
    pub const SIGPIPE: i32 = 13;
    pub const SIGALRM: i32 = 14;
    pub const SIGTERM: i32 = 15;
    pub const SIGSTKFLT: i32 = 16;
    pub const SIGCHLD: i32 = 17;
    pub const SIGCONT: i32 = 18;
    pub const SIGSTOP: i32 = 19;
    pub const SIGTSTP: i32 = 20;
    pub const SIGTTIN: i32 = 21;
    pub const SIGTTOU: i32 = 22;
    pub const SIGURG: i32 = 23;
    pub const SIGXCPU: i32 = 24;
    pub const SIGXFSZ: i32 = 25;
    pub const SIGVTALRM: i32 = 26;
    pub const SIGPROF: i32 = 27;
    pub const SIGWINCH: i32 = 28;
    pub const SIGIO: i32 = 29;
    pub const SIGPWR: i32 = 30;
    pub const SIGSYS: i32 = 31;
    pub const SIGRTMIN: i32 = 32;
    /// Highest signal number.
    pub const NSIG: i32 = 64;
}

/// `si_code` values.
#[allow(missing_docs)]
pub mod code {
    pub const SI_USER: i32 = 0;
    pub const SI_KERNEL: i32 = 0x80;
    pub const SI_QUEUE: i32 = -1;
    pub const SI_TIMER: i32 = -2;
    pub const SI_MESGQ: i32 = -3;
    pub const SI_ASYNCIO: i32 = -4;
    pub const SI_SIGIO: i32 = -5;
    pub const SI_TKILL: i32 = -6;
    pub const CLD_EXITED: i32 = 1;
    pub const CLD_KILLED: i32 = 2;
    pub const CLD_DUMPED: i32 = 3;
    pub const CLD_TRAPPED: i32 = 4;
    pub const CLD_STOPPED: i32 = 5;
    pub const CLD_CONTINUED: i32 = 6;
    pub const SEGV_MAPERR: i32 = 1;
    pub const SEGV_ACCERR: i32 = 2;
    pub const BUS_ADRERR: i32 = 2;
}

/// The default action as a handler address.
pub const SIG_DFL: u64 = 0;
/// Ignoring as a handler address.
pub const SIG_IGN: u64 = 1;

/// Bounds of sigaltstack.
#[allow(missing_docs)]
pub mod ss {
    /// Smallest alternate stack.
    pub const MINSIGSTKSZ: u64 = 2048;
}

/// Flags and marks of a signal frame (`asm/ucontext.h`, `asm/sigcontext.h`).
#[allow(missing_docs)]
pub mod frame {
    pub const UC_FP_XSTATE: u64 = 1;
    pub const UC_SIGCONTEXT_SS: u64 = 2;
    pub const UC_STRICT_RESTORE_SS: u64 = 4;
    pub const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
    pub const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
    /// Offset of `struct _fpx_sw_bytes` in the FXSAVE area.
    pub const SW_BYTES: usize = 464;
    /// Bytes below the stack pointer that leaf functions may use.
    pub const RED_ZONE: u64 = 128;
    /// Size of `siginfo_t`.
    pub const SIGINFO_SIZE: usize = 128;
}

/// Names of the standard signals, from 1 on.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The name of a signal; real-time signals are all "SIGRT".
pub fn name(signo: i32) -> &'static str {
    usize::try_from(signo - 1).ok().and_then(|i| NAMES.get(i).copied()).unwrap_or("SIGRT")
}
