//! Boot of a domain: makes the kernel, its PID 1 idle thread, and the first guest process.
//!
//! The host's PID 1 of the domain runs no guest program. Its single vCPU serves what needs a place of its own:
//! timers and ticks, events from the host, new address spaces for exec, and reaping host processes.

use crate::freezer::FREEZER;
use crate::shadow::SHADOWS;
use crate::task::SPACES;
use crate::task::TASKS;
use crate::tidy::TIDY;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::Ordering;

use doppel_abi_machine::{event, resume_flags, state};
use doppel_machine::cpu::{self, ThreadObject};
use doppel_machine::trap::{CHILD_EVENT, FaultInfo, Personality};
use doppel_machine::{arena, boot, host};

use crate::part::Fill;
use crate::sched::idle_loop;
use crate::task::{IdleThread, Space};
use crate::task::{Thread, current};
use crate::{first, fs, kernel, mm, personality, root, shadow, signal, task, time};

/// The Linux personality on the machine layer.
struct Linux;

impl Personality for Linux {
    fn syscall(&self) -> extern "C" fn() {
        personality::dispatch
    }

    fn trapped(&self) {
        if let Some(t) = cpu::current_as::<Thread>() {
            mm::trapped(&**t, || t.is_watched());
        }
    }

    fn fault(&self, info: FaultInfo) {
        task::fault(info);
    }

    fn exit_work(&self) {
        task::exit_work(&current());
        task::end_if_exiting();
    }

    fn task_start(&self) {
        let object: Arc<dyn Any + Send + Sync> = cpu::current();
        if let Some(round) = shadow::round_of(&*object) {
            // As below: this host process ends without giving anything back.
            drop(object);
            shadow::stay(round);
        }
        let init = match object.downcast::<IdleThread>() {
            Ok(idle) => {
                let init = Arc::ptr_eq(idle.space(), &SPACES.init());
                if !init {
                    SPACES.vcpu_started(idle.space());
                    idle.space().mm.enter(idle.space().frozen_pid.swap(0, Ordering::SeqCst));
                }
                Some(init)
            }
            Err(_) => None,
        };
        // Nothing is owned here any more: the loops are never unwound.
        match init {
            Some(true) => init_loop(),
            Some(false) => idle_loop::<Thread>(),
            None => task::thread_start(),
        }
    }
}

/// How `doppel_machine::boot` starts this kernel.
pub const START: boot::Start = boot::Start { make, resume };

/// The parts of the kernel, in the order they are made.
#[rustfmt::skip]
static PARTS: &[&dyn Fill] = &[
    &crate::log::LOG,
    &crate::sched::STANDSTILL,
    &crate::time::cpu::STOLEN,
    &crate::mm::commit::COMMIT,
    &crate::mm::late::WANTED,
    &crate::mm::patched::PATCHES,
    &crate::fs::devices::REGISTRY,
    &crate::fs::kinds::TYPES,
    &crate::fs::locks::WAIT_GRAPH,
    &crate::fs::mount::KEPT,
    &crate::fs::pages::KEPT,
    &crate::task::load::LOAD,
    &crate::fs::random::GENERATOR,
    &crate::ipc::epoll::NESTING,
    &crate::ipc::inotify::COUNTERS,
    &crate::ipc::memfd::MEM_FS,
    &crate::ipc::mqueue::NAMES,
    &crate::ipc::sysv::msg::QUEUES,
    &crate::ipc::sysv::sem::SETS,
    &crate::ipc::sysv::sem::UNDOS,
    &crate::ipc::sysv::shm::SEGMENTS,
    &crate::net::inet::PORTS,
    &crate::net::remote::NETWORK,
    &crate::net::remote::files::HOSTS,
    &crate::net::unix::names::NAMES,
    &crate::net::unix::scm::FLIGHT,
    &crate::task::coredump::name::SETTINGS,
    &crate::task::exit::NO_FILES,
    &crate::task::futex::FUTEXES,
    &crate::task::space::SPACES,
    &crate::task::spare::SPARES,
    &crate::task::table::TASKS,
    &crate::task::vdso::VDSO,
    &crate::task::version::DOMAIN_NAME,
    &crate::shadow::SHADOWS,
    &crate::tty::console::CONSOLE_TTY,
    &crate::tty::devpts::DEV_PTS,
    &crate::console::CONSOLE,
    &crate::personality::table::REPORTED,
    &crate::freezer::FREEZER,
    &crate::sessions::SESSIONS,
    &crate::tidy::TIDY,
];

/// Makes the kernel and the idle thread of PID 1.
fn make() -> (&'static dyn Personality, Arc<dyn ThreadObject>) {
    let data = boot::boot_data();
    doppel_machine::xstate::init();
    doppel_machine::shield::init();
    task::subject::run();
    root::init(data.hostname, data.args.flags, PARTS);
    let space = Space::new(mm::Mm::default());
    space.host_pid.store(1, Ordering::SeqCst);
    SPACES.set_init(space.clone());
    (&Linux, IdleThread::new(space, 0))
}

/// Continues with a frozen domain's kernel.
fn resume() -> (&'static dyn Personality, Arc<dyn ThreadObject>) {
    doppel_machine::xstate::init();
    // Nobody reads or writes in a domain that stands still.
    doppel_machine::shield::init();
    task::subject::run();
    root::adopt(PARTS);
    fs::adopt();
    FREEZER.adopt();
    (&Linux, IdleThread::new(SPACES.init(), 0))
}

/// PID 1: starts the first program or what was frozen, then serves events for ever.
fn init_loop() -> ! {
    boot::drop_initial_stack();
    if doppel_machine::frozen::is_clone() {
        FREEZER.resume();
    } else {
        crate::net::remote::event();
        first::prepare();
        first::start_init(if boot::start_info().resume_flags & resume_flags::HOLD != 0 {
            hold()
        } else {
            boot::boot_data()
        });
    }
    let v = boot::vregs();
    // The program may have ended already.
    let _ = v.state.compare_exchange(state::BOOTING, state::RUNNING, Ordering::SeqCst, Ordering::SeqCst);
    let mut ended = Ended::default();
    TIDY.arm();
    loop {
        let seen = v.event_seq.load(Ordering::SeqCst);
        if CHILD_EVENT.swap(0, Ordering::SeqCst) != 0 {
            ended.add(reap());
        }
        let events = v.pending.swap(0, Ordering::SeqCst);
        if events != 0 {
            serve(events);
        }
        task::spawn_requested_spaces();
        TIDY.look();
        let next = kernel().timekeeper.run();
        if CHILD_EVENT.load(Ordering::SeqCst) != 0 || v.pending.load(Ordering::SeqCst) != 0 {
            continue;
        }
        host::futex_wait(&v.event_seq, seen, next.map(time::to_host_monotonic));
    }
}

/// Waits, with all ready for the first program, until the host wants the domain; returns what it says then.
fn hold() -> boot::BootData {
    let v = boot::vregs();
    let data = boot::held(event::GO | event::SHUTDOWN);
    kernel().hostname.lock().clone_from(&data.hostname);
    v.state.store(state::BOOTING, Ordering::SeqCst);
    data
}

/// How many host processes end before the arena is put into huge pages, which is for domains that make many; and
/// before it is looked again how much of it is used.
const GATHER_EVERY: u32 = 64;

/// How many host processes have ended.
#[derive(Default)]
struct Ended {
    /// Since the arena was looked at.
    count: u32,
}

impl Ended {
    fn add(&mut self, n: u32) {
        self.count += n;
        if self.count >= GATHER_EVERY {
            self.count = 0;
            arena::gather();
        }
    }
}

/// Events the host (or another process of the domain) posted.
fn serve(events: u64) {
    let v = boot::vregs();
    if events & event::SIGNAL != 0 {
        let set = v.signals.swap(0, Ordering::SeqCst);
        if let Ok(init) = TASKS.process(task::init_pid()) {
            for signo in (1..=64).filter(|n| set & (1 << (n - 1)) != 0) {
                // A signal that pid 1 does not handle is dropped, as on Linux.
                let _ = signal::send_process(&init, signal::SigInfo::kernel(signo));
            }
        }
    }
    if events & event::SHUTDOWN != 0 {
        task::end_domain(9);
    }
    if events & event::FREEZE != 0 {
        FREEZER.freeze();
    }
    FREEZER.refused();
    if events & (event::CONSOLE_IN | event::CONSOLE_OUT | event::WINCH) != 0 {
        crate::console::event(events);
    }
    if events & event::MEMORY != 0 {
        crate::tidy::give_back();
    }
    if events & event::NETWORK != 0 {
        crate::net::remote::event();
    }
    if events & event::SESSION != 0 {
        crate::sessions::event();
    }
}

/// Collects ended host processes. One that did not end by itself was killed or crashed: nobody can know what
/// state it left, so the domain ends (docs/design.md §5, fate-sharing), unless it was a shadow, which has none.
/// Returns how many there were.
pub(crate) fn reap() -> u32 {
    let mut n = 0;
    while let Some((pid, status)) = host::reap() {
        n += 1;
        if SHADOWS.ended(pid) {
            continue;
        }
        let space = SPACES.hosts.lock().remove(&pid);
        if let Some(s) = space {
            s.retire();
        }
        if status != 0 {
            let v = boot::vregs();
            v.crash_pid.store(pid, Ordering::SeqCst);
            v.crash_status.store(status, Ordering::SeqCst);
            if v.state.load(Ordering::SeqCst) != state::EXITED {
                v.state.store(state::PANICKED, Ordering::SeqCst);
            }
            host::ring_doorbell();
            host::exit_process(71);
        }
    }
    n
}
