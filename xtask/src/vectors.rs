//! Proves by disassembly that the guest kernel leaves vector registers alone: the fast entry saves none
//! (guest/machine/src/cpu/fast.rs), because no instruction of the kernel touches them. The one code it runs that is
//! not its own is the host's vDSO, of which `clock_gettime` is followed as far as it goes.
//!
//! Instructions are judged by the processor feature they belong to, from a list of those that have no such
//! registers; what is not on it is reported.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;

use iced_x86::{CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

const TARGET: &str = "x86_64-unknown-none";
const KERNEL: &str = "target/kernel/x86_64-unknown-none/kernel/doppel-kernel";
/// Fewer instructions than any kernel has: something else was read.
const LEAST: usize = 50_000;

/// Features whose instructions know general registers only. Of XSAVE they are xgetbv, xsave and xrstor, which move
/// the program's own state.
const SCALAR: [CpuidFeature; 25] = [
    CpuidFeature::INTEL8086,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL286,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::X64,
    CpuidFeature::CMOV,
    CpuidFeature::CPUID,
    CpuidFeature::CX8,
    CpuidFeature::CMPXCHG16B,
    CpuidFeature::PAUSE,
    CpuidFeature::MULTIBYTENOP,
    CpuidFeature::TSC,
    CpuidFeature::RDTSCP,
    CpuidFeature::RDPID,
    CpuidFeature::SYSCALL,
    CpuidFeature::FSGSBASE,
    CpuidFeature::XSAVE,
    CpuidFeature::XSAVEOPT,
    CpuidFeature::RDRAND,
    CpuidFeature::CET_IBT,
    CpuidFeature::MOVBE,
    CpuidFeature::POPCNT,
    CpuidFeature::LZCNT,
    // tzcnt: compilers write it for bsf, as which older processors read it.
    CpuidFeature::BMI1,
];

/// Checks the kernel the last build made.
pub fn run() -> Result<(), String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let lib = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let lib = lib.map_err(|e| format!("vectors: cannot run rustc: {e}"))?;
    if !Path::new(String::from_utf8_lossy(&lib.stdout).trim()).is_dir() {
        println!("vectors: target {TARGET} is not installed, so kernels are built to save vector registers");
        return Ok(());
    }
    let elf = fs::read(KERNEL).map_err(|e| format!("vectors: {KERNEL}: {e}; build first: `make build`"))?;
    let instructions = kernel(&elf)?;
    let followed = clock()?;
    println!("vectors: none in the {instructions} instructions of the kernel, nor in {followed} of the vDSO");
    Ok(())
}

/// Whether the instruction touches none but general registers.
fn is_scalar(i: &Instruction) -> bool {
    let fence = matches!(i.mnemonic(), Mnemonic::Lfence | Mnemonic::Mfence | Mnemonic::Sfence);
    let prefetch = matches!(
        i.mnemonic(),
        Mnemonic::Prefetcht0 | Mnemonic::Prefetcht1 | Mnemonic::Prefetcht2 | Mnemonic::Prefetchnta
    );
    fence || prefetch || i.cpuid_features().iter().all(|f| SCALAR.contains(f))
}

/// Every executable byte of the kernel, instruction by instruction; compiled code has no data among it.
fn kernel(elf: &[u8]) -> Result<usize, String> {
    let file = object::File::parse(elf).map_err(|e| format!("vectors: not an ELF file: {e}"))?;
    let mut symbols: Vec<(u64, &str)> = file
        .symbols()
        .filter_map(|s| Some((s.address(), s.name().ok()?)))
        .filter(|s| !s.1.is_empty())
        .collect();
    symbols.sort_unstable();
    let mut count = 0;
    let mut bad = Vec::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let code = section.data().map_err(|e| format!("vectors: {e}"))?;
        for i in Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE) {
            count += 1;
            if i.is_invalid() || !is_scalar(&i) {
                let n = symbols.partition_point(|s| s.0 <= i.ip());
                let name = n.checked_sub(1).map_or("?", |n| symbols[n].1);
                bad.push(format!("{:#x} {:?} in {name}", i.ip(), i.code()));
            }
        }
    }
    if !bad.is_empty() {
        bad.truncate(20);
        return Err(format!("vectors: the kernel touches more than general registers:\n{}", bad.join("\n")));
    }
    if count < LEAST { Err(format!("vectors: {count} instructions are no kernel")) } else { Ok(count) }
}

/// Follows this host's `__vdso_clock_gettime` along direct jumps and calls; value: instructions seen.
fn clock() -> Result<usize, String> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(|e| format!("vectors: {e}"))?;
    let range = maps.lines().find(|l| l.ends_with("[vdso]")).and_then(|l| l.split_once(' '));
    let Some((start, end)) = range.and_then(|(r, _)| r.split_once('-')) else {
        return Err("vectors: this host has no vDSO".into());
    };
    let parse = |s: &str| u64::from_str_radix(s, 16).map_err(|e| format!("vectors: {e}"));
    let (start, end) = (parse(start)?, parse(end)?);
    let mut image = vec![0; (end - start) as usize];
    let mut memory = fs::File::open("/proc/self/mem").map_err(|e| format!("vectors: {e}"))?;
    memory
        .seek(SeekFrom::Start(start))
        .and_then(|_| memory.read_exact(&mut image))
        .map_err(|e| format!("vectors: cannot read the vDSO: {e}"))?;
    let file = object::File::parse(&*image).map_err(|e| format!("vectors: vDSO: {e}"))?;
    let symbol = file.dynamic_symbols().find(|s| s.name() == Ok("__vdso_clock_gettime"));
    let entry = symbol.ok_or("vectors: the vDSO has no clock_gettime")?.address();
    let mut seen = BTreeSet::new();
    let mut work = vec![entry];
    while let Some(mut at) = work.pop() {
        while seen.insert(at) {
            let code = usize::try_from(at).ok().and_then(|a| image.get(a..)).unwrap_or_default();
            let i = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
            if i.is_invalid() || !is_scalar(&i) {
                return Err(format!("vectors: {:?} at {at:#x} in the vDSO's clock_gettime", i.code()));
            }
            if i.op_count() > 0 && i.op0_kind() == OpKind::NearBranch64 {
                work.push(i.near_branch_target());
            }
            match i.flow_control() {
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::Exception => break,
                // Jump tables are not resolved; nobody has seen one there.
                FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                    return Err(format!(
                        "vectors: {at:#x} in the vDSO's clock_gettime goes somewhere unknown"
                    ));
                }
                _ => at = i.next_ip(),
            }
        }
    }
    Ok(seen.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(code: &[u8]) -> bool {
        is_scalar(&Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode())
    }

    #[test]
    fn instructions_are_told_apart() {
        // mov rax, [rdi]; rep movsb; lock xadd [rdi], eax; xsave64 [rdi]; rdtscp; lfence; wrgsbase rax; sahf.
        for good in [
            &[0x48, 0x8b, 0x07][..],
            &[0xf3, 0xa4],
            &[0xf0, 0x0f, 0xc1, 0x07],
            &[0x48, 0x0f, 0xae, 0x27],
            &[0x0f, 0x01, 0xf9],
            &[0x0f, 0xae, 0xe8],
            &[0xf3, 0x48, 0x0f, 0xae, 0xd8],
            &[0x9e],
        ] {
            assert!(scalar(good), "{good:x?}");
        }
        // movups xmm0, [rdi]; movd mm0, eax; fld1; vzeroupper; kmovw k1, eax; pshufd; ldmxcsr [rdi]; emms.
        for bad in [
            &[0x0f, 0x10, 0x07][..],
            &[0x0f, 0x6e, 0xc0],
            &[0xd9, 0xe8],
            &[0xc5, 0xf8, 0x77],
            &[0xc5, 0xf8, 0x92, 0xc8],
            &[0x66, 0x0f, 0x70, 0xc0, 0],
            &[0x0f, 0xae, 0x17],
            &[0x0f, 0x77],
        ] {
            assert!(!scalar(bad), "{bad:x?}");
        }
    }

    #[test]
    fn ordinary_programs_are_no_kernel() {
        let error = kernel(&fs::read("/proc/self/exe").unwrap()).unwrap_err();
        assert!(error.contains("more than general registers"), "{error}");
    }

    #[test]
    fn the_clock_is_followed() {
        assert!(clock().unwrap() > 10);
    }
}
