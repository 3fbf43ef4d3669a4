//! Threads as the layers below processes see them.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::cpu::{self, CurrentRef};
use doppel_machine::shield::{self, Reading};

use super::{Thread, current, try_current};
use crate::Result;
use crate::core::subject::{CURRENT, Cred, Current, Resource, Subject};
use crate::objects::ipc::sysv::namespace::HERE;
use crate::objects::lookup::context::FsContext;
use crate::objects::lookup::opener::{OPENER, Opener};
use crate::objects::lookup::path::ROOT;
use crate::objects::vfs::File;
use crate::objects::vfs::fdtable::{FileRef, FilesRef};
use crate::objects::vfs::mount::MountNamespace;
use crate::process::namespaces::numbers::shown_to;
use crate::process::signal::{SigInfo, send_thread};

impl Subject for Thread {
    fn pid(&self) -> i32 {
        self.process.pid
    }

    fn cred(&self) -> Arc<Cred> {
        Self::cred(self)
    }

    fn rlimit(&self, resource: Resource) -> u64 {
        self.process.rlimit(resource)
    }

    fn raise(&self, signo: i32) {
        if let Some(me) = self.entity.me() {
            // A standard signal is pending at worst without details.
            let _ = send_thread(&me, SigInfo::kernel(signo));
        }
    }
}

impl Opener for Thread {
    fn mounts(&self) -> Arc<MountNamespace> {
        self.namespaces.get(&doppel_machine::shield::read()).mounts.clone()
    }

    fn fs(&self) -> Arc<FsContext> {
        Self::fs(self)
    }

    fn files(&self) -> FilesRef<'_> {
        Self::files(self)
    }

    fn any_file(&self, fd: i32) -> Result<Arc<File>> {
        Self::any_file(self, fd)
    }

    #[inline]
    fn peek_file(&self, fd: i32) -> Option<FileRef<'_>> {
        self.files.get(usize::try_from(fd).ok()?)
    }

    #[inline]
    fn peek_fs<'g>(&'g self, r: &'g Reading) -> Option<&'g FsContext> {
        if self.has_own_fs() { None } else { Some(self.process.fs.get(r)) }
    }

    #[inline]
    fn peek_cred<'g>(&'g self, r: &'g Reading) -> &'g Cred {
        self.cred.get(r)
    }
}

fn current_ref() -> Option<CurrentRef<Thread>> {
    cpu::current_as()
}

/// Gives the layers below what they know threads by; once, at boot.
pub fn run() {
    crate::core::sched::run::<Thread>();
    CURRENT.set(Current {
        subject: || try_current().map(|t| t as Arc<dyn Subject>),
        pid: || current_ref().map_or(0, |t| t.process.pid),
        tid: || current_ref().map_or(0, |t| t.tid()),
        shown: |n| current_ref().map_or(n, |t| shown_to(&t.process, n)),
        kernel: |n| match current_ref().as_ref().and_then(|t| t.process.numbers.as_ref()) {
            None => Some(n),
            Some(mine) => mine.namespace.kernel(n),
        },
        size_limit: || current_ref().map_or(u64::MAX, |t| t.process.size_limit.load(Ordering::Relaxed)),
    });
    HERE.set(|| {
        let t = current_ref()?;
        let guard = shield::read();
        let ipc = &t.namespaces.get(&guard).ipc;
        (!ipc.is_first()).then(|| ipc.clone())
    });
    OPENER.set(|| current());
    ROOT.set(|| current().fs().root());
    super::remote::offer();
    crate::process::signal::owner::offer();
}
