//! The root object: everything the guest kernel knows hangs off [`Kernel`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use doppel_abi_machine::boot_flags;
use doppel_algo::park::Cpus;
use doppel_machine::boot;
use doppel_machine::sync::{Once, SpinLock};

use crate::sched::Space;
use crate::task::futex::Futexes;
use crate::task::{Process, Thread};
use crate::time::Timekeeper;

/// State of a domain's kernel. One instance, in the arena, alive as long as the domain.
pub struct Kernel {
    ids: AtomicU64,
    last_pid: AtomicI32,
    /// All processes, zombies included, by pid.
    pub processes: SpinLock<BTreeMap<i32, Arc<Process>>>,
    /// All threads by tid.
    pub threads: SpinLock<BTreeMap<i32, Arc<Thread>>>,
    /// Most vCPUs of one space.
    pub vcpu_limit: u32,
    /// CPUs of the domain and vCPUs that want them.
    pub cpus: Cpus,
    /// Timers, ticks and requests served by PID 1.
    pub timekeeper: Timekeeper,
    /// Threads that wait on futexes.
    pub futexes: Futexes,
    /// Host name (`sethostname(2)`).
    pub hostname: SpinLock<Vec<u8>>,
    /// Domain monotonic time of the boot, nanoseconds.
    pub boot_ns: u64,
    /// What the host took of its vCPUs, as far as they have asked, and as it was told last (`time::cpu`).
    pub stolen_ns: AtomicU64,
    /// See [`Self::stolen_ns`].
    pub stolen_shown: AtomicU64,
    /// Random id of this boot (/proc/sys/kernel/random/boot_id).
    pub boot_id: SpinLock<[u8; 16]>,
    /// The process with whose end the domain ends, besides guest pid 1: the command given to a clone. 0: none.
    pub foreground: AtomicI32,
    /// Whether `--trace` was given.
    pub trace: bool,
    /// Live host processes by host pid, except PID 1.
    pub spaces: SpinLock<BTreeMap<i32, Arc<Space>>>,
    /// Clean spaces ready for exec.
    pub spares: crate::task::Spares,
    init_space: Once<Arc<Space>>,
    /// The descriptors of those that have ended: none.
    pub no_files: Arc<crate::fs::FdTable>,
    /// Stops everything, and goes on in clones.
    pub freezer: crate::freezer::Freezer,
    /// The mount table and the page file: every process has a copy of these in static words, and a clone's first
    /// process finds them here ([`adopt`]).
    pub vfs: Once<&'static crate::fs::mount::Vfs>,
    /// See `vfs`.
    pub page_file: Once<&'static crate::fs::pages::PageFile>,
    /// Gives free memory back.
    pub tidy: crate::tidy::Tidy,
    /// Watches of inotify, counted.
    pub inotify: crate::ipc::inotify::Counters,
    services: SpinLock<Vec<Arc<dyn Any + Send + Sync>>>,
}

static KERNEL: Once<&'static Kernel> = Once::new();

/// The kernel. Set at boot before anything else runs.
pub fn kernel() -> &'static Kernel {
    match KERNEL.get() {
        Some(k) => k,
        None => panic!("kernel() before boot"),
    }
}

/// Makes the kernel object; once, at boot, with these [`boot_flags`].
pub fn init(hostname: Vec<u8>, flags: u32) {
    let vcpus = boot::start_info().vcpus.max(1);
    let k = Kernel {
        ids: AtomicU64::new(1),
        last_pid: AtomicI32::new(0),
        processes: SpinLock::default(),
        threads: SpinLock::default(),
        vcpu_limit: vcpus,
        cpus: Cpus::new(if flags & boot_flags::NO_POLLING == 0 { vcpus } else { 0 }),
        timekeeper: Timekeeper::default(),
        futexes: Futexes::default(),
        hostname: SpinLock::new(hostname),
        boot_ns: crate::time::monotonic_ns(),
        stolen_ns: AtomicU64::new(0),
        stolen_shown: AtomicU64::new(0),
        boot_id: SpinLock::new(boot_id()),
        foreground: AtomicI32::new(0),
        trace: flags & boot_flags::TRACE != 0,
        spaces: SpinLock::default(),
        spares: crate::task::Spares::default(),
        init_space: Once::new(),
        no_files: Arc::new(crate::fs::FdTable::new(0)),
        freezer: crate::freezer::Freezer::default(),
        vfs: Once::new(),
        page_file: Once::new(),
        tidy: crate::tidy::Tidy::default(),
        inotify: crate::ipc::inotify::Counters::default(),
        services: SpinLock::default(),
    };
    let k: &'static Kernel = alloc::boxed::Box::leak(alloc::boxed::Box::new(k));
    boot::keep_kernel(k);
    assert!(KERNEL.set(k).is_ok(), "kernel made twice");
}

/// Continues with the kernel of the frozen image; once, at boot.
pub fn adopt() {
    assert!(KERNEL.set(boot::kept_kernel::<Kernel>()).is_ok(), "kernel made twice");
    crate::fs::adopt();
}

/// 16 bytes of the host's seed that nothing else uses as they are.
pub(crate) fn boot_id() -> [u8; 16] {
    let si = boot::start_info();
    core::array::from_fn(|i| si.seed[i] ^ si.seed[31 - i].rotate_left(3))
}

/// Largest pid plus 1.
pub const PID_MAX: i32 = 32768;

impl Kernel {
    /// The space of the domain's host PID 1, which runs no guest program. Set once at boot.
    pub fn init_space(&self) -> Arc<Space> {
        match self.init_space.get() {
            Some(s) => s.clone(),
            None => panic!("init_space() before boot"),
        }
    }

    /// See [`Self::init_space`].
    pub(crate) fn set_init_space(&self, space: Arc<Space>) {
        assert!(self.init_space.set(space).is_ok(), "init space set twice");
    }

    /// Processes and threads made since boot.
    pub fn forks(&self) -> i32 {
        self.last_pid.load(Ordering::Relaxed)
    }

    /// A number never given before: ids of files, spaces, timers.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// A free pid or tid; `EAGAIN` when all are in use.
    pub fn alloc_pid(&self) -> crate::Result<i32> {
        let procs = self.processes.lock();
        let threads = self.threads.lock();
        for _ in 0..PID_MAX {
            let n = self.last_pid.fetch_add(1, Ordering::Relaxed);
            let pid = n.rem_euclid(PID_MAX - 1) + 1;
            let wrapped = n >= PID_MAX - 1;
            if wrapped && pid < 300 {
                continue;
            }
            if !procs.contains_key(&pid) && !threads.contains_key(&pid) {
                return Ok(pid);
            }
        }
        Err(crate::Errno::EAGAIN)
    }

    /// Whether nobody has this pid or tid.
    pub fn is_free(&self, pid: i32) -> bool {
        !self.processes.lock().contains_key(&pid) && !self.threads.lock().contains_key(&pid)
    }

    /// How many tasks there are for a limit on them: threads, or processes if zombies make them more.
    pub fn tasks(&self) -> usize {
        let processes = self.processes.lock().len();
        self.threads.lock().len().max(processes)
    }

    /// The process with this pid (zombies included).
    pub fn process(&self, pid: i32) -> crate::Result<Arc<Process>> {
        self.processes.lock().get(&pid).cloned().ok_or(crate::Errno::ESRCH)
    }

    /// The thread with this tid.
    pub fn thread(&self, tid: i32) -> crate::Result<Arc<Thread>> {
        self.threads.lock().get(&tid).cloned().ok_or(crate::Errno::ESRCH)
    }

    /// All processes, in pid order.
    pub fn all_processes(&self) -> Vec<Arc<Process>> {
        self.processes.lock().values().cloned().collect()
    }

    /// The host name as text.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.hostname.lock()).into_owned()
    }

    /// The one instance of a subsystem's global state, made by its `Default` on first use.
    /// (For state that needs no place of its own above.)
    pub fn service<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut s = self.services.lock();
        if let Some(t) = s.iter().find_map(|a| a.clone().downcast::<T>().ok()) {
            return t;
        }
        let t = Arc::new(T::default());
        s.push(t.clone());
        t
    }
}
