//! System calls of programs made into jumps when an image is written (docs/design.md §4; `doppel_abi_image::patch`).
//!
//! A system call site is patched only when disassembly from a known function start proves that it is one: bytes
//! alone prove nothing. Whatever is in doubt stays as it is and traps, which is slower and always right.
//!
//! Key types: [`scan`] takes a file and gives a [`Scan`], with the [`Patched`] segment; [`check()`] compares a
//! patched segment with its original; [`PatchReport`] is what the store remembers. Steps: `elf` (segment, function
//! starts), `frames` (unwind tables), `flow` (disassembly), `sites` (the decision), `emit`, `section` (the image).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod check;
mod elf;
mod emit;
mod flow;
mod frames;
pub(crate) mod section;
mod sites;

pub use check::check;
pub use emit::Patched;
pub use section::verify;

/// Version of the scanner's decisions: an image made by another one is made again by `--reuse`.
pub const SCANNER: u32 = 2;
const PAGE: u64 = 4096;
/// Most places in a file that look like a system call; bounds the work a hostile file makes.
const MOST_SITES: usize = 1 << 16;

/// Why a site is left to trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No direct control flow from a known function reaches it.
    Unreached,
    /// The disassembly of its function contradicts itself.
    Ambiguous,
    /// It makes a call that needs a trap's context (clone, fork, vfork), or it is an rt_sigreturn that unwinders
    /// know by its bytes only.
    Excluded,
    /// The instruction has prefixes.
    Prefixed,
    /// No `mov` just before it, and no free padding in reach.
    NoHole,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Unreached => "not reached from a known function",
            Self::Ambiguous => "ambiguous disassembly",
            Self::Excluded => "clone, fork, vfork or rt_sigreturn",
            Self::Prefixed => "instruction with prefixes",
            Self::NoHole => "no room nearby",
        }
    }
}

/// Why a whole file is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its headers make no sense.
    Malformed,
    /// It has several executable segments with system calls.
    Segments,
    /// Its executable segment is writable or larger than the file.
    Writable,
    /// There are no free addresses below it.
    NoRoom,
    /// It is too large for relative jumps.
    Distance,
    /// It has more system call instructions than a program has.
    TooMany,
}

impl Refusal {
    const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "malformed headers",
            Self::Segments => "several executable segments with system calls",
            Self::Writable => "writable or partly empty executable segment",
            Self::NoRoom => "no room below its lowest address",
            Self::Distance => "too large",
            Self::TooMany => "too many system call instructions",
        }
    }
}

/// What scanning one file gave.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// System call instructions found.
    pub sites: u32,
    /// Those left to trap, by reason.
    pub trapped: Vec<(u64, Reason)>,
    /// Why the whole file is left alone.
    pub refused: Option<Refusal>,
    /// The patched segment, if anything is patched.
    pub patched: Option<Patched>,
}

/// Scans the bytes of a file; `None` if it is no program or library of this machine.
#[must_use]
pub fn scan(file: &[u8]) -> Option<Scan> {
    if !elf::is_candidate(file) {
        return None;
    }
    let mut scan = Scan::default();
    let module = match elf::Module::parse(file) {
        Ok(Some(module)) => module,
        Ok(None) => return Some(scan),
        Err(refusal) => return Some(Scan { refused: Some(refusal), ..scan }),
    };
    // Most libraries make no system calls: not even the bytes are there.
    match module.text.windows(2).filter(|w| *w == [0x0f, 0x05]).count() {
        0 => return Some(scan),
        n if n > MOST_SITES => return Some(Scan { refused: Some(Refusal::TooMany), ..scan }),
        _ => {}
    }
    let mut flow = flow::Flow::new(&module);
    let sites = sites::sites(&mut flow);
    scan.sites = sites.len() as u32;
    scan.trapped = sites.iter().filter_map(|(at, v)| Some((module.base + *at as u64, v.err()?))).collect();
    if scan.trapped.len() < sites.len() {
        match emit::emit(&module, file, &sites) {
            Ok(patched) => scan.patched = Some(patched),
            Err(refusal) => scan.refused = Some(refusal),
        }
    }
    Some(scan)
}

/// One file of a [`PatchReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// Its path in the image.
    pub path: String,
    /// System call instructions found.
    pub sites: u32,
    /// Patched by rule a.
    pub rule_a: u32,
    /// Patched by rule b.
    pub rule_b: u32,
}

/// What was patched in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchReport {
    /// [`SCANNER`] when the image was written.
    pub scanner: u32,
    /// Programs and libraries scanned.
    pub scanned: u64,
    /// Of these, patched.
    pub files: u64,
    /// System call instructions in all of them.
    pub sites: u64,
    /// Patched by rule a: the `mov` of the number before the instruction became a jump.
    pub rule_a: u64,
    /// Patched by rule b: the instruction became a short jump to padding.
    pub rule_b: u64,
    /// Sites left to trap, by reason.
    pub trapped: BTreeMap<String, u64>,
    /// Files left alone, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Bytes the section takes in the image.
    pub bytes: u64,
    /// The files with most sites.
    pub top: Vec<FileReport>,
}

/// Files named in a report.
const TOP: usize = 20;

impl PatchReport {
    /// Adds a scanned file.
    pub(crate) fn add(&mut self, scan: &Scan) {
        self.scanned += 1;
        self.sites += u64::from(scan.sites);
        for (_, reason) in &scan.trapped {
            *self.trapped.entry(reason.text().into()).or_default() += 1;
        }
        if let Some(refusal) = scan.refused {
            *self.refused.entry(refusal.text().into()).or_default() += 1;
            let rest = u64::from(scan.sites) - scan.trapped.len() as u64;
            if rest > 0 {
                *self.trapped.entry("in a file left alone".into()).or_default() += rest;
            }
        }
        let (rule_a, rule_b) = scan.patched.as_ref().map_or((0, 0), |p| (p.rule_a, p.rule_b));
        self.files += u64::from(scan.patched.is_some());
        self.rule_a += u64::from(rule_a);
        self.rule_b += u64::from(rule_b);
    }
}

#[cfg(test)]
pub(crate) mod tests;
