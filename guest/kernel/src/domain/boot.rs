//! Boot of a domain: makes the kernel, its PID 1 idle thread, and the first guest process.
//!
//! The host's PID 1 of the domain runs no guest program. Its single vCPU serves what needs a place of its own:
//! timers and ticks, events from the host, new address spaces for exec, and reaping host processes.

use crate::domain::freezer::FREEZER;
use crate::domain::trim::TRIM_TIMER;
use crate::memory::swap::REGION;
use crate::process::shadow::SHADOWS;
use crate::process::task::SPACES;
use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::Ordering;

use doppel_abi_machine::events::Level;
use doppel_abi_machine::{event, resume_flags, state};
use doppel_machine::cpu::{self, ThreadObject};
use doppel_machine::trap::{CHILD_EVENT, FaultInfo, Guard, Personality};
use doppel_machine::{arena, boot, host};

use crate::core::events::EVENTS;
use crate::core::part::Fill;
use crate::core::sched::idle_loop;
use crate::core::{kernel, time};
use crate::domain::first;
use crate::objects::rootfs;
use crate::objects::storage;
use crate::objects::vfs;
use crate::process::task::{IdleThread, Space};
use crate::process::task::{Thread, current};
use crate::process::{shadow, signal, task};
use crate::{kernel, memory, personality};

/// The Linux personality on the machine layer.
struct Linux;

impl Personality for Linux {
    fn syscall(&self) -> extern "C" fn() {
        personality::dispatch
    }

    fn trapped(&self) {
        if let Some(t) = cpu::current_as::<Thread>() {
            memory::trapped(&**t, || t.is_watched());
        }
    }

    fn compat_syscall(&self) {
        personality::compat::serve();
    }

    fn fault(&self, info: FaultInfo) {
        task::fault(info);
    }

    fn lift_guard(&self, addr: u64) -> Guard {
        task::current_space().mm.lift_guard(addr)
    }

    fn mend(&self) -> bool {
        memory::mend_missed(&task::current_space().mm)
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
    &crate::core::events::EVENTS,
    &crate::core::log::LOG,
    &crate::core::namespace::NUMBERS,
    &crate::core::namespace::user::FIRST,
    &crate::core::namespace::pid::FIRST,
    &crate::core::sched::STANDSTILL,
    &crate::memory::MISSING,
    &crate::memory::LOG,
    &crate::process::time::cpu::STOLEN,
    &crate::memory::commit::COMMIT,
    &crate::memory::runtime_patch::ENABLED,
    &crate::memory::image_patch::PATCHES,
    &crate::objects::vfs::devices::REGISTRY,
    &crate::objects::vfs::kinds::TYPES,
    &crate::objects::block::DEVICES,
    &crate::objects::rootfs::DISKS,
    &crate::objects::vfs::attach::locks::WAIT_GRAPH,
    &crate::objects::vfs::mount::KEPT,
    &crate::objects::pages::KEPT,
    &crate::objects::pages::EVICTABLE,
    &crate::process::task::load::LOAD,
    &crate::core::random::GENERATOR,
    &crate::objects::ipc::epoll::NESTING,
    &crate::objects::vfs::attach::notify::COUNTERS,
    &crate::objects::ipc::fanotify::MARKS,
    &crate::objects::ipc::memfd::MEM_FS,
    &crate::objects::ipc::sysv::namespace::FIRST,
    &crate::objects::net::inet::PORTS,
    &crate::objects::net::outside::NETWORK,
    &storage::STORAGE,
    &first::READY,
    &crate::objects::net::outside::files::HOSTS,
    &crate::objects::net::unix::names::NAMES,
    &crate::objects::net::unix::scm::FLIGHT,
    &crate::process::coredump::name::SETTINGS,
    &crate::memory::swap::REGION,
    &crate::process::async_io::context::TOTAL,
    &crate::process::async_io::context::CONTEXTS,
    &crate::process::async_io::workers::WORKERS,
    &crate::process::life::exit::NO_FILES,
    &crate::process::futex::FUTEXES,
    &crate::process::keys::KEYS,
    &crate::process::task::space::SPACES,
    &crate::process::life::spare::SPARES,
    &crate::process::task::table::TASKS,
    &crate::process::life::vdso::VDSO,
    &crate::objects::vfs::mount::space::FIRST,
    &crate::process::namespaces::FIRST,
    &crate::process::shadow::SHADOWS,
    &crate::terminals::console::CONSOLE_TTY,
    &crate::terminals::devpts::DEV_PTS,
    &crate::terminals::stdio::CONSOLE,
    &crate::personality::table::REPORTED,
    &crate::domain::freezer::FREEZER,
    &crate::domain::sessions::SESSIONS,
    &crate::domain::trim::TRIM_TIMER,
];

/// Gives up so many bytes that can be had again.
fn reclaim(bytes: u64) -> bool {
    storage::reclaim(bytes) || crate::objects::pages::reclaim(bytes)
}

/// Makes the kernel and the idle thread of PID 1.
fn make() -> (&'static dyn Personality, Arc<dyn ThreadObject>) {
    let data = boot::boot_data();
    doppel_machine::xstate::init();
    doppel_machine::shield::init();
    task::subject::run();
    crate::objects::ipc::inotify::run();
    crate::personality::events::fanotify::run();
    memory::commit::RECLAIM.set(reclaim);
    personality::table::offer();
    kernel::init(data.hostname, data.args.flags, PARTS);
    // There is memory for them: nothing has run yet.
    let _ = EVENTS.get().keep(Level::from_flags(data.args.flags));
    let space = Space::new(memory::Mm::default());
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
    crate::objects::ipc::inotify::run();
    crate::personality::events::fanotify::run();
    memory::commit::RECLAIM.set(reclaim);
    personality::table::offer();
    kernel::adopt(PARTS);
    vfs::adopt();
    FREEZER.adopt();
    (&Linux, IdleThread::new(SPACES.init(), 0))
}

/// PID 1: starts the first program or what was frozen, then serves events for ever.
fn init_loop() -> ! {
    boot::drop_initial_stack();
    if doppel_machine::frozen::is_clone() {
        FREEZER.resume();
    } else {
        crate::objects::net::outside::event();
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
    TRIM_TIMER.arm();
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
        TRIM_TIMER.look();
        REGION.tidy();
        let next = kernel().timekeeper.run();
        if CHILD_EVENT.load(Ordering::SeqCst) != 0 || v.pending.load(Ordering::SeqCst) != 0 {
            continue;
        }
        let deadline = next.map(time::to_host_monotonic);
        match storage::storage() {
            Some(storage) => storage.sleep(&v.event_seq, seen, deadline),
            None => drop(host::futex_wait(&v.event_seq, seen, deadline)),
        }
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

/// Whether nothing has to be done before the domain is frozen; if there is, that begins.
fn ready_to_freeze() -> bool {
    rootfs::ready_to_freeze(freeze_again) && storage::freeze::ready_to_freeze(freeze_again)
}

/// What had to be done before the domain is frozen is done.
fn freeze_again() {
    boot::vregs().pending.fetch_or(event::KERNEL, Ordering::SeqCst);
    boot::wake_init();
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
        rootfs::close_disks();
        storage::end();
        rootfs::close_layer();
        task::end_domain(9);
    }
    if events & event::LOG != 0 {
        FREEZER.log(first::may_freeze());
    }
    if FREEZER.hear(events) && first::may_freeze() && ready_to_freeze() {
        FREEZER.freeze();
    }
    FREEZER.refused();
    if events & (event::CONSOLE_IN | event::CONSOLE_OUT | event::WINCH) != 0 {
        crate::terminals::stdio::event(events);
    }
    if events & event::MEMORY != 0 {
        crate::domain::trim::give_back();
    }
    if events & event::SWAP != 0 {
        crate::domain::swap::event();
    }
    if events & event::NETWORK != 0 {
        crate::objects::net::outside::event();
    }
    if events & event::SESSION != 0 {
        crate::domain::sessions::event();
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
