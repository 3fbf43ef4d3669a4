//! /proc/cpuinfo: what CPUID says, for as many CPUs as the domain has.

use alloc::string::String;
use alloc::vec::Vec;
use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

use super::put::put;
use crate::kernel;

/// Names of the bits of a register; an empty name is not shown.
type Bits = [&'static str; 32];

#[rustfmt::skip]
const L1_EDX: Bits = [
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "", "sep", "mtrr", "pge", "mca", "cmov",
    "pat", "pse36", "pn", "clflush", "", "dts", "acpi", "mmx", "fxsr", "sse", "sse2", "ss", "ht", "tm", "ia64", "pbe",
];
#[rustfmt::skip]
const L1_ECX: Bits = [
    "pni", "pclmulqdq", "dtes64", "monitor", "ds_cpl", "vmx", "smx", "est", "tm2", "ssse3", "cid", "sdbg", "fma",
    "cx16", "xtpr", "pdcm", "", "pcid", "dca", "sse4_1", "sse4_2", "x2apic", "movbe", "popcnt",
    "tsc_deadline_timer", "aes", "xsave", "", "avx", "f16c", "rdrand", "hypervisor",
];
#[rustfmt::skip]
const L7_EBX: Bits = [
    "fsgsbase", "tsc_adjust", "sgx", "bmi1", "hle", "avx2", "", "smep", "bmi2", "erms", "invpcid", "rtm", "cqm", "",
    "mpx", "rdt_a", "avx512f", "avx512dq", "rdseed", "adx", "smap", "avx512ifma", "", "clflushopt", "clwb",
    "intel_pt", "avx512pf", "avx512er", "avx512cd", "sha_ni", "avx512bw", "avx512vl",
];
#[rustfmt::skip]
const L7_ECX: Bits = [
    "", "avx512vbmi", "umip", "pku", "", "waitpkg", "avx512_vbmi2", "", "gfni", "vaes", "vpclmulqdq",
    "avx512_vnni", "avx512_bitalg", "tme", "avx512_vpopcntdq", "", "la57", "", "", "", "", "", "rdpid", "", "",
    "cldemote", "", "movdiri", "movdir64b", "enqcmd", "sgx_lc", "",
];
// AMX (bits 22, 24 and 25) is refused to domains.
#[rustfmt::skip]
const L7_EDX: Bits = [
    "", "", "avx512_4vnniw", "avx512_4fmaps", "fsrm", "", "", "", "avx512_vp2intersect", "", "md_clear", "", "", "",
    "serialize", "", "tsxldtrk", "", "pconfig", "arch_lbr", "", "", "", "avx512_fp16", "", "", "",
    "", "flush_l1d", "arch_capabilities", "", "",
];
#[rustfmt::skip]
const X1_EDX: Bits = [
    "", "", "", "", "", "", "", "", "", "", "", "syscall", "", "", "", "", "", "", "", "mp", "nx", "", "mmxext", "", "",
    "fxsr_opt", "pdpe1gb", "rdtscp", "", "lm", "3dnowext", "3dnow",
];
#[rustfmt::skip]
const X1_ECX: Bits = [
    "lahf_lm", "cmp_legacy", "svm", "extapic", "cr8_legacy", "abm", "sse4a", "misalignsse", "3dnowprefetch", "osvw",
    "ibs", "xop", "skinit", "wdt", "", "lwp", "fma4", "tce", "", "nodeid_msr", "", "tbm", "topoext", "perfctr_core",
    "perfctr_nb", "", "bpext", "ptsc", "perfctr_llc", "mwaitx", "", "",
];
#[rustfmt::skip]
const XSAVE_EAX: Bits = [
    "xsaveopt", "xsavec", "xgetbv1", "xsaves", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "", "",
    "", "", "", "", "", "", "", "", "",
];

/// A leaf, or zeros if the CPU does not have it.
fn leaf(n: u32, sub: u32) -> CpuidResult {
    if n <= __cpuid(n & 0x8000_0000).eax {
        __cpuid_count(n, sub)
    } else {
        CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
    }
}

fn flags() -> String {
    let (l1, l7, x1) = (leaf(1, 0), leaf(7, 0), leaf(0x8000_0001, 0));
    let words = [
        (l1.edx, &L1_EDX),
        (x1.edx, &X1_EDX),
        (l1.ecx, &L1_ECX),
        (x1.ecx, &X1_ECX),
        (l7.ebx, &L7_EBX),
        (leaf(0xd, 1).eax, &XSAVE_EAX),
        (l7.ecx, &L7_ECX),
        (l7.edx, &L7_EDX),
    ];
    let mut s = String::new();
    for (word, names) in words {
        for (bit, name) in names.iter().enumerate() {
            if word & 1 << bit != 0 && !name.is_empty() {
                s.push(' ');
                s += name;
            }
        }
    }
    // Properties Linux derives.
    if leaf(0x8000_0007, 0).edx & 1 << 8 != 0 {
        s += " constant_tsc nonstop_tsc";
    }
    s += " rep_good nopl cpuid tsc_known_freq";
    s
}

fn text_of(words: &[u32]) -> String {
    let b: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
    String::from(String::from_utf8_lossy(&b[..end]).trim())
}

/// The name of the CPU model.
fn brand() -> String {
    let words: Vec<u32> = (0x8000_0002..=0x8000_0004)
        .flat_map(|n| {
            let r = leaf(n, 0);
            [r.eax, r.ebx, r.ecx, r.edx]
        })
        .collect();
    text_of(&words)
}

/// Size of the largest cache in KiB.
fn cache_kb() -> u32 {
    let sizes = (0..8).map(|i| leaf(4, i)).take_while(|r| r.eax & 0x1f != 0).map(|r| {
        let (ways, parts, line) = ((r.ebx >> 22) + 1, (r.ebx >> 12 & 0x3ff) + 1, (r.ebx & 0xfff) + 1);
        (u64::from(ways) * u64::from(parts) * u64::from(line) * (u64::from(r.ecx) + 1) / 1024) as u32
    });
    sizes.max().unwrap_or(0)
}

/// The file.
pub fn cpuinfo() -> String {
    let id = leaf(0, 0);
    let vendor = text_of(&[id.ebx, id.edx, id.ecx]);
    let sig = leaf(1, 0).eax;
    let (base_family, base_model) = (sig >> 8 & 0xf, sig >> 4 & 0xf);
    let family = if base_family == 15 { base_family + (sig >> 20 & 0xff) } else { base_family };
    let model = if base_family >= 6 { base_model | (sig >> 12 & 0xf0) } else { base_model };
    // Nominal frequency, where the CPU tells; the same number every time for tools that compare.
    let mhz = match leaf(0x16, 0).eax & 0xffff {
        0 => 2000,
        m => m,
    };
    let address = leaf(0x8000_0008, 0).eax;
    let (flags, brand, cache, cpus) = (flags(), brand(), cache_kb(), kernel().vcpu_limit);
    let mut s = String::new();
    for i in 0..cpus {
        put(
            &mut s,
            format_args!(
                "processor\t: {i}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {brand}\nstepping\t: {}\nmicrocode\t: 0x1\ncpu MHz\t\t: {mhz}.000\ncache size\t: {cache} KB\n",
                sig & 0xf
            ),
        );
        put(
            &mut s,
            format_args!(
                "physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {i}\ncpu cores\t: {cpus}\napicid\t\t: {i}\ninitial apicid\t: {i}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t:{flags}\nbugs\t\t:\nbogomips\t: {}.00\nclflush size\t: 64\ncache_alignment\t: 64\naddress sizes\t: {} bits physical, {} bits virtual\npower management:\n\n",
                id.eax,
                mhz * 2,
                address & 0xff,
                address >> 8 & 0xff
            ),
        );
    }
    s
}
