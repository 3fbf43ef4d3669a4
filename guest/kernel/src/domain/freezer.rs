//! The Freezer: stops a domain at a moment when nothing runs, and goes on, here or in a clone (docs/design.md §8).
//!
//! Freezing: [`STANDSTILL`] keeps every vCPU from taking up a thread; those that run are kicked, give up
//! their vCPU at the border to their program, and stay in the run queue. Blocked threads are left where they are:
//! their kernel stacks lie in the arena and wake up in the clone as if nothing had happened, so no call is
//! interrupted. When all vCPUs sleep no lock is held, and PID 1 tells the host, which saves the memory.
//!
//! A clone boots the same kernel on a copy of the arena: [`Freezer::adopt`] and [`Freezer::resume`] give it a new
//! identity (the generation protocol, docs/clone-correctness.md) before the first of its threads runs.

use crate::core::random;
use crate::memory::commit::COMMIT;
use crate::memory::swap::REGION;
use crate::objects::lookup::open;
use crate::objects::pages;
use crate::process::task::SPACES;
use crate::process::task::SPARES;
use crate::process::task::TASKS;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use doppel_abi_machine::{LOG_ON, LOG_REFUSED, NEVER_DUE, event, resume_flags, state};
use doppel_machine::sync::SpinLock;
use doppel_machine::{boot, host};

use crate::core::events::{Kind, record};
use crate::core::kernel;
use crate::core::part::Part;
use crate::core::sched::STANDSTILL;
use crate::core::sched::{WaitQueue, settle, wait_until_uninterruptible};
use crate::domain::{sessions, trim};
use crate::objects::rootfs::{self, Going};
use crate::objects::storage;
use crate::objects::vfs;
use crate::process::shadow::LOOK_AGAIN_NS;
use crate::process::shadow::SHADOWS;
use crate::process::task;
use crate::process::task::Space;
use crate::{Errno, Result, kernel};

/// How long the vCPUs may take to stop, in nanoseconds. Only kernel code that does not end could take longer.
const PATIENCE_NS: u64 = 5_000_000_000;

/// State of the freezer.
#[derive(Default)]
pub struct Freezer {
    /// The host waits for the domain to stand still.
    wanted: AtomicBool,
    /// Bumped whenever the domain goes on, in the original and in clones.
    thaws: AtomicU64,
    /// Woken then, and when the host refuses a request.
    queue: Arc<WaitQueue>,
    /// Arguments of the clone, in the clone.
    args: SpinLock<Vec<Vec<u8>>>,
}

/// The domain's.
pub static FREEZER: Part<Freezer> = Part::new();

/// All address spaces, those that are just being started included.
fn all_spaces() -> Vec<Arc<Space>> {
    let mut all: Vec<Arc<Space>> = SPACES.hosts.lock().values().cloned().collect();
    let threads: Vec<_> = TASKS.threads.lock().values().cloned().collect();
    all.extend(threads.iter().map(|t| t.space()));
    all.extend(SPARES.all());
    all.sort_unstable_by_key(|s| s.id);
    all.dedup_by_key(|s| s.id);
    all
}

/// Has every space notice when a program writes to the page file through mappings that are there. All stands still.
fn guard_all() {
    let v = boot::vregs();
    let spaces: Vec<_> = all_spaces().into_iter().filter(|s| s.mm.may_write_pages()).collect();
    for s in &spaces {
        s.to_guard.store(true, Ordering::SeqCst);
    }
    settle(&v.event_seq, LOOK_AGAIN_NS, u64::MAX, |_| {
        for s in spaces.iter().filter(|s| s.to_guard.load(Ordering::SeqCst)) {
            // None to be roused: one is on its way already, but may have looked before; or it has no vCPU that could.
            if !s.rouse_one() && !s.has_vcpus() {
                s.to_guard.store(false, Ordering::SeqCst);
                s.mm.note_mapped();
            }
        }
        let done = |s: &Arc<Space>| !s.to_guard.load(Ordering::SeqCst) && s.stands_still();
        let ends = v.pending.load(Ordering::SeqCst) & event::SHUTDOWN != 0;
        (spaces.iter().all(done) || ends).then_some(true)
    });
}

/// `VirtualRegisters::next_due` while all stands still.
fn next_due() -> u64 {
    let threads = all_spaces().iter().filter_map(|s| s.due()).min();
    // What has been due for long is not taken for what was never said.
    threads.into_iter().chain(kernel().timekeeper.first()).min().map_or(NEVER_DUE, |due| due.max(1))
}

/// Writes a new `/etc/machine-id` (`machine-id(5)`) if there is one; an empty one is filled by who needs it.
fn new_machine_id() -> Result<()> {
    const DIGITS: usize = 32;
    let file = match open::open_kernel(b"/etc/machine-id") {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut text = [0; DIGITS];
    if file.ops().read(&file, &mut vfs::Output::kernel(&mut text), 0)? < DIGITS {
        return Ok(());
    }
    let mut random = [0; DIGITS / 2];
    random::fill(&mut random);
    for (pair, byte) in text.chunks_exact_mut(2).zip(random) {
        for (digit, value) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = b"0123456789abcdef"[usize::from(value)];
        }
    }
    file.ops().write(&file, &mut vfs::Input::kernel(&text), 0).map(drop)
}

impl Freezer {
    /// Woken when the domain goes on after a freeze.
    pub fn queue(&self) -> &Arc<WaitQueue> {
        &self.queue
    }

    /// What the clone was given with `--arg`.
    pub fn args(&self) -> Vec<Vec<u8>> {
        self.args.lock().clone()
    }

    /// Whether the host waits for the domain to stand still, by these events too. Who has had no patience has it go on ([`event::THAW`]) without having seen it stand still, and may have said
    /// so before the domain has had time to hear anything: it must not stand still for nobody then. Runs on PID 1.
    pub fn hear(&self, events: u64) -> bool {
        if events & event::FREEZE != 0 {
            self.wanted.store(true, Ordering::SeqCst);
        }
        if events & event::THAW != 0 && self.wanted.swap(false, Ordering::SeqCst) {
            self.failed();
        }
        let wanted = self.wanted.load(Ordering::SeqCst);
        if !wanted && events & (event::THAW | event::KERNEL) != 0 {
            // What was made ready is for nothing, or may be, if it is ready now.
            rootfs::layer_goes_on(Going::On);
        }
        wanted
    }

    /// Tells the host that the domain does not stand still.
    fn failed(&self) {
        record(Kind::FreezeFailed, [0; 3]);
        // Programs that have asked are told by the host.
        boot::vregs().stop_failures.fetch_add(1, Ordering::SeqCst);
        host::ring_doorbell();
    }

    /// Stops everything, lets the host have the memory, goes on. Runs on PID 1.
    pub fn freeze(&self) {
        record(Kind::FreezeBegins, [0; 3]);
        let takes_memory = rootfs::takes_memory();
        if takes_memory {
            trim::before_freeze();
        }
        // Before anything stops: whoever is just writing ends.
        let paused = rootfs::pause_layer().is_ok() && storage::freeze::pause();
        STANDSTILL.ask(true);
        let v = boot::vregs();
        // A program that ended at the last moment has the last word.
        let say = |from, to| v.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let stopped = paused && self.stop_all() && storage::freeze::write_still() && rootfs::is_as_wanted();
        if stopped {
            record(Kind::FreezeStill, [0; 3]);
            rootfs::write_layer();
            pages::tell_host(true);
            if takes_memory {
                trim::when_still();
            }
            v.next_due.store(next_due(), Ordering::SeqCst);
        }
        if stopped && say(state::RUNNING, state::FROZEN) {
            host::ring_doorbell();
            loop {
                let seen = v.event_seq.load(Ordering::SeqCst);
                let asked = event::SHARE | event::SHADOW;
                let asked = v.pending.fetch_and(!asked, Ordering::SeqCst) & asked;
                if asked & event::SHARE != 0 {
                    self.share();
                }
                if asked & event::SHADOW != 0 {
                    SHADOWS.cast();
                }
                if asked != 0 {
                    continue;
                }
                if v.pending.load(Ordering::SeqCst) & (event::THAW | event::SHUTDOWN) != 0 {
                    break;
                }
                host::futex_wait(&v.event_seq, seen, None);
            }
            v.pending.fetch_and(!event::THAW, Ordering::SeqCst);
            say(state::FROZEN, state::RUNNING);
            self.thaws.fetch_add(1, Ordering::SeqCst);
            record(Kind::FreezeEnds, [0; 3]);
        } else {
            self.failed();
        }
        pages::tell_host(false);
        self.wanted.store(false, Ordering::SeqCst);
        self.go_on(Going::On);
    }

    /// The host is about to copy the page file ahead of a freeze: notes from here on what is written to it. Runs on PID 1.
    pub fn log(&self, allowed: bool) {
        STANDSTILL.ask(true);
        let stopped = allowed && self.stop_all();
        if stopped {
            pages::begin_log(guard_all);
        }
        boot::vregs().log_answer.store(if stopped { LOG_ON } else { LOG_REFUSED }, Ordering::SeqCst);
        STANDSTILL.ask(false);
        for s in SPACES.hosts.lock().values() {
            s.wake_all();
        }
    }

    /// Has the spaces map what the host wants shared, and waits for them.
    fn share(&self) {
        let list = doppel_machine::frozen::share_list();
        for one in list.chunk_by(|a, b| a.space == b.space) {
            let space = SPACES.hosts.lock().get(&one[0].space).cloned();
            let Some(space) = space else { continue };
            space.share(one.to_vec());
            settle(&boot::vregs().event_seq, LOOK_AGAIN_NS, u64::MAX, |_| {
                (space.has_shared() && space.stands_still()).then_some(true)
            });
        }
    }

    /// Waits until every vCPU of every space sleeps; false if that does not happen.
    fn stop_all(&self) -> bool {
        let v = boot::vregs();
        settle(&v.event_seq, LOOK_AGAIN_NS, PATIENCE_NS, |first| {
            // A process that is ending is waited for until it is gone.
            crate::domain::boot::reap();
            let busy: Vec<Arc<Space>> =
                all_spaces().into_iter().filter(|s| !s.stands_still() || s.thread_count() == 0).collect();
            if busy.is_empty() {
                return Some(true);
            }
            busy.iter().for_each(|s| s.stop(first));
            (v.pending.load(Ordering::SeqCst) & event::SHUTDOWN != 0).then_some(false)
        })
    }

    fn go_on(&self, how: Going) {
        STANDSTILL.ask(false);
        rootfs::layer_goes_on(how);
        storage::freeze::go_on();
        self.queue.notify_all();
        for s in SPACES.hosts.lock().values() {
            s.wake_all();
        }
    }

    /// A program asks for a freeze: returns once the domain has gone on, here or in a clone.
    pub fn request(&self) -> Result<()> {
        let v = boot::vregs();
        let before = self.thaws.load(Ordering::SeqCst);
        v.freeze_error.store(0, Ordering::SeqCst);
        v.freeze_requests.fetch_add(1, Ordering::SeqCst);
        host::ring_doorbell();
        // No signal ends it: the freeze comes, and must find its program here.
        wait_until_uninterruptible(&self.queue, || {
            let gone_on = self.thaws.load(Ordering::SeqCst) != before;
            // A freeze that failed halfway goes on too; the host tells before it lets it.
            match v.freeze_error.swap(0, Ordering::SeqCst) {
                0 => gone_on.then_some(Ok(())),
                e => Some(Err(u16::try_from(e).map_or(Errno::EPERM, Errno))),
            }
        })
    }

    /// Wakes those whose request the host has refused. Runs on PID 1.
    pub fn refused(&self) {
        if boot::vregs().freeze_error.load(Ordering::SeqCst) != 0 {
            self.queue.notify_all();
        }
    }

    /// Before anything of a clone runs: forgets the host processes that stayed behind, takes a new identity.
    pub fn adopt(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        SHADOWS.forget();
        let spaces = core::mem::take(&mut *SPACES.hosts.lock());
        for s in spaces.into_values().chain([SPACES.init()]) {
            s.leave_host();
            if Arc::ptr_eq(&s, &SPACES.init()) {
                s.host_pid.store(1, Ordering::SeqCst);
            } else {
                SPACES.requests.lock().push(s);
            }
        }
        crate::process::time::cpu::adopt();
        COMMIT.adopt();
        REGION.adopt();
        sessions::adopt();
        let v = boot::vregs();
        v.generation.store(boot::start_info().generation, Ordering::SeqCst);
        if boot::start_info().resume_flags & (resume_flags::WAKE | resume_flags::HOLD) == 0 {
            self.new_identity(&boot::boot_data());
        }
    }

    fn new_identity(&self, data: &boot::BootData) {
        kernel().hostname.lock().clone_from(&data.hostname);
        *kernel().boot_id.lock() = kernel::boot_id();
        self.args.lock().clone_from(&data.clone_args);
        random::reseed();
    }

    /// Starts the address spaces of a clone and lets its threads run. Runs on PID 1.
    pub fn resume(&self) {
        task::spawn_requested_spaces();
        let flags = boot::start_info().resume_flags;
        let data = if flags & resume_flags::HOLD != 0 { self.hold() } else { boot::boot_data() };
        let how = if flags & resume_flags::WAKE == 0 { Going::Cloned } else { Going::Woken };
        storage::freeze::resumed();
        if how == Going::Cloned {
            rootfs::begin_above_layer();
        }
        // Only now: in a clone that was held, the random numbers are its own from here on.
        if how == Going::Cloned
            && let Err(e) = new_machine_id()
        {
            // A full domain, say. The clone is one without a machine id of its own, and says so.
            doppel_machine::console::log(format!("doppel: no new /etc/machine-id: {e:?}\n").as_bytes());
        }
        // The rings are new: whoever waits on one of the old must look again, and tell the host that it waits. The
        // terminal may be another one.
        crate::terminals::stdio::event(event::CONSOLE_IN | event::CONSOLE_OUT | event::WINCH);
        if !data.argv.is_empty() {
            crate::domain::first::start_command(data);
        }
        crate::objects::net::outside::resumed();
        record(Kind::CloneBegins, [boot::start_info().generation, 0, 0]);
        self.thaws.fetch_add(1, Ordering::SeqCst);
        self.go_on(how);
        sessions::hang_up_lost();
    }

    /// Waits, with every address space made, until the host wants this clone; returns what it says then.
    fn hold(&self) -> boot::BootData {
        assert!(self.stop_all(), "a clone's address spaces could not be made ready");
        let data = boot::held(event::GO | event::SHUTDOWN);
        self.new_identity(&data);
        boot::vregs().state.store(state::RUNNING, Ordering::SeqCst);
        data
    }
}
