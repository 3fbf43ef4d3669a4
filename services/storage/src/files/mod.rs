//! What requests do to the host's files. Permissions were checked by the guest kernel; here a name is one component, a file is
//! exactly the node's, and nothing above a volume is reached.
//!
//! **Once.** What does something else when it is done twice says what it has found in the slot ([`Work::found_first`]) before it
//! changes anything. A successor that is asked again looks whether that is still there.

mod attributes;
mod batch;
mod bounds;
mod data;
mod directory;
mod disk;
mod locks;
mod names;
mod shared;
mod watch;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use doppel_abi_service::storage::{
    Answer, Attributes, NAME, Operation, Progress, Request, SECOND, SlotHeader, Traffic, flags, header,
    shown, text,
};
use doppel_sys::shared::{SharedMap, offset};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Statx, StatxFlags, Uid};
use rustix::io::Errno;

use crate::client::Client;
use crate::host::Host;
use crate::nodes::{Found, Nodes, giver};

/// Bits of a mode that are no type.
const MODE: u32 = 0o7777;

/// What is answered: a value and a node.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    value: u64,
    node: u64,
}

type Result<T> = std::result::Result<T, Errno>;

/// How it went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// No answer: the guest kernel expects none.
    Done(Option<Answer>, Traffic),
    /// It would wait for the host's device, and was not to: nothing was done.
    Waits,
}

/// Does what a request asks for, once. `waits`: also if the host's device is slow.
pub(crate) fn perform(client: &Client, host: &Host, request: &Request, waits: bool) -> Outcome {
    if !request.operation.is_answered() {
        match request.operation {
            Operation::Unwatch => client.unwatch(request),
            Operation::Release => client.nodes().release_writer(request.node),
            _ => client.nodes().forget(request.node, request.a),
        }
        return Outcome::Done(None, Traffic::default());
    }
    if (request.is_synced() || request.is_direct()) && !waits {
        return Outcome::Waits;
    }
    let slot: &SlotHeader = client.memory.get(offset(header(request.slot)));
    let progress = if request.flags & flags::AGAIN == 0 {
        Progress::None
    } else {
        slot.progress(request.slot, request.ticket)
    };
    if let Progress::Done(answer) = progress {
        return Outcome::Done(Some(answer), Traffic::default());
    }
    // Only who came so far can have changed anything.
    let before = slot.place().filter(|_| progress == Progress::Begun);
    let goes_on = progress == Progress::Begun && request.operation == Operation::Batch;
    if before.is_none() && !goes_on {
        slot.begin(request.ticket);
    }
    let writes = [Operation::Write, Operation::Make, Operation::SetAttr, Operation::Allocate];
    if writes.contains(&request.operation) {
        client.writes.store(true, Ordering::Relaxed);
    }
    let mut work = Work { client, host, slot, request, before, waits, made: false, names: None, own: None };
    let (error, done) = match work.run() {
        Ok(done) => (None, done),
        Err(Errno::AGAIN) if !waits && request.operation == Operation::Read => return Outcome::Waits,
        Err(errno) => (Some(errno), Done::default()),
    };
    let answer = Answer {
        slot: request.slot,
        error: error.map_or(0, |e| u16::try_from(e.raw_os_error()).unwrap_or(u16::MAX)),
        ticket: request.ticket,
        value: done.value,
        node: done.node,
    };
    slot.finish(&answer);
    // What others did before it is told before it.
    client.tell();
    Outcome::Done(Some(answer), traffic(request, error, &done))
}

fn traffic(request: &Request, error: Option<Errno>, done: &Done) -> Traffic {
    let host = [
        Errno::IO,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::NFILE,
        Errno::MFILE,
        Errno::NOMEM,
        Errno::STALE,
        Errno::NODEV,
        Errno::NXIO,
    ];
    let of = |operation| if request.operation == operation { done.value } else { 0 };
    Traffic {
        errors: u64::from(error.is_some_and(|e| host.contains(&e))),
        read_bytes: of(Operation::Read),
        written_bytes: of(Operation::Write),
        ..Traffic::default()
    }
}

struct Work<'a> {
    client: &'a Client,
    host: &'a Host,
    slot: &'a SlotHeader,
    request: &'a Request,
    /// What a predecessor has found who has begun it, if that came so far: what is asked for may be done already.
    before: Option<u64>,
    /// It may wait for a device.
    waits: bool,
    /// It has made a file that has a name.
    made: bool,
    /// The names of a change of a batch; otherwise they are in the slot's text.
    names: Option<[Vec<u8>; 2]>,
    /// By this number it is known what is heard of it.
    own: Option<u64>,
}

impl<'a> Work<'a> {
    fn run(&mut self) -> Result<Done> {
        self.own = self.heard().map(|own| self.client.changes().begins(own));
        let done = self.act();
        self.was_heard(done.is_ok());
        done
    }

    fn act(&mut self) -> Result<Done> {
        let disk = self.nodes().disk(self.request.node);
        if let Some(disk) = disk {
            return self.on_disk(&disk.stack);
        }
        match self.request.operation {
            Operation::Lookup => self.look_up(),
            Operation::Forget | Operation::Unwatch | Operation::Release => Ok(Done::default()),
            Operation::GetAttr => {
                let file = self.nodes().name(self.request.node)?;
                self.show(&file, self.request.node)
            }
            Operation::SetAttr => self.set_attributes(),
            Operation::ReadLink => self.read_link(),
            Operation::Make => self.make(),
            Operation::Symlink => self.make_symlink(),
            Operation::Link => self.link(),
            Operation::TmpFile => self.make_nameless(),
            Operation::Unlink | Operation::RmDir => self.remove(),
            Operation::Rename => self.rename(),
            Operation::Read => self.read(),
            Operation::Write => self.write(),
            Operation::Sync => self.sync(),
            Operation::Allocate => self.allocate(),
            Operation::Seek => self.seek(),
            Operation::ReadDir => self.read_directory(),
            Operation::StatFs => self.stat_fs(),
            Operation::GetXattr => self.get_xattr(),
            Operation::SetXattr => self.set_xattr(),
            Operation::ListXattr => self.list_xattrs(),
            Operation::RemoveXattr => self.remove_xattr(),
            Operation::Lock => self.lock(),
            Operation::Batch => self.batch(),
            Operation::Watch => self.watch(),
        }
    }

    fn nodes(&self) -> MutexGuard<'a, Nodes> {
        self.client.nodes()
    }

    /// A descriptor that reads a regular file or directory, and writes it if so asked.
    fn data(&self, node: u64, write: bool) -> Result<Arc<OwnedFd>> {
        let data = self.nodes().data(node, write)?;
        let (file, new) = data.open(self.host)?;
        if new {
            self.nodes().opened(node, write, &file);
        }
        Ok(file)
    }

    fn memory(&self) -> &'a SharedMap {
        &self.client.memory
    }

    /// What this request has found before it changes anything, also if that was a predecessor; `now` looks. It is said in the slot.
    fn found_first(&mut self, now: impl FnOnce(&Self) -> Result<u64>) -> Result<u64> {
        if let Some(before) = self.before {
            return Ok(before);
        }
        let found = now(self)?;
        self.slot.set_place(found);
        Ok(found)
    }

    /// Copies the text of a half.
    fn copy(&self, at: usize, len: u64, most: usize) -> Result<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|n| *n <= most).ok_or(Errno::NAMETOOLONG)?;
        let mut bytes = vec![0; len];
        self.memory().read(offset(text(self.request.slot)) + at, &mut bytes);
        Ok(bytes)
    }

    /// A name in the first half.
    fn first(&self) -> Result<CString> {
        match &self.names {
            Some([name, _]) => component(name.clone()),
            None => component(self.copy(0, self.request.a, NAME)?),
        }
    }

    /// A name in the second half.
    fn second(&self) -> Result<CString> {
        match &self.names {
            Some([_, name]) => component(name.clone()),
            None => component(self.copy(SECOND, self.request.b, NAME)?),
        }
    }

    fn put(&self, bytes: &[u8]) {
        self.memory().write(offset(text(self.request.slot)), bytes);
    }

    fn show_attributes(&self, s: &Statx) {
        self.memory().write(offset(shown(self.request.slot)), &attributes(s).encode());
    }

    /// Shows a node's attributes.
    fn show(&self, file: &OwnedFd, node: u64) -> Result<Done> {
        self.show_attributes(&statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?);
        Ok(Done { value: 0, node })
    }

    /// What is noted of a file with this name in a directory.
    fn found<'b>(&self, parent: u64, name: &'b CStr, statx: &'b Statx) -> Found<'b> {
        let giver = giver(self.request.slot, self.request.ticket.0);
        Found { parent, name: name.to_bytes(), statx, giver }
    }

    /// Gives the domain a file that was opened by a name in a directory.
    fn given(&self, parent: u64, name: &CStr, file: OwnedFd, s: &Statx, writes: bool) -> Result<Done> {
        self.show_attributes(s);
        let node = self.nodes().give(&self.found(parent, name, s), file, writes)?;
        Ok(Done { value: 0, node })
    }
}

/// A name that is one component and leads nowhere else.
fn component(name: Vec<u8>) -> Result<CString> {
    if matches!(name.as_slice(), b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(Errno::INVAL);
    }
    CString::new(name).map_err(|_| Errno::INVAL)
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// Opens what has this name in a directory, to name it (O_PATH); a link itself.
pub(crate) fn open_name(dir: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), BENEATH)
}

/// Attributes of a file, or of what has this name in a directory; of a link itself.
pub(crate) fn statx(dir: BorrowedFd<'_>, name: &CStr, how: AtFlags) -> Result<Statx> {
    let how = how | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(dir, name, how, StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID)
}

/// Changes who owns a file.
fn chown(file: &OwnedFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH)
        // An owner that this process cannot name, not being root.
        .map_err(|e| if e == Errno::INVAL { Errno::PERM } else { e })
}

const SECOND_NS: i64 = 1_000_000_000;

fn attributes(s: &Statx) -> Attributes {
    let time = |t: rustix::fs::StatxTimestamp| {
        t.tv_sec.saturating_mul(SECOND_NS).saturating_add(i64::from(t.tv_nsec))
    };
    Attributes {
        ino: s.stx_ino,
        mode: s.stx_mode.into(),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: u64::from(s.stx_rdev_major) << 8 | u64::from(s.stx_rdev_minor),
        size: s.stx_size,
        blocks: s.stx_blocks,
        block_size: s.stx_blksize,
        atime: time(s.stx_atime),
        mtime: time(s.stx_mtime),
        ctime: time(s.stx_ctime),
        btime: time(s.stx_btime),
    }
}
