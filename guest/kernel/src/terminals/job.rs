//! Controlling terminals and job control.

use crate::process::task::ControllingTerminal;
use crate::process::task::TASKS;
use alloc::sync::{Arc, Weak};
use core::any::Any;

use super::Tty;
use super::terminal::{Control, Kind};
use crate::core::sched::wait_until_uninterruptible;
use crate::process::namespaces::numbers;
use crate::process::signal::{self, SigInfo, pgrp_orphaned, send_group, send_process, sig};
use crate::process::task::{Process, Session, current};
use crate::{Errno, Result};

pub(super) const CAP_SYS_ADMIN: u32 = 21;

/// What a session whose terminal was hung up still has of it: the group that was in the foreground, which gets
/// SIGHUP when the leader exits.
struct FormerForeground(i32);

fn terminal_of(session: &Session) -> Option<Arc<Tty>> {
    session.tty.lock().clone().and_then(|t| (t as Arc<dyn Any + Send + Sync>).downcast::<Tty>().ok())
}

/// The controlling terminal of the current process.
pub fn current_tty() -> Option<Arc<Tty>> {
    terminal_of(&current().process.session())
}

/// Device number and foreground group of a session's terminal for /proc/PID/stat: (0, -1) if it has none.
pub fn controlling_numbers(session: &Arc<Session>) -> (u64, i32) {
    let Some(tty) = terminal_of(session) else { return (0, -1) };
    let (major, minor) = tty.device();
    let pgrp = tty.control.lock().pgrp;
    (u64::from(major) << 8 | u64::from(minor), pgrp)
}

/// Whether `tty` is the controlling terminal of `p`.
pub(super) fn controls(tty: &Arc<Tty>, p: &Process) -> bool {
    terminal_of(&p.session()).is_some_and(|t| Arc::ptr_eq(&t, tty))
}

fn is_leader(p: &Process) -> bool {
    p.session().sid == p.pid
}

/// Makes `tty` the controlling terminal of `p`'s session.
pub(super) fn assign(tty: &Arc<Tty>, p: &Process) {
    let session = p.session();
    *tty.control.lock() = Control { session: Arc::downgrade(&session), pgrp: p.pgid() };
    *session.tty.lock() = Some(tty.clone());
}

/// An open without O_NOCTTY by a session leader without a terminal makes a free terminal its own.
pub(super) fn assign_if_free(tty: &Arc<Tty>, p: &Process) {
    if is_leader(p) && terminal_of(&p.session()).is_none() && tty.session().is_none() {
        assign(tty, p);
    }
}

/// TIOCSCTTY.
pub(super) fn take(tty: &Arc<Tty>, steal: bool) -> Result<()> {
    let p = &current().process;
    let session = p.session();
    let owner = tty.session();
    if is_leader(p) && owner.as_ref().is_some_and(|o| Arc::ptr_eq(o, &session)) {
        return Ok(());
    }
    if !is_leader(p) || terminal_of(&session).is_some() {
        return Err(Errno::EPERM);
    }
    if let Some(owner) = owner {
        if !steal || !p.acting_cred().capable(CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        forget(&owner);
    }
    assign(tty, p);
    Ok(())
}

fn forget(session: &Session) {
    let old = session.tty.lock().take();
    drop(old);
}

/// TIOCNOTTY: a session leader gives up the terminal for its whole session.
pub(super) fn give_up(tty: &Arc<Tty>) -> Result<()> {
    let p = &current().process;
    if !controls(tty, p) {
        return Err(Errno::ENOTTY);
    }
    if !is_leader(p) {
        // Leaving a terminal that the rest of the session keeps is what setsid is for.
        return Err(Errno::EPERM);
    }
    tty.signal_foreground(sig::SIGHUP);
    tty.signal_foreground(sig::SIGCONT);
    *tty.control.lock() = Control::default();
    forget(&p.session());
    Ok(())
}

/// The terminal was hung up: its session loses it, the leader gets SIGHUP and SIGCONT.
pub(super) fn lose_terminal(tty: &Arc<Tty>) {
    let (session, pgrp) = {
        let mut c = tty.control.lock();
        (core::mem::replace(&mut c.session, Weak::new()).upgrade(), core::mem::take(&mut c.pgrp))
    };
    let Some(session) = session else { return };
    let former: Option<Arc<dyn ControllingTerminal>> = match pgrp {
        0 => None,
        g => Some(Arc::new(FormerForeground(g))),
    };
    let old = core::mem::replace(&mut *session.tty.lock(), former);
    drop(old);
    if let Ok(leader) = TASKS.process(session.sid) {
        for signo in [sig::SIGHUP, sig::SIGCONT] {
            // A leader that is ending needs no signal.
            let _ = send_process(&leader, SigInfo::kernel(signo));
        }
    }
}

impl ControllingTerminal for FormerForeground {
    fn leader_exits(&self) {
        for signo in [sig::SIGHUP, sig::SIGCONT] {
            // The group may have ended meanwhile.
            let _ = send_group(self.0, SigInfo::kernel(signo));
        }
    }
}

impl ControllingTerminal for Tty {
    fn leader_exits(&self) {
        // The domain may end now; what was written must leave first.
        wait_until_uninterruptible(&self.slave_wait, || self.drained().then_some(()));
        self.signal_foreground(sig::SIGHUP);
        *self.control.lock() = Control::default();
    }
}

/// Lets only the foreground group go on: others get `signo` (SIGTTIN for reads, SIGTTOU for writes and
/// changes) and the call restarts once they continue.
pub(super) fn check(tty: &Arc<Tty>, signo: i32) -> Result<()> {
    let t = current();
    let p = &t.process;
    if !controls(tty, p) {
        return Ok(());
    }
    let foreground = tty.control.lock().pgrp;
    let mine = p.pgid();
    if foreground == 0 || foreground == mine {
        return Ok(());
    }
    if signal::blocked_or_ignored(&t, signo) {
        return if signo == sig::SIGTTIN { Err(Errno::EIO) } else { Ok(()) };
    }
    if pgrp_orphaned(mine, 0) {
        return Err(Errno::EIO);
    }
    send_group(mine, SigInfo::kernel(signo))?;
    Err(Errno::ERESTARTSYS)
}

/// The foreground group (TIOCGPGRP): the master side may always ask.
pub(super) fn foreground(tty: &Arc<Tty>, master: bool) -> Result<i32> {
    if !master && !controls(tty, &current().process) {
        return Err(Errno::ENOTTY);
    }
    Ok(numbers::shown(tty.control.lock().pgrp))
}

/// TIOCSPGRP.
pub(super) fn set_foreground(tty: &Arc<Tty>, pgrp: i32) -> Result<()> {
    let p = &current().process;
    if !controls(tty, p) {
        return Err(Errno::ENOTTY);
    }
    check(tty, sig::SIGTTOU)?;
    if pgrp < 0 {
        return Err(Errno::EINVAL);
    }
    let pgrp = numbers::kernel(pgrp)?;
    let sid = p.session().sid;
    let member = TASKS.all_processes().into_iter().find(|q| q.pgid() == pgrp);
    if member.ok_or(Errno::ESRCH)?.session().sid != sid {
        return Err(Errno::EPERM);
    }
    tty.control.lock().pgrp = pgrp;
    Ok(())
}

/// TIOCGSID.
pub(super) fn session_id(tty: &Arc<Tty>, master: bool) -> Result<i32> {
    if !master && !controls(tty, &current().process) {
        return Err(Errno::ENOTTY);
    }
    tty.session().map(|s| numbers::shown(s.sid)).ok_or(Errno::ENOTTY)
}

/// Whether an exclusive terminal may be opened all the same.
pub(super) fn may_open(tty: &Tty) -> Result<()> {
    let s = tty.state.lock();
    if s.hung_up || (s.locked && tty.kind != Kind::Console) {
        return Err(Errno::EIO);
    }
    if s.exclusive && !current().cred().capable(CAP_SYS_ADMIN) {
        return Err(Errno::EBUSY);
    }
    Ok(())
}
