//! Signal-driven input and output: O_ASYNC, F_SETOWN, F_SETSIG (`fcntl(2)`).
//!
//! Key types: [`Sigio`], what an open file knows of it; [`Async`], the open file. While O_ASYNC is set (for sockets as long as there is an
//! owner, who also gets SIGURG) its [`Sender`] is registered on the file's wait queues and sends the signal from
//! the wake-up itself.
//! Lock order: the file's state → its wait queue → `Sender::to` → signal queues. [`Sigio`]'s table is changed with
//! none of them held.

use crate::core::subject::{kernel_pid, shown_pid, subject};
use alloc::sync::Arc;

use doppel_machine::sync::SpinLock;

use crate::core::hook::Hook;
use crate::core::sched::{PollEvents, PollTable, Wake};
use crate::process::signal::SigInfo;
use crate::{Errno, Result};
use doppel_abi_linux::signal::{code, sig};

/// The kernel's number for one that the caller gives.
fn named(n: i32) -> Result<i32> {
    kernel_pid(n).ok_or(Errno::ESRCH)
}

/// Whom F_SETOWN named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Nobody.
    #[default]
    None,
    /// One thread (F_OWNER_TID).
    Thread(i32),
    /// A process.
    Process(i32),
    /// A process group.
    Group(i32),
}

impl Owner {
    /// From F_SETOWN's argument: a process, or minus a process group.
    pub fn from_number(who: i32) -> Result<Self> {
        match who {
            0 => Ok(Self::None),
            i32::MIN => Err(Errno::EINVAL),
            n if n < 0 => Self::Group(named(-n)?).existing(),
            n => Self::Process(named(n)?).existing(),
        }
    }

    /// From F_SETOWN_EX's type and id.
    pub fn from_pair([kind, id]: [i32; 2]) -> Result<Self> {
        match (kind, id) {
            (0..=2, 0) => Ok(Self::None),
            (0, _) => Self::Thread(named(id)?).existing(),
            (1, _) => Self::Process(named(id)?).existing(),
            (2, _) => Self::Group(named(id)?).existing(),
            _ => Err(Errno::EINVAL),
        }
    }

    /// F_GETOWN_EX's type and id.
    pub fn pair(self) -> [i32; 2] {
        match self {
            Self::None => [0, 0],
            Self::Thread(n) => [0, shown_pid(n)],
            Self::Process(n) => [1, shown_pid(n)],
            Self::Group(n) => [2, shown_pid(n)],
        }
    }

    /// F_GETOWN's number.
    pub fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Thread(n) | Self::Process(n) => shown_pid(n),
            Self::Group(n) => -shown_pid(n),
        }
    }

    fn existing(self) -> Result<Self> {
        if (OWNERS.get().exist)(self) { Ok(self) } else { Err(Errno::ESRCH) }
    }
}

/// What is asked of the owners.
#[derive(Clone, Copy)]
pub struct Owners {
    /// Whether there is one.
    pub exist: fn(Owner) -> bool,
    /// Sends a signal to those that somebody with this real and effective user may signal.
    pub send: fn(Owner, by: [u32; 2], SigInfo),
}

/// Set by the layer of processes.
pub static OWNERS: Hook<Owners> = Hook::new();

/// Who is told, and how.
#[derive(Clone, Copy, Default)]
struct To {
    owner: Owner,
    /// Identity of who named the owner: it must be allowed to signal it.
    ruid: u32,
    euid: u32,
    /// F_SETSIG: 0 is SIGIO without details.
    signal: i32,
    /// O_ASYNC is set, by this descriptor.
    fd: Option<i32>,
}

/// Sends the signals of one open file.
#[derive(Default)]
struct Sender {
    to: SpinLock<To>,
    reads: bool,
    writes: bool,
}

impl Wake for Sender {
    fn wake(&self, events: PollEvents) -> bool {
        let to = *self.to.lock();
        if events.contains(PollEvents::PRI) {
            to.send(SigInfo::kernel(sig::SIGURG));
        }
        let Some(fd) = to.fd else { return false };
        const POLL_IN: i32 = 1;
        const POLL_OUT: i32 = 2;
        let read = events.is_empty() || events.intersects(PollEvents::IN | PollEvents::HUP);
        let (how, band) = if self.reads && read {
            (POLL_IN, PollEvents::READABLE)
        } else if self.writes && events.intersects(PollEvents::OUT | PollEvents::ERR) {
            (POLL_OUT, PollEvents::WRITABLE | PollEvents::WRBAND)
        } else {
            return false;
        };
        to.tell(fd, how, band);
        false
    }
}

impl To {
    /// The owner's signal, with details if it has been chosen: the descriptor, what it is about, and the events.
    fn tell(&self, fd: i32, how: i32, band: PollEvents) {
        if self.signal == 0 {
            return self.send(SigInfo::kernel(sig::SIGIO));
        }
        // Signals whose code says something else of their own get a neutral one.
        let own = matches!(
            self.signal,
            sig::SIGILL
                | sig::SIGFPE
                | sig::SIGSEGV
                | sig::SIGBUS
                | sig::SIGTRAP
                | sig::SIGCHLD
                | sig::SIGSYS
        );
        let how = if own { code::SI_SIGIO } else { how };
        self.send(SigInfo::from_user(self.signal, how, fd, 0, band.bits().into()));
    }

    /// To the owner. Nobody can be told of a failure.
    fn send(&self, info: SigInfo) {
        (OWNERS.get().send)(self.owner, [self.ruid, self.euid], info);
    }
}

/// An open file that can signal its owner.
pub trait Async {
    /// Whether it was opened for reading, and for writing.
    fn directions(&self) -> (bool, bool);

    /// Whether it may have urgent data.
    fn urgent(&self) -> bool;

    /// Registers on the queues that are woken when it becomes ready.
    fn register(&self, table: &mut PollTable);
}

/// What an open file knows of its asynchronous owner.
#[derive(Default)]
pub struct Sigio {
    hook: SpinLock<Option<Arc<Sender>>>,
    table: SpinLock<Option<PollTable>>,
}

impl Sigio {
    /// The owner.
    pub fn owner(&self) -> Owner {
        self.to().owner
    }

    /// F_GETSIG.
    pub fn signal(&self) -> i32 {
        self.to().signal
    }

    fn to(&self) -> To {
        self.hook.lock().as_ref().map_or_else(To::default, |h| *h.to.lock())
    }

    fn change(&self, file: &dyn Async, f: impl FnOnce(&mut To)) {
        let hook = self
            .hook
            .lock()
            .get_or_insert_with(|| {
                let (reads, writes) = file.directions();
                Arc::new(Sender { reads, writes, ..Sender::default() })
            })
            .clone();
        let to = {
            let mut to = hook.to.lock();
            f(&mut to);
            *to
        };
        let urgent = to.owner != Owner::None && file.urgent();
        let new = (to.fd.is_some() || urgent).then(|| {
            let mut table = PollTable::new(hook);
            file.register(&mut table);
            table
        });
        let old = core::mem::replace(&mut *self.table.lock(), new);
        drop(old);
    }

    /// F_SETOWN and its relatives.
    pub fn set_owner(&self, file: &dyn Async, owner: Owner) {
        let c = subject().cred();
        self.change(file, |to| *to = To { owner, ruid: c.ruid, euid: c.euid, ..*to });
    }

    /// The current process is the owner, if there is none yet.
    pub fn own(&self, file: &dyn Async) {
        if self.owner() == Owner::None {
            self.set_owner(file, Owner::Process(crate::core::subject::pid()));
        }
    }

    /// Signals the owner of a message about what descriptor `fd` stands for (directory notification).
    pub fn tell_message(&self, fd: i32) {
        const POLL_MSG: i32 = 3;
        self.to().tell(fd, POLL_MSG, PollEvents::READABLE | PollEvents::MSG);
    }

    /// F_SETSIG.
    pub fn set_signal(&self, file: &dyn Async, signal: i32) {
        self.change(file, |to| to.signal = signal);
    }

    /// O_ASYNC has been set by descriptor `fd`, or cleared.
    pub fn set_async(&self, file: &dyn Async, fd: Option<i32>) {
        self.change(file, |to| to.fd = fd);
    }

    /// The last descriptor is gone.
    pub fn closed(&self) {
        let table = self.table.lock().take();
        drop(table);
    }
}
