//! Sessions: programs the host starts beside the domain's own, each on a channel of its own (`doppel exec`).
//!
//! The host keeps the slots (`common/abi/machine`, session.rs); PID 1 serves what it asks of them ([`event`]). A session's
//! process has no parent in the domain, like guest pid 1, but the domain goes on when it ends. The slot is given back
//! when nothing refers to its [`Channel`] any more: no file, no terminal, no process.
//! Lock: the table's is innermost.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::session::session_state;
use doppel_machine::boot::BootData;
use doppel_machine::session;
use doppel_machine::sync::SpinLock;

use crate::core::events::{Kind, record};
use crate::core::part::Part;
use crate::domain::commands;
use crate::domain::first::READY;
use crate::process::signal::{SigInfo, send_group, sig};
use crate::process::task::{self, Process, Thread};
use crate::terminals::channel::{self, Channel};
use crate::terminals::{self, stdio};
use crate::{Errno, Result};

/// One session.
#[derive(Clone)]
struct Live {
    channel: Weak<Channel>,
    /// Its process, and the group it started with; 0 while there is none.
    pid: i32,
    /// It runs a command of the kernel, which is of no use without the host at the other end.
    builtin: bool,
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    live: SpinLock<BTreeMap<usize, Live>>,
    /// Those of the domain this one was cloned from.
    lost: SpinLock<Vec<Live>>,
}

/// The domain's.
pub(crate) static SESSIONS: Part<Sessions> = Part::new();

fn sessions() -> &'static Sessions {
    SESSIONS.get()
}

/// The host wants something of sessions; runs on PID 1.
pub fn event() {
    // It is told again when it is.
    if !READY.load(Ordering::SeqCst) {
        return;
    }
    for slot in session::take_wanting() {
        attend(slot);
    }
}

fn attend(slot: usize) {
    let h = session::header(slot);
    let live = || sessions().live.lock().get(&slot).cloned();
    if live().is_none() && h.state.load(Ordering::Acquire) == session_state::ASKED {
        if h.released.load(Ordering::Acquire) != 0 {
            // Who asked for it went away while the domain stood still: it must not run for nobody.
            Channel::session(slot, gone).failed(Errno::ECANCELED);
            return;
        }
        start(slot);
    }
    let Some(Live { channel, pid, builtin }) = live() else { return };
    let Some(channel) = channel.upgrade() else { return };
    let set = h.signals.swap(0, Ordering::SeqCst);
    for signo in (1..=64).filter(|n| set & (1 << (n - 1)) != 0) {
        // It may have ended meanwhile.
        let _ = send_group(pid, SigInfo::kernel(signo));
    }
    channel.resized(h.winsize.load(Ordering::Relaxed));
    if h.released.load(Ordering::Acquire) != 0 {
        hang_up(&channel, pid, builtin);
    } else {
        channel.input_came();
        channel.room_came();
    }
}

/// Starts what the host asks for.
fn start(slot: usize) {
    let channel = Arc::new(Channel::session(slot, gone));
    let data = session::request(slot);
    let builtin = data.args.flags & boot_flags::BUILTIN != 0;
    let live = Live { channel: Arc::downgrade(&channel), pid: 0, builtin };
    sessions().live.lock().insert(slot, live);
    match start_on(&channel, data) {
        Ok(pid) => {
            if let Some(live) = sessions().live.lock().get_mut(&slot) {
                live.pid = pid;
            }
        }
        Err(e) => channel.failed(e),
    }
}

fn hang_up(channel: &Channel, pid: i32, builtin: bool) {
    channel.hang_up();
    if builtin {
        // It may have ended.
        let _ = send_group(pid, SigInfo::kernel(sig::SIGKILL));
    }
}

fn start_on(channel: &Arc<Channel>, data: BootData) -> Result<i32> {
    let (flags, winsize) = (data.args.flags, data.args.winsize);
    let own = channel.clone();
    let open = move |p: &Arc<Process>| {
        let connected = flags & boot_flags::STDIN != 0;
        if flags & boot_flags::TTY != 0 {
            stdio::open_thrice(p, &terminals::open_session(p, &own, winsize, connected)?);
        } else {
            channel::open_streams(p, &own, connected);
        }
        *p.exec.lock() = Some(own);
        Ok(())
    };
    let cred = task::identity(&data);
    let own = channel.clone();
    task::start_session(cred, open, move |t| run(t, &data, &own))
}

/// The first thing the session's thread does.
fn run(t: &Arc<Thread>, data: &BootData, channel: &Channel) {
    if data.args.flags & boot_flags::BUILTIN != 0 {
        channel.started(t.process.pid);
        let code = commands::run(t, data);
        task::do_group_exit(t, code << 8);
        return;
    }
    match task::load_program(t, data) {
        Ok(()) => {
            record(Kind::ProcessSession, [0; 3]);
            channel.started(t.process.pid);
        }
        Err(e) => {
            channel.failed(e);
            let code = if e == Errno::ENOENT { 127 } else { 126 };
            task::do_group_exit(t, code << 8);
        }
    }
}

/// Nothing refers to a session's channel any more.
fn gone(slot: usize) {
    sessions().live.lock().remove(&slot);
}

/// Before anything runs in a clone: the slots are the new domain's, and its host knows of no session.
pub fn adopt() {
    let s = sessions();
    let old = core::mem::take(&mut *s.live.lock());
    for live in old.into_values() {
        if let Some(channel) = live.channel.upgrade() {
            channel.lose();
        }
        s.lost.lock().push(live);
    }
}

/// Tells the programs of sessions that stayed behind that nobody is at the other end.
pub fn hang_up_lost() {
    let lost = core::mem::take(&mut *sessions().lost.lock());
    for live in lost {
        if let Some(channel) = live.channel.upgrade() {
            hang_up(&channel, live.pid, live.builtin);
        }
    }
}
