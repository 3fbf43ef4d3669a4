//! Events: what happened in the domain, for those who look for a fault (`doppel debug events`, docs/debugging.md).
//!
//! Key types: [`Kind`] (all there are), [`Events`] (the ring of the newest ones). Off, an event costs a load and a branch,
//! and all of them lie beside the ways of ordinary system calls. The ring's lock is the innermost of all but the
//! allocator's: it is held for a copy, and nothing is allocated under it.

use core::fmt::{self, Display, Formatter};
use core::sync::atomic::{AtomicU8, Ordering};

use doppel_abi_linux::errno::Errno;
use doppel_abi_linux::signal;
use doppel_abi_machine::events::{EventRecord, Level};
use doppel_algo::newest::{Newest, Room};
use doppel_machine::clock;
use doppel_machine::sync::SpinLock;

use crate::Result;
use crate::core::part::Part;
use crate::core::subject;
use crate::core::time::realtime_ns;

/// Events that are kept: the newest ones.
pub const KEPT: usize = 1024;
/// Bytes of an event's text; what is longer is cut.
const TEXT: usize = 24;

macro_rules! kinds {
    ($($name:ident $level:ident $kind:literal $words:literal)*) => {
        /// What can happen. In its words each `%` stands for the next argument: `%d` a number, `%x` in hexadecimal, `%S` a
        /// signal, `%e` an errno; `%s` is the text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $words] $name,)*
        }

        impl Kind {
            /// How much it matters.
            #[inline]
            pub const fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $kind,)* }
            }

            const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

kinds! {
    ProcessStart Info "process.start" "process %d starts as a copy, clone flags %x"
    ProcessSession Info "process.session" "the host started it (doppel exec)"
    ThreadStart Debug "thread.start" "thread %d starts, clone flags %x"
    ProcessExec Info "process.exec" "executes %s"
    ExecFailed Error "process.exec-failed" "%e behind the point of no return of exec: killed"
    ProcessExit Info "process.exit" "exits with %d"
    ProcessKilled Warning "process.killed" "ends by %S"
    SignalKill Warning "signal.kill" "%S kills it: code %d from process %d"
    KillSent Warning "signal.sigkill" "kills process %d"
    FaultKill Error "fault.kill" "%S kills it: address %x, instruction %x"
    CoreDumped Info "core.dumped" "left a core file"
    CoreFailed Warning "core.failed" "no core file: %e"
    MemoryRefused Warning "memory.refused" "%d bytes refused: %d in use, the limit is %d"
    KernelFull Warning "memory.kernel" "a task refused: the kernel's own memory is full"
    CpuLimit Warning "limit.cpu" "process %d is killed: RLIMIT_CPU"
    HostRefused Error "host.refused" "the host makes no process: %e"
    TasksRefused Warning "limit.tasks" "a task refused: the limit is %d (--pids-limit)"
    ProcessesRefused Warning "limit.processes" "a process refused: RLIMIT_NPROC is %d"
    FilesRefused Warning "limit.files" "a descriptor refused: RLIMIT_NOFILE is %d"
    SyscallMissing Warning "syscall.missing" "system call %d does not exist here: %s"
    PatchFailed Debug "patch.failed" "the system call %d before %x goes on trapping"
    PatchMade Debug "patch.made" "the system call %d before %x does not trap any more"
    NetworkBegins Info "network.begins" "the network service is there, epoch %d"
    NetworkLost Warning "network.lost" "the network service is another one, epoch %d: connections are reset"
    FreezeBegins Info "freeze.begins" "the host freezes the domain"
    FreezeStill Info "freeze.still" "nothing runs any more"
    FreezeFailed Warning "freeze.failed" "the domain does not come to a stop"
    FreezeEnds Info "freeze.ends" "the domain goes on"
    CloneBegins Info "clone.begins" "a clone goes on, generation %d"
}

/// One that is kept.
#[derive(Clone, Copy)]
pub struct Event {
    time_ns: u64,
    args: [u64; 3],
    text: [u8; TEXT],
    count: u32,
    pid: i32,
    tid: i32,
    cpu: u16,
    kind: Kind,
}

impl Event {
    fn new(kind: Kind, args: [u64; 3], text: &[u8]) -> Self {
        let mut kept = [0; TEXT];
        // Programs choose some of it: it is one word of printable characters.
        for (to, from) in kept.iter_mut().zip(text.iter().take_while(|b| **b != 0)) {
            *to = if from.is_ascii_graphic() { *from } else { b'?' };
        }
        let (pid, tid) = (subject::pid(), subject::tid());
        let cpu = clock::cpu();
        Self { time_ns: realtime_ns(), args, text: kept, count: 1, pid, tid, cpu, kind }
    }

    /// Whether it is the same again.
    fn is_again(&self, other: &Self) -> bool {
        self.kind == other.kind && self.tid == other.tid && self.args == other.args && self.text == other.text
    }

    /// What is said of it, as the event with this number.
    pub fn record(&self, number: u64) -> EventRecord<'static> {
        let Self { time_ns, count, pid, tid, kind, .. } = *self;
        let (count, level, cpu) = (u64::from(count), kind.level(), u32::from(self.cpu));
        EventRecord { number, time_ns, count, level, pid, tid, cpu, kind: kind.name() }
    }
}

/// In words.
impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = self.kind.words().split('%');
        f.write_str(parts.next().unwrap_or_default())?;
        let mut args = self.args.iter();
        for part in parts {
            let (how, rest) = part.split_at(1);
            let mut arg = || args.next().copied().unwrap_or(0);
            match how {
                "d" => write!(f, "{}", arg().cast_signed()),
                "x" => write!(f, "{:#x}", arg()),
                "S" => f.write_str(signal::name(arg() as i32)),
                "e" => f.write_str(Errno(arg() as u16).name()),
                _ => self
                    .text
                    .iter()
                    .take_while(|b| **b != 0)
                    .try_for_each(|b| write!(f, "{}", char::from(*b))),
            }?;
            f.write_str(rest)?;
        }
        Ok(())
    }
}

/// The domain's events.
#[derive(Default)]
pub struct Events {
    /// A [`Level`].
    level: AtomicU8,
    ring: SpinLock<Newest<Event, KEPT>>,
}

/// The domain's.
pub static EVENTS: Part<Events> = Part::new();

impl Events {
    /// Keeps those up to `level` from now on; those that are there stay. ENOMEM if there is no memory for them.
    pub fn keep(&self, level: Level) -> Result<()> {
        if level != Level::Off {
            let room = Room::new().map_err(|_| Errno::ENOMEM)?;
            // Freed when the lock is.
            let _spare = self.ring.lock().take(room);
        }
        self.level.store(level as u8, Ordering::Relaxed);
        Ok(())
    }

    /// The first event with this number or a higher one.
    pub fn get(&self, number: u64) -> Option<(u64, Event)> {
        self.ring.lock().get(number)
    }

    /// The newest ones, oldest first, for a kernel that panics: nothing if somebody holds the ring.
    pub fn newest(&self, most: u64, each: &mut dyn FnMut(u64, &Event)) {
        let Some(ring) = self.ring.try_lock() else { return };
        for number in ring.next().saturating_sub(most)..ring.next() {
            if let Some((number, event)) = ring.get(number) {
                each(number, &event);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&self, kind: Kind, args: [u64; 3], text: &[u8]) {
        let event = Event::new(kind, args, text);
        let mut ring = self.ring.lock();
        match ring.last() {
            Some(last) if last.is_again(&event) => last.count = last.count.saturating_add(1),
            _ => ring.push(event),
        }
    }
}

/// Something has happened, in the current thread.
#[inline]
pub fn record(kind: Kind, args: [u64; 3]) {
    record_text(kind, args, b"");
}

/// As [`record`], with a text of up to 24 bytes.
#[inline]
pub fn record_text(kind: Kind, args: [u64; 3], text: &[u8]) {
    let events = EVENTS.get();
    if events.level.load(Ordering::Relaxed) >= kind.level() as u8 {
        events.add(kind, args, text);
    }
}
