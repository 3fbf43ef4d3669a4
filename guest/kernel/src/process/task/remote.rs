//! Work in another process' address space (process_vm_readv, /proc/PID/mem, ptrace).
//!
//! User memory is only reachable from the host process that has it mapped, so the work goes there: a worker
//! thread, which belongs to no table and has no program, runs once on a vCPU of the target's space.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::host;
use doppel_machine::sync::SpinLock;
use doppel_machine::task::{Task, UserContext};
use doppel_machine::user::{Fault, UserPtr};
use doppel_machine::xstate::XSave;

use super::{Process, Space, TASKS, Thread};
use crate::core::sched::{WaitQueue, wait_until_uninterruptible};
use crate::core::work::{self, Work};
use crate::memory::{Mm, OTHERS, Others, Prot, copy_mended, unmap_behind};
use crate::objects::net::unix::scm::{PEERS, Peers};
use crate::process::signal::ThreadSignals;
use crate::process::task::current_space;
use crate::{Errno, Result};

/// Most bytes moved by one piece of work.
const CHUNK: usize = 32 << 10;

/// Whether `me` may look into `target` (`ptrace(2)`, PTRACE_MODE_ATTACH_REALCREDS): EPERM if not.
pub fn may_access(me: &Process, target: &Process) -> Result<()> {
    const CAP_SYS_PTRACE: u32 = 19;
    let (m, t) = (me.acting_cred(), target.cred());
    // Who has rights in another user namespace, or more rights than the caller, is not the same as he.
    let same = [t.ruid, t.euid, t.suid].iter().all(|u| *u == m.ruid)
        && [t.rgid, t.egid, t.sgid].iter().all(|g| *g == m.rgid)
        && Arc::ptr_eq(&m.user, &t.user)
        && t.cap_permitted & !m.cap_permitted == 0;
    if core::ptr::eq(me, target) || same || m.capable_in(&t.user, CAP_SYS_PTRACE) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

struct Job<R> {
    result: SpinLock<Option<R>>,
    done: WaitQueue,
}

/// Runs `f` in the address space of `p` and gives its result; ESRCH if the process has ended. `f` must be short
/// and must not block.
pub fn run_in<R: Send + 'static>(
    p: &Arc<Process>,
    f: impl FnOnce() -> R + Send + Sync + 'static,
) -> Result<R> {
    let space = p.space();
    if space.id == crate::process::task::current_space().id {
        return Ok(f());
    }
    if !space.try_add_thread() {
        return Err(Errno::ESRCH);
    }
    let job = Arc::new(Job { result: SpinLock::new(None), done: WaitQueue::new() });
    let theirs = job.clone();
    start_worker(p, &space, move || {
        *theirs.result.lock() = Some(f());
        theirs.done.notify_all();
    });
    Ok(wait_until_uninterruptible(&job.done, || job.result.lock().take()))
}

/// Runs `f` on a thread of its own in `space`, which counts that thread already.
fn start_worker(p: &Arc<Process>, space: &Arc<Space>, f: impl FnOnce() + Send + Sync + 'static) {
    let worker = Thread::new(
        0,
        None,
        p.clone(),
        p.cred(),
        crate::process::namespaces::FIRST.0.clone(),
        None,
        space.clone(),
        UserContext::default(),
        XSave::initial(),
        *b"doppel-worker\0\0\0",
        ThreadSignals::default(),
    );
    *worker.start.lock() = Some(Box::new(move |_: &Arc<Thread>| f()));
    worker.make_worker();
    space.enqueue(worker);
}

/// Runs `f`, which takes longer than [`run_in`] allows, on a thread of the space that has this host pid, some time; false if there
/// is none.
pub(crate) fn run_later(host_pid: i32, f: impl FnOnce() + Send + Sync + 'static) -> bool {
    let Some(space) = super::SPACES.hosts.lock().get(&host_pid).cloned() else { return false };
    let all = TASKS.all_processes();
    let Some(p) = all.iter().find(|p| p.space().id == space.id && !p.is_zombie()) else { return false };
    let lives = space.try_add_thread();
    if lives {
        start_worker(p, &space, f);
    }
    lives
}

/// Runs `f` on a thread of its own in the space of `p`, which may wait there; false if the process is ending. May be called under
/// the lock of a wait queue.
pub(crate) fn start_in(p: &Arc<Process>, f: impl FnOnce() + Send + Sync + 'static) -> bool {
    let space = p.space();
    let lives = space.try_add_thread();
    if lives {
        start_worker(p, &space, f);
    }
    lives
}

/// See [`work::START`].
fn start_work(f: Work) -> bool {
    let Ok(init) = TASKS.process(super::init_pid()) else { return false };
    start_in(&init, f)
}

/// Reads up to `len` bytes (at most [`CHUNK`]) at `at` in `p`; shorter at an unmapped page, EFAULT if the first
/// is unmapped.
pub fn read(p: &Arc<Process>, at: u64, len: usize) -> Result<Vec<u8>> {
    let len = len.min(CHUNK);
    run_in(p, move || {
        let mut buf = alloc::vec![0; len];
        let rest = |done: usize| UserPtr(at).add(done as u64).read_some(&mut buf[done..]);
        let n = copy_mended(&current_space().mm, len, rest)?;
        buf.truncate(n);
        current_space().mm.show_original(at, &mut buf);
        Ok(buf)
    })?
}

/// As [`read`], also from pages the program itself may not read (`ptrace(2)`).
pub fn read_forced(p: &Arc<Process>, at: u64, len: usize) -> Result<Vec<u8>> {
    let len = len.min(CHUNK);
    run_in(p, move || {
        let mut buf = alloc::vec![0; len];
        let rest = |done: usize| UserPtr(at).add(done as u64).read_some(&mut buf[done..]);
        let mut done = copy_mended(&current_space().mm, len, rest).unwrap_or(0);
        while done < len {
            let rest = &mut buf[done..];
            match forced(at + done as u64, Prot::READ, |p| p.read_some(rest)) {
                Some(n) if n > 0 => done += n,
                _ => break,
            }
        }
        buf.truncate(done);
        current_space().mm.show_original(at, &mut buf);
        if done == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(buf) }
    })?
}

/// As [`write()`], also to private pages the program itself may not write: breakpoints in its text.
pub fn write_forced(p: &Arc<Process>, at: u64, bytes: Vec<u8>) -> Result<usize> {
    run_in(p, move || {
        current_space().mm.before_change(at, at.saturating_add(bytes.len() as u64))?;
        let mut done = store(at, &bytes).unwrap_or(0);
        while done < bytes.len() {
            match forced(at + done as u64, Prot::WRITE, |p| p.write_some(&bytes[done..])) {
                Some(n) if n > 0 => done += n,
                _ => break,
            }
        }
        if done == 0 && !bytes.is_empty() { Err(Errno::EFAULT) } else { Ok(done) }
    })?
}

/// Runs `f` at an address of the current space while its page has `extra` protection. Other threads of the
/// program may see that for this moment.
fn forced(
    at: u64,
    extra: Prot,
    f: impl FnOnce(UserPtr) -> core::result::Result<usize, doppel_machine::user::Fault>,
) -> Option<usize> {
    let page = at & !(crate::memory::PAGE - 1);
    let v = current_space().mm.vma(page)?;
    // Writing may not reach a file: only private pages, which become the program's own.
    if extra.contains(Prot::WRITE) && v.shared() || v.prot.contains(extra) {
        return None;
    }
    if v.shared() {
        // A guard of it would be gone afterwards.
        current_space().mm.release_guards(page, page + crate::memory::PAGE);
    }
    host::protect_user(page, crate::memory::PAGE, (v.prot | extra | Prot::READ).bits()).ok()?;
    let n = f(UserPtr(at));
    // The page was there a moment ago; if it no longer is, there is nothing to protect.
    let _ = host::protect_user(page, crate::memory::PAGE, v.prot.bits());
    n.ok()
}

/// Writes `bytes` at `at` in `p`; gives how many were written before an unwritable page.
pub fn write(p: &Arc<Process>, at: u64, bytes: Vec<u8>) -> Result<usize> {
    run_in(p, move || Ok(store(at, &bytes)?))?
}

/// Writes to memory of the current space as far as it can be written.
fn store(at: u64, bytes: &[u8]) -> core::result::Result<usize, Fault> {
    let rest = |done: usize| UserPtr(at).add(done as u64).write_some(&bytes[done..]);
    copy_mended(&current_space().mm, bytes.len(), rest)
}

/// See [`memory::object_shrunk`](crate::memory::object_shrunk).
fn object_shrunk(id: u64, len: u64) {
    let here = current_space();
    unmap_behind(&here.mm, id, len);
    let mut seen = alloc::vec![here.id];
    for p in TASKS.all_processes() {
        let space = p.space();
        if seen.contains(&space.id) || p.is_zombie() {
            continue;
        }
        seen.push(space.id);
        if space.mm.shows_shrunk(id, len) {
            // If the process has ended meanwhile, there is nothing left to unmap.
            let _ = run_in(&p, move || unmap_behind(&current_space().mm, id, len));
        }
    }
}

fn halted(mm: &Mm, f: &mut dyn FnMut()) -> Result<()> {
    let space = current_space();
    debug_assert!(core::ptr::eq(&space.mm, mm), "another space's text");
    space.halted(f)
}

fn each_thread(f: &mut dyn FnMut(&Task)) {
    let here = current_space().id;
    let threads: Vec<_> = TASKS.threads.lock().values().cloned().collect();
    threads.iter().filter(|t| t.space_id() == here).for_each(|t| f(&t.task));
}

fn descriptor(pid: i32) -> Result<i32> {
    crate::process::descriptors::pidfd::open(&TASKS.process(pid)?)
}

/// Gives memory and sockets what they ask of processes; once, at boot.
pub(super) fn offer() {
    let saved_still = || crate::process::shadow::SHADOWS.any();
    let here = |f: &mut dyn FnMut(&Mm)| f(&current_space().mm);
    OTHERS.set(Others { halted, each_thread, object_shrunk, here, saved_still });
    let groups = |pid| TASKS.process(pid).ok().map(|p| p.cred().groups.clone());
    PEERS.set(Peers { groups, descriptor });
    work::START.set(start_work);
}
