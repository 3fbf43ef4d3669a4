//! The first program of the domain, and what must be there before it: file systems, terminals, the console.

use crate::process::task::TASKS;
use crate::terminals::stdio;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_machine::{boot_flags, event};
use doppel_machine::boot::{self, BootData};

use crate::core::log;
use crate::core::part::Part;
use crate::domain::{cgroupfs, devfs, mounts, mqueuefs, procfs, sysfs};
use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::names;
use crate::objects::vfs::{kinds, mount};
use crate::process::life::start::start_process;
use crate::process::namespaces::numbers;
use crate::process::task::{Cred, Process, Thread, identity};
use crate::process::task::{current_ref, init_pid};
use crate::{Errno, Result};

/// Whether all that is to be mounted is: from then on the host's programs find it.
pub static READY: Part<AtomicBool> = Part::new();

/// Whether the domain may be frozen. If not PID 1 looks again when it may: a clone has nobody who would answer what a mount asks.
pub fn may_freeze() -> bool {
    READY.load(Ordering::SeqCst)
}

/// What can be done before it is known what the first program is.
pub fn prepare() {
    crate::objects::vfs::init();
    devfs::init();
    kinds::register("proc", || {
        let here = numbers::of(&current_ref().process).clone();
        Ok(procfs::root(mount::new_dev(), here))
    });
    kinds::register("cgroup2", || Ok(cgroupfs::root(mount::new_dev())));
    kinds::register("mqueue", || Ok(mqueuefs::root(mount::new_dev())));
    kinds::register("sysfs", || Ok(sysfs::root(mount::new_dev())));
    kinds::register("devpts", || Ok(crate::terminals::devpts::root()));
    crate::terminals::init();
}

/// Makes guest pid 1 and starts its space; the program itself is loaded by its thread.
pub fn start_init(data: BootData) {
    let pid = TASKS.alloc_pid().unwrap_or(0);
    assert!(pid == init_pid(), "guest pid 1 must be the first");
    let tty = data.args.flags & boot_flags::TTY != 0;
    must_start(start_on_console(pid, None, data, tty));
}

/// In a clone: starts the command it was given beside the processes that were frozen, as a child of guest pid 1.
/// The domain ends with it.
pub fn start_command(data: BootData) {
    let Ok(pid) = TASKS.alloc_pid() else {
        log::log("doppel: no process number is left for the command\n");
        crate::process::task::end_domain(126 << 8);
        return;
    };
    TASKS.foreground.store(pid, Ordering::Relaxed);
    let parent = TASKS.process(init_pid()).ok();
    must_start(start_on_console(pid, parent, data, false));
}

fn must_start(started: Result<()>) {
    if let Err(e) = started {
        panic!("the host starts no process: {e:?}");
    }
}

/// Starts a process with the console as its standard streams.
fn start_on_console(pid: i32, parent: Option<Arc<Process>>, data: BootData, tty: bool) -> Result<()> {
    let winsize = data.args.winsize;
    let open = |p: &Arc<Process>| {
        stdio::open_standard(p, tty, winsize);
        Ok(())
    };
    start_process(pid, parent, identity(&data), open, move |t| load_first_program(t, &data))
}

fn load_first_program(t: &Arc<Thread>, data: &BootData) {
    if let Err((at, e)) = mount_all(t, data) {
        give_up(t, "mount", at, e, 126);
    } else if let Err(e) = make_working_directory(t, data) {
        give_up(t, "start in", &data.cwd, e, 126);
    } else if let Err(e) = load_root_ready(t, data) {
        let name = data.argv.first().map_or(&[][..], |a| a);
        give_up(t, "run", name, e, if e == Errno::ENOENT { 127 } else { 126 });
    }
}

/// Loads the program; all that is to be in the root file system is there.
fn load_root_ready(t: &Arc<Thread>, data: &BootData) -> Result<()> {
    if data.args.flags & boot_flags::READ_ONLY != 0 {
        mounts::root_read_only();
    }
    READY.store(true, Ordering::SeqCst);
    // What was asked for before waits for this, a freeze too.
    boot::vregs().pending.fetch_or(event::SESSION, Ordering::SeqCst);
    boot::wake_init();
    crate::process::task::load_program(t, data)
}

/// Mounts what the host wants to be, as root, whoever the program runs as.
fn mount_all<'a>(t: &Arc<Thread>, data: &'a BootData) -> core::result::Result<(), (&'a [u8], Errno)> {
    let caller = Caller::with(t.fs(), Arc::new(Cred::new(0, 0)));
    let (layer, others): (Vec<_>, Vec<_>) = data.mounts.iter().partition(|m| mounts::is_layer(m));
    let mount = |m: &&'a [Vec<u8>; 3]| mounts::mount(&caller, m).map_err(|e| (m[0].as_slice(), e));
    layer.iter().try_for_each(mount)?;
    // These are this start's, whatever was kept.
    crate::objects::net::outside::files::write(&data.hosts);
    others.iter().try_for_each(mount)
}

fn give_up(t: &Arc<Thread>, what: &str, name: &[u8], e: Errno, code: i32) {
    let name = alloc::string::String::from_utf8_lossy(name);
    log::log(&alloc::format!("doppel: cannot {what} {name}: {}\n", e.words()));
    crate::process::task::do_group_exit(t, code << 8);
}

/// Makes the directory in which the first program starts if it is missing, as Docker does: as root, whoever the
/// program runs as.
fn make_working_directory(t: &Arc<Thread>, data: &BootData) -> Result<()> {
    let caller = Caller::with(t.fs(), Arc::new(Cred::new(0, 0)));
    names::make_dirs(&caller, &data.cwd, 0o755).map(drop)
}
