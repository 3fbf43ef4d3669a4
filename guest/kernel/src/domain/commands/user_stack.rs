//! A thread's calls in its program, for `stacks`: its registers, its stack and what the files say that are mapped.
//!
//! Programs are hostile: stacks are read by copies that may fail, files by bounded steps (`doppel_unwind::object`), and what
//! comes out is only an allegation.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use doppel_machine::task::UserContext;
use doppel_unwind::Registers;
use doppel_unwind::cfi::{RBP, REGISTERS, RETURN_ADDRESS, RSP};
use doppel_unwind::object::{Caller, Object, Source};

use crate::core::sched::runnable::Runnable;
use crate::memory::{PAGE, Prot};
use crate::objects::vfs::File;
use crate::process::task::{Process, Thread, current, remote};

/// Most frames of a backtrace.
const DEPTH: usize = 64;
/// Bytes of the stack that are read first.
const STACK: usize = 32 << 10;
/// Most further pages that are read of a thread's memory.
const PAGES_MAX: usize = 16;
/// Most files and names that are remembered while threads are looked at.
const REMEMBERED: usize = 4096;

/// A mapped file.
struct Mapped(Arc<File>);

impl Source for Mapped {
    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        (self.0.read_at(at, buf) == Ok(buf.len())).then_some(())
    }
}

/// Where an address is: in which file, of which number, at which offset.
struct CodeLocation {
    file: Mapped,
    key: (u64, u64),
    name: String,
    offset: u64,
}

/// Memory of a thread's process, as far as it was read.
struct Memory<'a> {
    process: &'a Arc<Process>,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Memory<'_> {
    fn word(&mut self, at: u64) -> Option<u64> {
        if let Some(word) =
            self.pieces.iter().find_map(|(start, bytes)| word_of(bytes, at.checked_sub(*start)?))
        {
            return Some(word);
        }
        if self.pieces.len() > PAGES_MAX {
            return None;
        }
        let start = at & !(PAGE - 1);
        let bytes = remote::read(self.process, start, PAGE as usize).unwrap_or_default();
        let word = word_of(&bytes, at - start);
        self.pieces.push((start, bytes));
        word
    }
}

fn word_of(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// What was read of files while one command looks at threads.
#[derive(Default)]
pub struct Files {
    objects: BTreeMap<(u64, u64), Option<Arc<Object>>>,
    names: BTreeMap<((u64, u64), u64), Option<String>>,
}

impl Files {
    /// A line for each call of a thread that waits, innermost first; nothing for those who may not look into it.
    pub fn calls(&mut self, t: &Thread) -> String {
        let mut lines = String::new();
        let process = &t.process;
        if !t.entity().waits() || remote::may_access(&current().process, process).is_err() {
            return lines;
        }
        let regs = t.task.regs();
        let stack = remote::read(process, regs.rsp, STACK).unwrap_or_default();
        // One that has run meanwhile stands elsewhere.
        let now = t.task.regs();
        if !t.entity().waits() || (now.rip, now.rsp) != (regs.rip, regs.rsp) {
            return lines;
        }
        let mut memory = Memory { process, pieces: alloc::vec![(regs.rsp, stack)] };
        let (mut registers, mut exact) = (registers(&regs), false);
        for _ in 0..DEPTH {
            let pc = registers.pc();
            // A return address may lie behind the last instruction of its function, so the call before it counts.
            let Some(at) = pc.checked_sub(u64::from(!exact)) else { break };
            let Some(place) = place(process, at) else { break };
            let object = self.object(&place);
            lines.push_str(&self.line(&place, object.as_deref(), pc - at));
            let address = object.as_ref().and_then(|o| o.address(place.offset));
            let caller = match (&object, address) {
                (Some(o), Some(a)) => o.caller(&place.file, a, &registers, &mut |at| memory.word(at)),
                _ => Caller::NotDescribed,
            };
            let caller = match caller {
                Caller::Found(caller, interrupted) => Some((caller, interrupted)),
                Caller::NotDescribed => {
                    by_frame_pointer(&registers, &mut memory).map(|caller| (caller, false))
                }
                Caller::End => None,
            };
            match caller {
                Some((caller, interrupted)) if caller.pc() != 0 => (registers, exact) = (caller, interrupted),
                _ => break,
            }
        }
        lines
    }

    fn object(&mut self, place: &CodeLocation) -> Option<Arc<Object>> {
        if self.objects.len() >= REMEMBERED {
            self.objects.clear();
        }
        let read = || Object::read(&place.file).map(Arc::new);
        self.objects.entry(place.key).or_insert_with(read).clone()
    }

    /// `FILE FUNCTION+OFFSET`, or `FILE+ADDRESS`, as the file counts; the code stands `behind` the place.
    fn line(&mut self, place: &CodeLocation, object: Option<&Object>, behind: u64) -> String {
        if self.names.len() >= REMEMBERED {
            self.names.clear();
        }
        let name = self.names.entry((place.key, place.offset)).or_insert_with(|| {
            let object = object?;
            let name = object.function(&place.file, object.address(place.offset)?)?;
            Some(format!("{}+{:#x}", name.name, name.offset.wrapping_add(behind)))
        });
        match name {
            Some(name) => format!("{} {name}\n", place.name),
            None => {
                let address = object.and_then(|o| o.address(place.offset)).unwrap_or(place.offset);
                format!("{}+{:#x}\n", place.name, address.wrapping_add(behind))
            }
        }
    }
}

/// By DWARF's numbers.
fn registers(r: &UserContext) -> Registers {
    let mut all = [0; REGISTERS];
    let general = [
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ];
    all[..general.len()].copy_from_slice(&general);
    all[RETURN_ADDRESS] = r.rip;
    Registers(all)
}

/// The caller of code that no file describes, if it keeps a frame pointer.
fn by_frame_pointer(r: &Registers, memory: &mut Memory<'_>) -> Option<Registers> {
    const FRAME_MAX: u64 = 1 << 20;
    let frame = r.0[RBP];
    let depth = frame.checked_sub(r.sp())?;
    if !frame.is_multiple_of(8) || depth > FRAME_MAX {
        return None;
    }
    let mut caller = *r;
    caller.0[RBP] = memory.word(frame)?;
    caller.0[RETURN_ADDRESS] = memory.word(frame.checked_add(8)?)?;
    caller.0[RSP] = frame.checked_add(16)?;
    Some(caller)
}

/// The file that is mapped executable at an address.
fn place(process: &Process, at: u64) -> Option<CodeLocation> {
    let v = process.space().mm.vma(at).filter(|v| v.prot.contains(Prot::EXEC))?;
    let file = v.file?;
    let (key, name) = (file.place()?, file.name());
    let name = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    let file = (file as Arc<dyn Any + Send + Sync>).downcast::<File>().ok()?;
    // A name is one word of a line of its own.
    let name = name.chars().map(|c| if c.is_whitespace() || c.is_control() { '?' } else { c }).collect();
    Some(CodeLocation { file: Mapped(file), key, name, offset: v.offset })
}
