//! The kernel object: what all of the kernel needs to know of the domain, and the parts it is made of.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_machine::boot_flags;
use doppel_algo::park::Cpus;
use doppel_machine::boot;
use doppel_machine::sync::{Once, SpinLock};

use crate::core::part::{Fill, Filling};
use crate::core::time::Timekeeper;

/// State of a domain's kernel. One instance, in the arena, alive as long as the domain.
pub struct Kernel {
    ids: AtomicU64,
    /// Most vCPUs of one space.
    pub vcpu_limit: u32,
    /// CPUs of the domain and vCPUs that want them.
    pub cpus: Cpus,
    /// Timers, ticks and requests served by PID 1.
    pub timekeeper: Timekeeper,
    /// Host name (`sethostname(2)`).
    pub hostname: SpinLock<Vec<u8>>,
    /// Domain monotonic time of the boot, nanoseconds.
    pub boot_ns: u64,
    /// Random id of this boot (/proc/sys/kernel/random/boot_id).
    pub boot_id: SpinLock<[u8; 16]>,
    /// Whether `--trace` was given.
    pub trace: bool,
    /// The state of its parts, in their order.
    parts: Once<Vec<Filling>>,
}

static KERNEL: Once<&'static Kernel> = Once::new();

/// The kernel. Set at boot before anything else runs.
pub fn kernel() -> &'static Kernel {
    match KERNEL.get() {
        Some(k) => k,
        None => panic!("kernel() before boot"),
    }
}

/// Makes the kernel object and its `parts`; once, at boot, with these [`boot_flags`].
pub fn init(hostname: Vec<u8>, flags: u32, parts: &[&dyn Fill]) {
    let vcpus = boot::start_info().vcpus.max(1);
    let k = Kernel {
        ids: AtomicU64::new(1),
        vcpu_limit: vcpus,
        cpus: Cpus::new(if flags & boot_flags::NO_POLLING == 0 { vcpus } else { 0 }),
        timekeeper: Timekeeper::default(),
        hostname: SpinLock::new(hostname),
        boot_ns: crate::core::time::monotonic_ns(),
        boot_id: SpinLock::new(boot_id()),
        trace: flags & boot_flags::TRACE != 0,
        parts: Once::new(),
    };
    let k: &'static Kernel = alloc::boxed::Box::leak(alloc::boxed::Box::new(k));
    boot::keep_kernel(k);
    assert!(KERNEL.set(k).is_ok(), "kernel made twice");
    let made = k.parts.set(parts.iter().map(|p| p.fill()).collect());
    assert!(made.is_ok(), "parts made twice");
}

/// Continues with the kernel of the frozen image, which has the same `parts`; once, at boot.
pub fn adopt(parts: &[&dyn Fill]) {
    let k = boot::kept_kernel::<Kernel>();
    assert!(KERNEL.set(k).is_ok(), "kernel made twice");
    let made = k.parts.get().map_or(&[][..], Vec::as_slice);
    assert!(made.len() == parts.len(), "the kernel has other parts than when it was frozen");
    for (part, filling) in parts.iter().zip(made) {
        part.refill(*filling);
    }
}

/// 16 bytes of the host's seed that nothing else uses as they are.
pub(crate) fn boot_id() -> [u8; 16] {
    let si = boot::start_info();
    core::array::from_fn(|i| si.seed[i] ^ si.seed[31 - i].rotate_left(3))
}

impl Kernel {
    /// A number never given before: ids of files, spaces, timers.
    pub fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The host name as text.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.hostname.lock()).into_owned()
    }
}
