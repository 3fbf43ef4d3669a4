//! What this CPU can do.

use std::sync::OnceLock;

use doppel_abi_machine::frozen::CPU_WORDS;

/// The CPUID words of `CPU_WORDS`, then the low word of XCR0. Asked once: CPUID traps to the hypervisor of a
/// virtual machine, which takes tens of microseconds.
#[must_use]
pub fn features() -> &'static [u32; 10] {
    static FEATURES: OnceLock<[u32; 10]> = OnceLock::new();
    FEATURES.get_or_init(|| {
        let mut words = [0; 10];
        for (word, (leaf, subleaf, register)) in words.iter_mut().zip(CPU_WORDS) {
            let r = std::arch::x86_64::__cpuid_count(leaf, subleaf);
            *word = [r.eax, r.ebx, r.ecx, r.edx][usize::from(register)];
        }
        // APIC-dependent and OS-dependent bits say nothing about the CPU: OSPKE.
        words[3] &= !(1 << 4);
        let low: u32;
        // SAFETY: XCR0 is readable on every x86-64 CPU whose kernel uses XSAVE, without which no domain runs.
        unsafe {
            std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack));
        }
        words[9] = low;
        words
    })
}

/// Has this process, and what it starts from now on, share no core at a time with processes that are neither; where cores
/// have several threads and the host can do so. Says whether that is so now.
pub fn own_cores() -> bool {
    const PR_SCHED_CORE: i32 = 62;
    const PR_SCHED_CORE_CREATE: usize = 1;
    const PR_SCHED_CORE_SCOPE_THREAD_GROUP: usize = 1;
    // SAFETY: changes no memory of ours: 0 is this process, and no place for an answer is given.
    let done = unsafe {
        libc::prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0usize, PR_SCHED_CORE_SCOPE_THREAD_GROUP, 0usize)
    };
    done == 0
}

/// Has the calling thread run before all others that are not real-time threads too.
///
/// # Errors
/// What the host says, for example that this user may not.
pub fn real_time() -> std::io::Result<()> {
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter outlives the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const least) }
    {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn has_sse2_and_is_stable() {
        assert_ne!(super::features()[1] & (1 << 26), 0);
        assert_eq!(super::features(), super::features());
    }
}
