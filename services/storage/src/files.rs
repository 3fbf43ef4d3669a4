//! What requests do to the host's files. Permissions were checked by the guest kernel; here a name is one component, a file is
//! exactly the node's, and nothing above a volume is reached.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use doppel_abi_service::storage::{
    Answer, Attributes, BUFFER, Changes, DirectoryEntry, NAME, Operation, Progress, Request, SECOND,
    SlotHeader, TARGET, XATTR, buffer, flags, header, set, text,
};
use doppel_service::Channel;
use doppel_sys::shared::offset;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom, Statx,
    StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::nodes::{Nodes, descriptor_name};

/// Bits of a mode that are no type.
const MODE: u32 = 0o7777;
/// Extended attributes that a domain may read and change, by the beginnings of their names.
const XATTRS: &[&[u8]] = &[b"user.", b"system.posix_acl_", b"security.capability"];
/// `renameat2(2)`: NOREPLACE and EXCHANGE.
const RENAME: u32 = 3;
/// `fallocate(2)`: KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE.
const ALLOCATE: u32 = 1 | 2 | 8 | 16 | 32;
/// `lseek(2)`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// What is answered: a value and a node.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    value: u64,
    node: u64,
}

type Result<T> = std::result::Result<T, Errno>;

/// Does what a request asks for, once. No answer: the guest kernel expects none.
pub(crate) fn perform(channel: &Channel, nodes: &mut Nodes, request: &Request) -> Option<Answer> {
    if request.operation == Operation::Forget {
        nodes.forget(request.node, request.a);
        return None;
    }
    let slot: &SlotHeader = channel.get(header(request.slot));
    let progress = if request.flags & flags::AGAIN == 0 {
        Progress::None
    } else {
        slot.progress(request.slot, request.ticket)
    };
    if let Progress::Done(answer) = progress {
        return Some(answer);
    }
    let again = progress == Progress::Begun;
    let begun_at = slot.place().filter(|_| again);
    slot.begin(request.ticket);
    let mut work = Work { channel, nodes, request, again, begun_at };
    let (error, done) = match work.run() {
        Ok(done) => (0, done),
        Err(errno) => (errno.raw_os_error(), Done::default()),
    };
    let answer = Answer {
        slot: request.slot,
        error: u16::try_from(error).unwrap_or(u16::MAX),
        ticket: request.ticket,
        value: done.value,
        node: done.node,
    };
    slot.finish(&answer);
    Some(answer)
}

struct Work<'a> {
    channel: &'a Channel,
    nodes: &'a mut Nodes,
    request: &'a Request,
    /// A predecessor began it: what it asks for may be done already.
    again: bool,
    /// Where it has written, if that was an append which came so far.
    begun_at: Option<u64>,
}

impl Work<'_> {
    fn run(&mut self) -> Result<Done> {
        let r = self.request;
        match r.operation {
            Operation::Lookup => {
                let name = self.first(r.a)?;
                let dir = self.nodes.name(r.node)?;
                let found = open_name(&dir, &name)?;
                self.given(found)
            }
            Operation::Forget => Ok(Done::default()),
            Operation::GetAttr => {
                let file = self.nodes.name(r.node)?;
                self.show(&file, r.node)
            }
            Operation::SetAttr => self.set_attributes(),
            Operation::ReadLink => self.read_link(),
            Operation::Make | Operation::Symlink | Operation::Link | Operation::TmpFile => self.make(),
            Operation::Unlink | Operation::RmDir => self.remove(),
            Operation::Rename => self.rename(),
            Operation::Read => self.read(),
            Operation::Write => self.write(),
            Operation::Sync => {
                let file = self.nodes.data(r.node, false)?;
                if r.flags & flags::DATA == 0 {
                    rustix::fs::fsync(&file)?
                } else {
                    rustix::fs::fdatasync(&file)?
                }
                Ok(Done::default())
            }
            Operation::Allocate => {
                self.nodes.writable(r.node)?;
                let file = self.nodes.data(r.node, true)?;
                let mode = r.flags & !flags::AGAIN;
                if mode & !ALLOCATE != 0 {
                    return Err(Errno::OPNOTSUPP);
                }
                rustix::fs::fallocate(&file, FallocateFlags::from_bits_retain(mode), r.a, r.b)?;
                self.show(&file, r.node)
            }
            Operation::Seek => self.seek(),
            Operation::ReadDir => self.read_directory(),
            Operation::StatFs => self.stat_fs(),
            Operation::GetXattr | Operation::SetXattr | Operation::ListXattr | Operation::RemoveXattr => {
                self.xattr()
            }
        }
    }

    /// Copies the text of a half.
    fn copy(&self, at: usize, len: u64, most: usize) -> Result<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|n| *n <= most).ok_or(Errno::NAMETOOLONG)?;
        let mut bytes = vec![0; len];
        self.channel.memory().read(offset(text(self.request.slot)) + at, &mut bytes);
        Ok(bytes)
    }

    /// A name in the first half.
    fn first(&self, len: u64) -> Result<CString> {
        component(self.copy(0, len, NAME)?)
    }

    /// A name in the second half.
    fn second(&self, len: u64) -> Result<CString> {
        component(self.copy(SECOND, len, NAME)?)
    }

    fn put(&self, bytes: &[u8]) {
        self.channel.memory().write(offset(text(self.request.slot)), bytes);
    }

    /// Shows a node's attributes.
    fn show(&self, file: &OwnedFd, node: u64) -> Result<Done> {
        self.put(&attributes(file)?.encode());
        Ok(Done { value: 0, node })
    }

    /// Gives the domain a file that was found.
    fn given(&mut self, found: OwnedFd) -> Result<Done> {
        self.put(&attributes(&found)?.encode());
        Ok(Done { value: 0, node: self.nodes.give(self.request.node, found)? })
    }

    fn set_attributes(&mut self) -> Result<Done> {
        let r = self.request;
        let mut bytes = [0; Changes::BYTES];
        self.channel.memory().read(offset(text(r.slot)), &mut bytes);
        let changes = Changes::decode(&bytes);
        self.nodes.writable(r.node)?;
        let file = self.nodes.name(r.node)?;
        let has = |bit| r.flags & bit != 0;
        if has(set::SIZE) {
            rustix::fs::ftruncate(&self.nodes.data(r.node, true)?, changes.size)?;
        }
        if has(set::UID) || has(set::GID) {
            own(&file, has(set::UID).then_some(changes.uid), has(set::GID).then_some(changes.gid))?;
        }
        if has(set::MODE) {
            self.change_mode(&file, changes.mode & MODE)?;
        }
        if has(set::ATIME) || has(set::MTIME) {
            let time = |wanted, nanoseconds| if wanted { timespec(nanoseconds) } else { omitted() };
            let times = Timestamps {
                last_access: time(has(set::ATIME), changes.atime),
                last_modification: time(has(set::MTIME), changes.mtime),
            };
            rustix::fs::utimensat(&file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        self.show(&file, r.node)
    }

    fn change_mode(&self, file: &OwnedFd, mode: u32) -> Result<()> {
        let at = descriptor_name(file.as_fd());
        rustix::fs::chmodat(self.nodes.descriptors(), at, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    fn read_link(&mut self) -> Result<Done> {
        let file = self.nodes.name(self.request.node)?;
        let target = rustix::fs::readlinkat(&file, c"", Vec::new())
            // So it is with an empty path.
            .map_err(|e| if e == Errno::NOENT { Errno::INVAL } else { e })?;
        let bytes = target.as_bytes();
        if bytes.len() > TARGET {
            return Err(Errno::NAMETOOLONG);
        }
        self.put(bytes);
        Ok(Done { value: bytes.len() as u64, node: 0 })
    }

    /// Makes a file of any kind, with its owner and mode, or another name for one.
    fn make(&mut self) -> Result<Done> {
        let r = self.request;
        let linked = r.operation == Operation::Link;
        let at = if linked { r.other } else { r.node };
        self.nodes.writable(at)?;
        let dir = self.nodes.name(at)?;
        if r.operation == Operation::TmpFile {
            return self.make_nameless(&dir);
        }
        let name = self.first(r.a)?;
        let made = match r.operation {
            Operation::Symlink => {
                let target = CString::new(self.copy(SECOND, r.b, TARGET)?).map_err(|_| Errno::INVAL)?;
                rustix::fs::symlinkat(&target, &dir, &name)
            }
            Operation::Link => {
                let file = self.nodes.name(r.node)?;
                let from = descriptor_name(file.as_fd());
                rustix::fs::linkat(self.nodes.descriptors(), from, &dir, &name, AtFlags::SYMLINK_FOLLOW)
            }
            _ => make_node(&dir, &name, u32::try_from(r.b).map_err(|_| Errno::INVAL)?),
        };
        match made {
            // What a predecessor began may be done, but for what follows.
            Err(Errno::EXIST) if self.again => {}
            made => made?,
        }
        let found = open_name(&dir, &name)?;
        if linked {
            let file = self.nodes.name(r.node)?;
            return self.show(&file, r.node);
        }
        own(&found, Some(r.c), Some(r.d))?;
        let mode = u32::try_from(r.b).unwrap_or(0) & MODE;
        // A change of owner takes these bits away, and mkdir(2) does not give them.
        if r.operation == Operation::Make && mode & 0o7000 != 0 {
            self.change_mode(&found, mode)?;
        }
        self.given(found)
    }

    fn make_nameless(&mut self, dir: &OwnedFd) -> Result<Done> {
        let r = self.request;
        let mode = Mode::from_raw_mode(u32::try_from(r.b).unwrap_or(0) & MODE);
        let file = rustix::fs::openat(dir, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)?;
        own(&file, Some(r.c), Some(r.d))?;
        let name = rustix::fs::openat(
            self.nodes.descriptors(),
            descriptor_name(file.as_fd()),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let again = name.try_clone().map_err(|_| Errno::NFILE)?;
        let done = self.given(name)?;
        // It has no name by which it could be found again.
        self.nodes.losing(again)?;
        Ok(done)
    }

    fn remove(&mut self) -> Result<Done> {
        let r = self.request;
        self.nodes.writable(r.node)?;
        let dir = self.nodes.name(r.node)?;
        let name = self.first(r.a)?;
        if let Ok(file) = open_name(&dir, &name) {
            self.nodes.losing(file)?;
        }
        let how = if r.operation == Operation::RmDir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&dir, &name, how) {
            Err(Errno::NOENT) if self.again => Ok(Done::default()),
            done => done.map(|()| Done::default()),
        }
    }

    fn rename(&mut self) -> Result<Done> {
        let r = self.request;
        let how = r.flags & !flags::AGAIN;
        if how & !RENAME != 0 {
            return Err(Errno::INVAL);
        }
        self.nodes.writable(r.node)?;
        self.nodes.writable(r.other)?;
        let (from, to) = (self.nodes.name(r.node)?, self.nodes.name(r.other)?);
        let (old, new) = (self.first(r.a)?, self.second(r.b)?);
        if let Ok(file) = open_name(&to, &new) {
            self.nodes.losing(file)?;
        }
        let how = RenameFlags::from_bits_retain(how);
        match rustix::fs::renameat_with(&from, &old, &to, &new, how) {
            Err(Errno::NOENT) if self.again && open_name(&to, &new).is_ok() => Ok(Done::default()),
            done => done.map(|()| Done::default()),
        }
    }

    fn length(&self) -> Result<usize> {
        usize::try_from(self.request.b).ok().filter(|n| *n <= BUFFER).ok_or(Errno::INVAL)
    }

    fn read(&mut self) -> Result<Done> {
        let (r, len) = (self.request, self.length()?);
        let file = self.nodes.data(r.node, false)?;
        let at = offset(buffer(r.slot));
        let done =
            self.channel.memory().read_from_at(file.as_fd(), r.a, at, len).map_err(crate::nodes::errno)?;
        Ok(Done { value: done as u64, node: 0 })
    }

    fn write(&mut self) -> Result<Done> {
        let (r, len) = (self.request, self.length()?);
        self.nodes.writable(r.node)?;
        let file = self.nodes.data(r.node, true)?;
        let slot: &SlotHeader = self.channel.get(header(r.slot));
        let at = match (r.flags & flags::APPEND, self.begun_at) {
            (0, _) => r.a,
            // Where a predecessor has written it, if it came that far.
            (_, Some(place)) => place,
            (_, None) => rustix::fs::fstat(&file)?.st_size.cast_unsigned(),
        };
        slot.set_place(at);
        let from = offset(buffer(r.slot));
        let done =
            self.channel.memory().write_to_at(file.as_fd(), at, from, len).map_err(crate::nodes::errno)?;
        self.put(&attributes(&file)?.encode());
        Ok(Done { value: done as u64, node: at + done as u64 })
    }

    fn seek(&mut self) -> Result<Done> {
        let r = self.request;
        let file = self.nodes.data(r.node, false)?;
        // A directory has a position that its entries are read from.
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(Errno::ISDIR);
        }
        let from = match r.flags & !flags::AGAIN {
            SEEK_DATA => SeekFrom::Data(r.a),
            SEEK_HOLE => SeekFrom::Hole(r.a),
            _ => return Err(Errno::INVAL),
        };
        Ok(Done { value: rustix::fs::seek(&file, from)?, node: 0 })
    }

    fn read_directory(&mut self) -> Result<Done> {
        let r = self.request;
        let dir = self.nodes.data(r.node, false)?;
        rustix::fs::seek(&dir, SeekFrom::Start(r.a))?;
        let mut space = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&dir, &mut space);
        let at = offset(buffer(r.slot));
        let mut used = 0;
        // What does not fit is read the next time.
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let Ok(len) = u8::try_from(name.len()) else { continue };
            if used + DirectoryEntry::BYTES + name.len() > BUFFER {
                break;
            }
            let head = DirectoryEntry {
                ino: entry.ino(),
                next: entry.next_entry_cookie(),
                kind: kind_of(entry.file_type()),
                len,
            };
            self.channel.memory().write(at + used, &head.encode());
            self.channel.memory().write(at + used + DirectoryEntry::BYTES, name);
            used += DirectoryEntry::BYTES + name.len();
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(Done { value: used as u64, node: 0 })
    }

    fn stat_fs(&mut self) -> Result<Done> {
        let file = self.nodes.name(self.request.node)?;
        let s = rustix::fs::fstatfs(&file)?;
        let words = [
            s.f_type.cast_unsigned(),
            s.f_bsize.cast_unsigned(),
            s.f_blocks,
            s.f_bfree,
            s.f_bavail,
            s.f_files,
            s.f_ffree,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes);
        Ok(Done::default())
    }

    fn xattr(&mut self) -> Result<Done> {
        let r = self.request;
        let memory = offset(buffer(r.slot));
        if r.operation == Operation::ListXattr {
            let file = self.attributed(r.node)?;
            let mut names = vec![0; XATTR];
            let len = rustix::fs::flistxattr(&file, names.as_mut_slice())?;
            let shown: Vec<u8> = names[..len]
                .split_inclusive(|b| *b == 0)
                .filter(|name| XATTRS.iter().any(|x| name.starts_with(x)))
                .flatten()
                .copied()
                .collect();
            self.channel.memory().write(memory, &shown);
            return Ok(Done { value: shown.len() as u64, node: 0 });
        }
        let name = CString::new(self.copy(0, r.a, NAME)?).map_err(|_| Errno::INVAL)?;
        if !XATTRS.iter().any(|x| name.to_bytes().starts_with(x)) {
            return Err(Errno::OPNOTSUPP);
        }
        if r.operation != Operation::GetXattr {
            self.nodes.writable(r.node)?;
        }
        let file = self.attributed(r.node)?;
        match r.operation {
            Operation::GetXattr => {
                let mut value = vec![0; XATTR];
                let len = rustix::fs::fgetxattr(&file, &name, value.as_mut_slice())?;
                self.channel.memory().write(memory, &value[..len]);
                return Ok(Done { value: len as u64, node: 0 });
            }
            Operation::SetXattr => {
                let len = usize::try_from(r.b).ok().filter(|n| *n <= XATTR).ok_or(Errno::TOOBIG)?;
                let mut value = vec![0; len];
                self.channel.memory().read(memory, &mut value);
                // CREATE and REPLACE.
                let how = r.flags & 3;
                match rustix::fs::fsetxattr(&file, &name, &value, XattrFlags::from_bits_retain(how)) {
                    Err(Errno::EXIST) if self.again => {}
                    done => done?,
                }
            }
            _ => match rustix::fs::fremovexattr(&file, &name) {
                Err(Errno::NODATA) if self.again => {}
                done => done?,
            },
        }
        Ok(Done::default())
    }

    /// A file whose extended attributes can be reached: a regular one or a directory.
    fn attributed(&mut self, node: u64) -> Result<Arc<OwnedFd>> {
        self.nodes.data(node, false).map_err(|e| if e == Errno::INVAL { Errno::OPNOTSUPP } else { e })
    }
}

/// A name that is one component and leads nowhere else.
fn component(name: Vec<u8>) -> Result<CString> {
    if matches!(name.as_slice(), b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(Errno::INVAL);
    }
    CString::new(name).map_err(|_| Errno::INVAL)
}

/// Opens what has this name in a directory, to name it (O_PATH); a link itself.
fn open_name(dir: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, OsStr::from_bytes(name.to_bytes()), flags, Mode::empty(), how)
}

fn make_node(dir: &OwnedFd, name: &CStr, mode: u32) -> Result<()> {
    let kind = FileType::from_raw_mode(mode);
    let mode = Mode::from_raw_mode(mode & MODE);
    match kind {
        FileType::Directory => rustix::fs::mkdirat(dir, name, mode),
        FileType::RegularFile | FileType::Fifo | FileType::Socket => {
            rustix::fs::mknodat(dir, name, kind, mode, 0)
        }
        _ => Err(Errno::PERM),
    }
}

fn own(file: &OwnedFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    rustix::fs::chownat(file, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)
}

fn omitted() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }
}

const SECOND_NS: i64 = 1_000_000_000;

fn timespec(nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: nanoseconds.div_euclid(SECOND_NS), tv_nsec: nanoseconds.rem_euclid(SECOND_NS) }
}

fn attributes(file: &OwnedFd) -> Result<Attributes> {
    let s: Statx =
        rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let time = |t: rustix::fs::StatxTimestamp| {
        t.tv_sec.saturating_mul(SECOND_NS).saturating_add(i64::from(t.tv_nsec))
    };
    Ok(Attributes {
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
    })
}

/// `d_type`.
fn kind_of(kind: FileType) -> u8 {
    match kind {
        FileType::Unknown => 0,
        kind => u8::try_from(kind.as_raw_mode() >> 12).unwrap_or(0),
    }
}

/// The directory of its own descriptors, above which nothing is.
///
/// # Errors
/// What the host says.
pub(crate) fn own_descriptors() -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !rustix::process::geteuid().is_root() {
        return Ok(rustix::fs::open("/proc/self/fd", flags, Mode::empty())?);
    }
    use rustix::mount::{OpenTreeFlags, open_tree};
    let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(rustix::fs::CWD, "/proc/self/fd", tree)?;
    Ok(rustix::fs::openat(&tree, c".", flags, Mode::empty())?)
}
