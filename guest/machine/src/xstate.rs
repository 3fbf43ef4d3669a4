//! Extended processor state (x87, SSE, AVX, AVX-512) in the XSAVE standard format.
//!
//! AMX state is left out: its permission is never requested, so the host keeps it disabled.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the area: the AVX-512 components end at 2688; rounded up, with room for a signal frame's end mark.
pub const XSAVE_SIZE: usize = 2816;

/// State components the guest kernel saves: x87 SSE AVX opmask ZMM_Hi256 Hi16_ZMM.
pub const XFEATURES: u64 = 0xe7;

/// An XSAVE area, standard (non-compacted) format.
#[repr(C, align(64))]
#[derive(Clone)]
pub struct XSave {
    /// Raw bytes: 512 legacy, 64 header, extended components at their CPUID offsets.
    pub bytes: [u8; XSAVE_SIZE],
}

impl XSave {
    /// The state of a new program: x87 control word 0x37f, MXCSR 0x1f80, everything else at reset.
    pub fn initial() -> Box<Self> {
        // SAFETY: all-zero bytes are a valid area.
        let mut x: Box<Self> = unsafe { Box::new_zeroed().assume_init() };
        x.bytes[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
        x.bytes[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        x
    }

    /// The component bitmap (XSTATE_BV).
    pub fn xstate_bv(&self) -> u64 {
        u64::from_le_bytes(self.bytes[512..520].try_into().unwrap_or([0; 8]))
    }

    /// Makes any bytes loadable by XRSTOR: unknown components, reserved header and MXCSR bits cleared.
    pub fn sanitize(&mut self) {
        let bv = self.xstate_bv() & enabled_features();
        self.bytes[512..520].copy_from_slice(&bv.to_le_bytes());
        self.bytes[520..576].fill(0);
        let mask = u32::from_le_bytes([self.bytes[28], self.bytes[29], self.bytes[30], self.bytes[31]]);
        let mask = if mask == 0 { 0xffbf } else { mask & 0xffff };
        let mxcsr = u32::from_le_bytes([self.bytes[24], self.bytes[25], self.bytes[26], self.bytes[27]]);
        self.bytes[24..28].copy_from_slice(&(mxcsr & mask).to_le_bytes());
    }
}

/// Components both the CPU has enabled (XCR0) and this kernel saves.
pub fn enabled_features() -> u64 {
    let (lo, hi): (u32, u32);
    // SAFETY: xgetbv 0 is available wherever the host enabled OSXSAVE, which AVX-capable Linux hosts do.
    unsafe { core::arch::asm!("xgetbv", in("ecx") 0, out("eax") lo, out("edx") hi, options(nomem, nostack)) };
    (u64::from(hi) << 32 | u64::from(lo)) & XFEATURES
}

/// [`used_size`] and [`hwcap`]. CPUID traps to the hypervisor of a virtual machine (tens of µs), and every host
/// process of a domain has these words for itself, so they must be filled before the first one is forked.
static USED_SIZE: AtomicUsize = AtomicUsize::new(0);
/// See [`USED_SIZE`].
static HWCAP: AtomicUsize = AtomicUsize::new(0);

/// Whether there is XSAVEOPT: 1 no, 2 yes. See [`USED_SIZE`].
static OPTIMIZED: AtomicUsize = AtomicUsize::new(0);

/// Asks the processor what this module remembers: once, before the first fork.
pub fn init() {
    used_size();
    hwcap();
    has_xsaveopt();
}

/// Whether the processor has XSAVEOPT, which leaves out what is in its initial state, or unchanged since it was loaded
/// from the same area.
pub(crate) fn has_xsaveopt() -> bool {
    if OPTIMIZED.load(Ordering::Relaxed) == 0 {
        let eax = core::arch::x86_64::__cpuid_count(13, 1).eax;
        OPTIMIZED.store(1 + (eax & 1) as usize, Ordering::Relaxed);
    }
    OPTIMIZED.load(Ordering::Relaxed) == 2
}

/// The processor's basic features as AT_HWCAP shows them.
pub fn hwcap() -> u64 {
    if HWCAP.load(Ordering::Relaxed) == 0 {
        HWCAP.store(core::arch::x86_64::__cpuid(1).edx as usize, Ordering::Relaxed);
    }
    HWCAP.load(Ordering::Relaxed) as u64
}

/// Bytes of the area that are in use with the enabled components: what a signal frame holds.
pub fn used_size() -> usize {
    match USED_SIZE.load(Ordering::Relaxed) {
        0 => {
            let n = measure();
            USED_SIZE.store(n, Ordering::Relaxed);
            n
        }
        n => n,
    }
}

/// Asks CPUID leaf 13 where the enabled components end.
fn measure() -> usize {
    let feats = enabled_features();
    let mut end = 576;
    for i in 2..8u32 {
        if feats & (1 << i) != 0 {
            let r = core::arch::x86_64::__cpuid_count(13, i);
            end = end.max((r.eax + r.ebx) as usize);
        }
    }
    end.min(XSAVE_SIZE)
}
