//! The names of core files: `core_pattern`, `core_uses_pid`.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::sync::SpinLock;

use crate::console;
use crate::task::{Thread, rlimit};
use crate::{Errno, Result, kernel};

/// Longest pattern (`CORENAME_MAX_SIZE`).
const PATTERN_MAX: usize = 127;

/// The domain's settings in /proc/sys/kernel.
pub struct Settings {
    pattern: SpinLock<Vec<u8>>,
    /// `core_uses_pid`: the process id follows a name that does not have it.
    pub uses_pid: AtomicBool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { pattern: SpinLock::new(b"core".to_vec()), uses_pid: AtomicBool::new(false) }
    }
}

impl Settings {
    /// The pattern; no core file is written if it is empty.
    pub fn pattern(&self) -> Vec<u8> {
        self.pattern.lock().clone()
    }

    /// Changes the pattern. EINVAL for one that names a program: nothing runs outside of the domain's processes.
    pub fn set_pattern(&self, text: &[u8]) -> Result<()> {
        let line = text.split(|b| *b == b'\n' || *b == 0).next().unwrap_or_default();
        let line = &line[..line.len().min(PATTERN_MAX)];
        if matches!(line.first(), Some(b'|' | b'@')) {
            console::log("core_pattern: core files cannot be piped to a program; give a file name\n");
            return Err(Errno::EINVAL);
        }
        *self.pattern.lock() = line.to_vec();
        Ok(())
    }
}

/// The name of the core file of `t`'s process, which the signal `signo` ends.
pub(super) fn expand(t: &Arc<Thread>, signo: i32) -> Vec<u8> {
    let settings = kernel().service::<Settings>();
    let pattern = settings.pattern();
    let (p, cred) = (&t.process, t.cred());
    let mut out = Vec::new();
    let mut has_pid = false;
    let mut rest = pattern.iter();
    while let Some(&b) = rest.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let number: String = match rest.next() {
            Some(b'%') => "%".into(),
            Some(b'p' | b'P') => {
                has_pid = true;
                format!("{}", p.pid)
            }
            Some(b'i' | b'I') => format!("{}", t.tid()),
            Some(b'u') => format!("{}", cred.ruid),
            Some(b'g') => format!("{}", cred.rgid),
            Some(b'd') => "1".into(),
            Some(b's') => format!("{signo}"),
            Some(b't') => format!("{}", crate::time::realtime_ns() / 1_000_000_000),
            Some(b'c') => format!("{}", p.rlimit(rlimit::CORE)),
            Some(b'C') => "0".into(),
            Some(b'h') => {
                put_name(&mut out, kernel().name().as_bytes());
                continue;
            }
            Some(b'e') => {
                let comm = *t.comm.lock();
                put_name(&mut out, comm.split(|b| *b == 0).next().unwrap_or_default());
                continue;
            }
            Some(b @ (b'f' | b'E')) => {
                let exe = p.exe.lock().as_ref().map(crate::fs::path::Path::name).unwrap_or_default();
                let whole = *b == b'E';
                let last = exe.rsplit(|b| *b == b'/').next().unwrap_or_default();
                put_name(&mut out, if whole { &exe } else { last });
                continue;
            }
            // Unknown ones vanish.
            _ => continue,
        };
        out.extend_from_slice(number.as_bytes());
    }
    if !has_pid && settings.uses_pid.load(Ordering::Relaxed) {
        out.extend_from_slice(format!(".{}", p.pid).as_bytes());
    }
    out
}

/// Appends a name that must not lead elsewhere.
fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    match name {
        b"." | b".." => out.extend(name.iter().map(|_| b'!')),
        _ => out.extend(name.iter().map(|&b| if b == b'/' { b'!' } else { b })),
    }
}
