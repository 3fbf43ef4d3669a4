//! /proc/locks.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use crate::objects::vfs::FdTable;
use crate::objects::vfs::attach::Attachments;
use crate::objects::vfs::attach::locks::Locks;

/// The locks of these files, which are open in these processes.
pub fn text(tables: impl Iterator<Item = (i32, Arc<FdTable>)>) -> String {
    let mut out = String::new();
    let mut seen: Vec<*const Locks> = Vec::new();
    let mut n = 0;
    for (pid, files) in tables {
        for (_, file) in files.list() {
            let Some(inode) = file.inode.as_ref() else { continue };
            let Some(l) = inode.attachments().and_then(Attachments::get::<Locks>) else { continue };
            if seen.contains(&Arc::as_ptr(&l)) {
                continue;
            }
            seen.push(Arc::as_ptr(&l));
            let (dev, ino) = inode.place();
            let place = alloc::format!("{:02x}:{:02x}:{ino}", dev >> 8 & 0xfff, dev & 0xff);
            for (kind, who, exclusive, start, end) in l.rows(pid) {
                n += 1;
                let rw = if exclusive { "WRITE" } else { "READ" };
                // Writing to a String cannot fail.
                let _ = write!(out, "{n}: {kind:<6} ADVISORY  {rw:<5} {who} {place} {start} ");
                let _ = if end == i64::MAX as u64 { writeln!(out, "EOF") } else { writeln!(out, "{end}") };
            }
        }
    }
    out
}
