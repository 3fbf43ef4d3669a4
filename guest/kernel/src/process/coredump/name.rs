//! The names of core files: `core_pattern`, `core_uses_pid`, and the arguments of a program that gets them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::process::task::{Resource, Thread};
use crate::{Errno, Result, kernel};

/// Longest pattern (`CORENAME_MAX_SIZE`).
const PATTERN_MAX: usize = 127;

/// The domain's settings in /proc/sys/kernel.
pub struct Settings {
    pattern: SpinLock<Vec<u8>>,
    /// `core_uses_pid`: the process id follows a name that does not have it.
    pub uses_pid: AtomicBool,
    /// `core_pipe_limit`: most programs that get cores at a time, which are then waited for; 0 for any number.
    pub pipe_limit: AtomicU32,
    /// How many there are.
    pub pipes: AtomicU32,
}

/// The domain's.
pub static SETTINGS: Part<Settings> = Part::new();

impl Default for Settings {
    fn default() -> Self {
        Self {
            pattern: SpinLock::new(b"core".to_vec()),
            uses_pid: AtomicBool::new(false),
            pipe_limit: AtomicU32::new(0),
            pipes: AtomicU32::new(0),
        }
    }
}

impl Settings {
    /// The pattern; no core file is written if it is empty.
    pub fn pattern(&self) -> Vec<u8> {
        self.pattern.lock().clone()
    }

    /// Changes the pattern. EINVAL for one that names a socket, to which no core goes.
    pub fn set_pattern(&self, text: &[u8]) -> Result<()> {
        let line = text.split(|b| *b == b'\n' || *b == 0).next().unwrap_or_default();
        let line = &line[..line.len().min(PATTERN_MAX)];
        if line.first() == Some(&b'@') {
            return Err(Errno::EINVAL);
        }
        *self.pattern.lock() = line.to_vec();
        Ok(())
    }
}

/// What becomes of a core.
pub(super) enum Target {
    /// It is a file of this name.
    File(Vec<u8>),
    /// It is the input of a program with these arguments.
    Program(Vec<Vec<u8>>),
}

/// What becomes of the core of `t`'s process, which the signal `signo` ends.
pub(super) fn target(t: &Arc<Thread>, signo: i32) -> Target {
    let settings = SETTINGS.get();
    let pattern = settings.pattern();
    if let Some(command) = pattern.strip_prefix(b"|") {
        // Arguments are told apart before they are filled in: names with blanks stay whole.
        let words = command.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        return Target::Program(words.map(|w| expand(t, signo, w).0).collect());
    }
    let (mut name, has_pid) = expand(t, signo, &pattern);
    if !has_pid && settings.uses_pid.load(Ordering::Relaxed) {
        name.extend_from_slice(format!(".{}", t.process.pid).as_bytes());
    }
    Target::File(name)
}

/// Fills a pattern in; whether it has the process id, too.
fn expand(t: &Arc<Thread>, signo: i32, pattern: &[u8]) -> (Vec<u8>, bool) {
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
            Some(b't') => format!("{}", crate::core::time::realtime_ns() / 1_000_000_000),
            Some(b'c') => format!("{}", p.rlimit(Resource::Core)),
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
                let exe =
                    p.exe.lock().as_ref().map(crate::objects::lookup::path::Path::name).unwrap_or_default();
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
    (out, has_pid)
}

/// Appends a name that must not lead elsewhere.
fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    match name {
        b"." | b".." => out.extend(name.iter().map(|_| b'!')),
        _ => out.extend(name.iter().map(|&b| if b == b'/' { b'!' } else { b })),
    }
}
