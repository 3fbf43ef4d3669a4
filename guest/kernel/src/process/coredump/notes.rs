//! The notes of a core file: who the process was, and the registers of its threads.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::memory::Segment;
use crate::memory::PAGE;
use crate::process::ptrace;
use crate::process::signal::SigInfo;
use crate::process::task::{Process, Thread};
use crate::process::time::cpu;
use crate::process::time::used::Times;

const NT_PRSTATUS: u32 = 1;
const NT_PRFPREG: u32 = 2;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;
const NT_X86_XSTATE: u32 = 0x202;

/// Bytes of `struct elf_prstatus` and `struct elf_prpsinfo`.
const PRSTATUS: usize = 336;
const PRPSINFO: usize = 136;

/// Bytes that grow field by field.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn i16(&mut self, v: i32) -> &mut Self {
        self.0.extend_from_slice(&v.to_le_bytes()[..2]);
        self
    }
    fn i32(&mut self, v: i32) -> &mut Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn bytes(&mut self, v: &[u8], len: usize) -> &mut Self {
        let n = v.len().min(len);
        self.0.extend_from_slice(&v[..n]);
        self.0.resize(self.0.len() + len - n, 0);
        self
    }
    /// Fills up to `len` bytes.
    fn to(&mut self, len: usize) -> &mut Self {
        self.0.resize(len, 0);
        self
    }
    fn times(&mut self, t: Times) -> &mut Self {
        for ns in [t.user, t.system] {
            self.u64(ns / 1_000_000_000).u64(ns % 1_000_000_000 / 1000);
        }
        self
    }
}

/// Appends one note.
fn note(out: &mut Vec<u8>, owner: &[u8], kind: u32, data: &[u8]) {
    let words = [owner.len() as u32 + 1, data.len() as u32, kind];
    words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
    out.extend_from_slice(owner);
    // At least one NUL.
    out.resize((out.len() + 1).next_multiple_of(4), 0);
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// All notes: those of the current thread `t`, which the signal `info` ends, first.
pub(super) fn all(t: &Arc<Thread>, info: &SigInfo, segments: &[Segment]) -> Vec<u8> {
    let p = &t.process;
    let mut out = Vec::new();
    note(&mut out, b"CORE", NT_PRSTATUS, &prstatus(t, info));
    note(&mut out, b"CORE", NT_PRPSINFO, &prpsinfo(t));
    note(&mut out, b"CORE", NT_SIGINFO, &info.to_bytes());
    note(&mut out, b"CORE", NT_AUXV, &p.auxv.lock().clone());
    note(&mut out, b"CORE", NT_FILE, &files(segments));
    state(&mut out, t);
    for other in p.threads().iter().filter(|o| !Arc::ptr_eq(o, t)) {
        note(&mut out, b"CORE", NT_PRSTATUS, &prstatus(other, info));
        state(&mut out, other);
    }
    out
}

/// Floating point and vector registers.
fn state(out: &mut Vec<u8>, t: &Thread) {
    note(out, b"CORE", NT_PRFPREG, &ptrace::fp_bytes(t));
    note(out, b"LINUX", NT_X86_XSTATE, &ptrace::xstate_bytes(t));
}

fn family(f: &mut Fields, p: &Process, id: i32) {
    f.i32(id).i32(p.ppid()).i32(p.pgid()).i32(p.session().sid);
}

fn prstatus(t: &Thread, info: &SigInfo) -> Vec<u8> {
    let p = &t.process;
    let mut f = Fields::default();
    f.i32(info.signo).i32(info.code).i32(0);
    f.i16(info.signo).i16(0);
    f.u64(t.signals.pending()).u64(t.signals.mask());
    family(&mut f, p, t.tid());
    // The leader stands for those that have gone, too.
    let own = if t.tid() == p.pid { cpu::process_times(p) } else { cpu::thread_times(t) };
    f.times(own).times(p.used.children());
    let regs = ptrace::general_bytes(t);
    f.bytes(&regs, regs.len());
    f.i32(1).to(PRSTATUS);
    f.0
}

fn prpsinfo(t: &Thread) -> Vec<u8> {
    let p = &t.process;
    let (cred, comm) = (t.cred(), *t.comm.lock());
    let nice = p.nice.load(core::sync::atomic::Ordering::Relaxed);
    let mut args = p.cmdline.lock().clone();
    args.pop();
    args.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
    args.truncate(79);
    let mut f = Fields::default();
    f.bytes(&[0, b'R', 0, nice.to_le_bytes()[0]], 8).u64(0);
    f.i32(cred.ruid.cast_signed()).i32(cred.rgid.cast_signed());
    family(&mut f, p, p.pid);
    f.bytes(&comm, 16).bytes(&args, 80).to(PRPSINFO);
    f.0
}

/// Which files are mapped where.
fn files(segments: &[Segment]) -> Vec<u8> {
    let named: Vec<_> = segments.iter().filter_map(|s| Some((s, s.name.as_ref()?))).collect();
    let mut f = Fields::default();
    f.u64(named.len() as u64).u64(PAGE);
    for (s, _) in &named {
        f.u64(s.start).u64(s.end).u64(s.file_offset / PAGE);
    }
    for (_, name) in &named {
        f.0.extend_from_slice(name);
        f.0.push(0);
    }
    f.0
}
