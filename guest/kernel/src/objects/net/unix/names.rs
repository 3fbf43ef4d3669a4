//! Where AF_UNIX sockets are found: abstract names, and inodes of bound paths.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_algo::net::sockaddr::UnixName;
use doppel_machine::sync::SpinLock;

use super::UnixSock;
use crate::core::part::Part;
use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::names::create;
use crate::objects::lookup::perm::{self, MAY_WRITE};
use crate::objects::vfs::{FileType, Inode};
use crate::{Errno, Result};

const AT_FDCWD: i32 = -100;

/// All AF_UNIX sockets, and those with abstract names.
#[derive(Default)]
pub struct Names {
    abstracts: SpinLock<BTreeMap<Vec<u8>, Weak<UnixSock>>>,
    /// Every socket by inode number (for /proc/net/unix).
    pub all: SpinLock<BTreeMap<u64, Weak<UnixSock>>>,
    next_auto: AtomicU32,
}

/// The domain's.
pub static NAMES: Part<Names> = Part::new();

/// The endpoint attached to a socket inode.
struct Endpoint(Weak<UnixSock>);

/// The table.
pub fn names() -> &'static Names {
    NAMES.get()
}

impl Names {
    /// Claims an abstract name.
    pub fn claim(&self, name: &[u8], sock: &Arc<UnixSock>) -> Result<()> {
        let mut t = self.abstracts.lock();
        if t.get(name).is_some_and(|w| w.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        t.insert(name.to_vec(), Arc::downgrade(sock));
        Ok(())
    }

    /// Claims a free five-digit name (autobind).
    pub fn claim_any(&self, sock: &Arc<UnixSock>) -> Result<Vec<u8>> {
        for _ in 0..0x10_0000 {
            let n = self.next_auto.fetch_add(1, Ordering::Relaxed) & 0xf_ffff;
            let name = format!("{n:05x}").into_bytes();
            if self.claim(&name, sock).is_ok() {
                return Ok(name);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Gives up an abstract name if `sock` owns it.
    pub fn forget_if(&self, name: &[u8], sock: &UnixSock) {
        let mut t = self.abstracts.lock();
        if t.get(name).is_some_and(|w| core::ptr::eq(w.as_ptr(), sock)) {
            t.remove(name);
        }
    }
}

/// Makes the inode of a path and attaches `sock` to it.
pub fn bind_path(name: &[u8], sock: &Arc<UnixSock>) -> Result<Arc<dyn Inode>> {
    let caller = Caller::current();
    let (dir, base, _) = caller.parent(AT_FDCWD, name).map_err(|e| match e {
        // "." and "..": they exist.
        Errno::EINVAL | Errno::EISDIR => Errno::EADDRINUSE,
        e => e,
    })?;
    let mode = FileType::Socket as u32 | (0o777 & !caller.fs.umask());
    let made = create(&caller, &dir, &base, mode, 0)
        .map_err(|e| if e == Errno::EEXIST { Errno::EADDRINUSE } else { e })?;
    let inode = made.inode().clone();
    let Some(a) = inode.attachments() else { return Err(Errno::EOPNOTSUPP) };
    a.set(Arc::new(Endpoint(Arc::downgrade(sock))));
    Ok(inode)
}

/// Detaches a closed socket from its inode; the name stays, and refuses connections.
pub fn unbind_path(inode: &Arc<dyn Inode>) {
    if let Some(a) = inode.attachments() {
        a.remove::<Endpoint>();
    }
}

/// The socket bound to a name. ECONNREFUSED if nobody is there.
pub fn find(name: &UnixName) -> Result<Arc<UnixSock>> {
    match name {
        UnixName::Unnamed => Err(Errno::EINVAL),
        UnixName::Abstract(a) => {
            names().abstracts.lock().get(a).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
        }
        UnixName::Path(p) => {
            let caller = Caller::current();
            let path = caller.find(AT_FDCWD, p, true)?;
            perm::check(&caller.cred, &**path.inode(), MAY_WRITE)?;
            if path.inode().kind() != FileType::Socket {
                return Err(Errno::ECONNREFUSED);
            }
            let at = path.inode().attachments().and_then(|a| a.get::<Endpoint>());
            at.and_then(|e| e.0.upgrade()).ok_or(Errno::ECONNREFUSED)
        }
    }
}
