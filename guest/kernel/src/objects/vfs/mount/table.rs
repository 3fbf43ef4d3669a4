//! The mount table as text: /proc/PID/mounts and mountinfo.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::vfs;
use crate::Result;
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::{File, FileOps, Output, Whence};

/// An open /proc/PID/mounts or mountinfo: its text, and whether the table has changed since it was last asked.
pub(crate) struct Table {
    text: Arc<dyn FileOps>,
    seen: AtomicU64,
}

impl Table {
    /// `text` shows the table.
    pub(crate) fn new(text: Arc<dyn FileOps>) -> Arc<Self> {
        Arc::new(Self { text, seen: AtomicU64::new(vfs().changes.load(Ordering::SeqCst)) })
    }
}

impl FileOps for Table {
    fn read(&self, file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        self.text.read(file, out, offset)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        self.text.seek(file, offset, whence)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&vfs().changed);
        }
        let now = vfs().changes.load(Ordering::SeqCst);
        let ready = PollEvents::READABLE;
        if self.seen.swap(now, Ordering::SeqCst) == now {
            ready
        } else {
            ready | PollEvents::PRI | PollEvents::ERR
        }
    }
}

/// /proc/mounts.
pub fn mounts_text() -> alloc::string::String {
    use alloc::string::String;
    let mut out = String::new();
    for m in vfs().list() {
        let at = m.at.as_ref().map_or_else(|| b"/".to_vec(), Path::name);
        let (source, at) = (escape(&m.source), escape(&at));
        out += &alloc::format!("{source} {at} {} {} 0 0\n", m.fstype, m.options());
    }
    out
}

/// /proc/PID/mountinfo.
pub fn mountinfo_text() -> alloc::string::String {
    use alloc::string::String;
    let mut out = String::new();
    for m in vfs().list() {
        let at = m.at.as_ref().map_or_else(|| b"/".to_vec(), Path::name);
        let parent = m.at.as_ref().map_or(1, |p| p.mount().id);
        let dev = m.root.inode().place().0;
        let (source, at) = (escape(&m.source), escape(&at));
        out += &alloc::format!(
            "{} {parent} {}:{} / {at} {} - {} {source} rw\n",
            m.id,
            dev >> 8 & 0xfff,
            dev & 0xff,
            m.options(),
            m.fstype,
        );
    }
    out
}

/// Space, tab, newline and backslash as octal, as the mount tables have them.
fn escape(name: &[u8]) -> alloc::string::String {
    let mut out = alloc::string::String::new();
    for c in alloc::string::String::from_utf8_lossy(name).chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' => out += &alloc::format!("\\{:03o}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out
}
