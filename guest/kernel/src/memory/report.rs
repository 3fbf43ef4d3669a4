//! What /proc shows of an address space: maps, smaps, sizes.
//!
//! Residency is the host's business, and is not shown: what is mapped and charged counts as resident.

use crate::memory::Mapped;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use super::Mm;
use super::vma::{Backing, Prot, VmFlags, Vma};

/// Sizes in bytes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default)]
pub struct VmStats {
    pub size: u64,
    pub resident: u64,
    pub shared: u64,
    pub text: u64,
    pub data: u64,
    pub stack: u64,
    pub stack_start: u64,
    pub locked: u64,
    pub swapped: u64,
}

/// Sizes of a map.
pub fn vm_stats(mm: &Mm) -> VmStats {
    let inner = mm.inner.lock();
    let mut s = VmStats {
        size: inner.total,
        stack_start: inner.areas.start_stack,
        locked: inner.locked,
        ..VmStats::default()
    };
    for (start, end, v) in inner.map.iter() {
        let len = end - start;
        if v.flags.contains(VmFlags::STACK) {
            s.stack += len;
        } else if v.prot.contains(Prot::EXEC) {
            s.text += len;
        } else if v.prot.contains(Prot::WRITE) && !v.shared() {
            s.data += len;
        }
        if v.shared() {
            s.shared += len;
        }
        if !v.prot.is_empty() && !v.flags.intersects(VmFlags::NO_CHARGE | VmFlags::STACK) {
            s.resident += len;
        }
    }
    s.swapped = inner.swapped_in(0, u64::MAX);
    s.resident = s.resident.min(inner.charged + s.text + s.shared).saturating_sub(s.swapped).max(4096);
    s
}

impl Mm {
    /// How many different files that `f` accepts are mapped here.
    pub fn count_files(&self, f: impl Fn(&dyn Mapped) -> bool) -> u64 {
        let inner = self.inner.lock();
        let mut seen: alloc::vec::Vec<u64> = alloc::vec::Vec::new();
        for file in inner.map.iter().filter_map(|(.., v)| v.file.as_ref()) {
            if !seen.contains(&file.id()) && f(&**file) {
                seen.push(file.id());
            }
        }
        seen.len() as u64
    }
}

/// Formatting into a String cannot fail.
fn put(s: &mut String, args: core::fmt::Arguments<'_>) {
    let r = s.write_fmt(args);
    debug_assert!(r.is_ok());
}

/// One line of maps without its newline.
fn head(out: &mut String, start: u64, end: u64, v: &Vma, brk: (u64, u64)) {
    let bit = |b: Prot, c: char| if v.prot.contains(b) { c } else { '-' };
    let stat = v.file.as_ref().and_then(|f| f.place());
    let (dev, ino) = match (stat, &v.backing) {
        (Some(place), _) => place,
        (None, Backing::Pages(o)) => (1, o.id()),
        (None, _) => (0, 0),
    };
    let offset = if matches!(v.backing, Backing::Anonymous) { 0 } else { v.offset };
    let from = out.len();
    put(
        out,
        format_args!(
            "{start:08x}-{end:08x} {}{}{}{} {offset:08x} {:02x}:{:02x} {ino} ",
            bit(Prot::READ, 'r'),
            bit(Prot::WRITE, 'w'),
            bit(Prot::EXEC, 'x'),
            if v.shared() { 's' } else { 'p' },
            dev >> 8 & 0xfff,
            dev & 0xff,
        ),
    );
    let name = name(v, start, brk);
    if !name.is_empty() {
        while out.len() - from < 73 {
            out.push(' ');
        }
        out.push_str(&name);
    }
}

fn name(v: &Vma, start: u64, brk: (u64, u64)) -> String {
    if v.flags.contains(VmFlags::STACK) {
        return "[stack]".into();
    }
    if v.flags.contains(VmFlags::VDSO) {
        return "[vdso]".into();
    }
    match &v.file {
        Some(f) => String::from_utf8_lossy(&f.name()).into_owned(),
        None if v.shared() => "/dev/zero (deleted)".into(),
        None if start >= brk.0 && start < brk.1 => "[heap]".into(),
        None => String::new(),
    }
}

/// Calls `f` for a copy of every mapping, with the bytes of it that are in the swap region, so that names are looked up without the map's lock.
fn each(mm: &Mm, mut f: impl FnMut(u64, u64, &Vma, (u64, u64), u64)) {
    let (list, brk): (alloc::vec::Vec<(u64, u64, Vma, u64)>, _) = {
        let inner = mm.inner.lock();
        // Trampolines are not the program's: tools would take them for another mapping of the file.
        let shown = inner.map.iter().filter(|(_, _, v)| !v.flags.contains(VmFlags::TRAMPOLINE));
        let list = shown.map(|(s, e, v)| (s, e, v.clone(), inner.swapped_in(s, e))).collect();
        (list, (inner.areas.start_brk, inner.areas.brk))
    };
    for (s, e, v, swapped) in &list {
        f(*s, *e, v, brk, *swapped);
    }
}

/// /proc/PID/maps.
pub fn maps_text(mm: &Mm) -> String {
    let mut out = String::new();
    each(mm, |s, e, v, brk, _| {
        head(&mut out, s, e, v, brk);
        out.push('\n');
    });
    out
}

/// The figures of one smaps entry.
fn figures(out: &mut String, len: u64, v: &Vma, swapped: u64) {
    let (kb, swap) = (len / 1024, swapped / 1024);
    let rss = if v.prot.is_empty() || v.flags.contains(VmFlags::NO_CHARGE) { 0 } else { kb - swap };
    let (shared, private) = if v.shared() { (rss, 0) } else { (0, rss) };
    let anon = if matches!(v.backing, Backing::Anonymous) { rss } else { 0 };
    for (name, value) in [
        ("Size", kb),
        ("KernelPageSize", 4),
        ("MMUPageSize", 4),
        ("Rss", rss),
        ("Pss", rss),
        ("Shared_Clean", 0),
        ("Shared_Dirty", shared),
        ("Private_Clean", 0),
        ("Private_Dirty", private),
        ("Referenced", rss),
        ("Anonymous", anon),
        ("LazyFree", 0),
        ("AnonHugePages", 0),
        ("Swap", swap),
        ("SwapPss", swap),
        ("Locked", if v.flags.contains(VmFlags::LOCKED) { kb } else { 0 }),
    ] {
        let label = format!("{name}:");
        put(out, format_args!("{label:<16}{value:>8} kB\n"));
    }
}

/// /proc/PID/smaps.
pub fn smaps_text(mm: &Mm) -> String {
    let mut out = String::new();
    each(mm, |s, e, v, brk, swapped| {
        head(&mut out, s, e, v, brk);
        out.push('\n');
        figures(&mut out, e - s, v, swapped);
        out.push_str("THPeligible:    0\nVmFlags:");
        for (bit, flag) in [(Prot::READ, " rd"), (Prot::WRITE, " wr"), (Prot::EXEC, " ex")] {
            if v.prot.contains(bit) {
                out.push_str(flag);
            }
        }
        out.push_str(if v.shared() { " sh mr mw me\n" } else { " mr mw me\n" });
    });
    out
}

/// /proc/PID/smaps_rollup.
pub fn smaps_rollup_text(mm: &Mm) -> String {
    let s = vm_stats(mm);
    let (kb, swap) = (s.resident / 1024, s.swapped / 1024);
    format!(
        "00010000-7e8000000000 ---p 00000000 00:00 0                          [rollup]\nRss:            {kb:>8} kB\nPss:            {kb:>8} kB\nPss_Anon:       {kb:>8} kB\nPrivate_Dirty:  {kb:>8} kB\nSwap:           {swap:>8} kB\n"
    )
}
