//! What is known of mounts: statmount(2) and listmount(2).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::Changer;
use super::attr::Attr;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm::cap;
use crate::objects::vfs::devices::split;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::mount::space::Space;
use crate::objects::vfs::mount::table;
use crate::objects::vfs::mount::tree::{Node, Tree};
use crate::objects::vfs::mount::{UNIQUE, vfs};
use crate::personality::Support::Full;
use crate::personality::args::{Bits, NoFlags};
use crate::personality::{Args, Syscall, call};
use crate::process::task::version::read_sized;
use crate::{Errno, Result};

doppel_machine::pod_struct! {
    /// `struct mnt_id_req`.
    #[allow(missing_docs)]
    pub struct Request {
        pub size: u32,
        pub spare: u32,
        pub mount: u64,
        pub param: u64,
        pub space: u64,
    }
}

doppel_machine::pod_struct! {
    /// `struct statmount`; strings follow it, and these numbers of theirs are where they start.
    #[allow(missing_docs)]
    pub struct Report {
        pub size: u32,
        pub options: u32,
        pub mask: u64,
        pub dev: [u32; 2],
        pub magic: u64,
        pub flags: u32,
        pub kind: u32,
        pub id: u64,
        pub parent: u64,
        pub old_ids: [u32; 2],
        pub attr: u64,
        pub propagation: u64,
        pub group: u64,
        pub master: u64,
        pub from: u64,
        pub root: u32,
        pub point: u32,
        pub space: u64,
        pub subtype: u32,
        pub source: u32,
        pub option_count: u32,
        pub option_array: u32,
        pub security: [u32; 2],
        pub supported: u64,
        pub id_maps: [u32; 4],
        pub spare: [u64; 43],
    }
}

const _: () = assert!(size_of::<Report>() == 512, "struct statmount, statmount(2)");

bitflags::bitflags! {
    /// What statmount(2) is asked for.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Fields: u64 {
        const SUPERBLOCK = 1;
        const MOUNT = 2;
        const FROM = 4;
        const ROOT = 8;
        const POINT = 0x10;
        const KIND = 0x20;
        const SPACE = 0x40;
        const OPTIONS = 0x80;
        const SUBTYPE = 0x100;
        const SOURCE = 0x200;
        const OPTION_ARRAY = 0x400;
        const SUPPORTED = 0x1000;
    }
}

/// The number that stands for the caller's root.
const ROOT: u64 = u64::MAX;

/// Reads a request: EINVAL for one that is too short, or about what cannot be.
fn request(p: UserPtr) -> Result<Request> {
    const SHORTEST: usize = 24;
    let size = p.read::<u32>()? as usize;
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    if size < SHORTEST {
        return Err(Errno::EINVAL);
    }
    let r: Request = read_sized(p, size)?;
    if r.spare != 0 || r.mount <= UNIQUE {
        return Err(Errno::EINVAL);
    }
    Ok(r)
}

/// Who asks, and about which namespace.
struct Asker {
    me: Changer,
    space: Arc<Space>,
    root: Path,
    /// Whether it may know what it cannot reach.
    all: bool,
}

impl Asker {
    fn new(a: &Args, space: u64) -> Result<Self> {
        let me = Changer::new(a);
        let own = space == 0 || space == me.space.number;
        let (found, root) = if own {
            (Arc::<Space>::clone(&me.space), me.caller.fs.root())
        } else {
            let tree = vfs().tree();
            let found = tree.namespace(space).filter(|n| !n.is_anonymous()).ok_or(Errno::ENOENT)?.clone();
            let top = tree.top(space).and_then(|id| tree.mount(id).ok()).ok_or(Errno::ENOENT)?.clone();
            let dentry = top.root.clone();
            drop(tree);
            (found, crate::objects::vfs::mount::attach::topmost(&Path::new(top, dentry)))
        };
        let all = me.caller.cred.capable_in(found.owner(), cap::SYS_ADMIN);
        if !own && !all {
            return Err(Errno::ENOENT);
        }
        Ok(Self { me, space: found, root, all })
    }

    fn node<'t>(&self, tree: &'t Tree, id: u64) -> Result<&'t Node> {
        let n = tree.node(id - UNIQUE).map_err(|_| Errno::ENOENT)?;
        if n.mount.space() != self.space.number {
            return Err(Errno::ENOENT);
        }
        if !self.all && !self.sees(tree, n) {
            return Err(Errno::EPERM);
        }
        Ok(n)
    }

    fn sees(&self, tree: &Tree, n: &Node) -> bool {
        tree.reachable(n.mount.id, n.mount.root.clone(), (self.root.mount().id, self.root.dentry()))
    }
}

/// A report in the making.
struct Filling {
    report: Report,
    text: Vec<u8>,
    /// There is room for so many bytes of text.
    room: usize,
}

impl Filling {
    /// Adds a string: where it starts. EOVERFLOW if there is no room for it.
    fn put(&mut self, text: &[u8]) -> Result<u32> {
        if self.text.len() + text.len() + 1 > self.room {
            return Err(Errno::EOVERFLOW);
        }
        let at = self.text.len() as u32;
        self.text.extend_from_slice(text);
        self.text.push(0);
        Ok(at)
    }

    fn numbers(&mut self, asker: &Asker, tree: &Tree, n: &Node, want: Fields) {
        let (m, r) = (&n.mount, &mut self.report);
        if want.contains(Fields::SUPERBLOCK) {
            let (major, minor) = split(m.sb.dev());
            r.dev = [major, minor];
            r.magic = crate::personality::files::stat::magic_of(m);
            let shown = MountFlags::RDONLY | MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC;
            r.flags = (m.sb.flags() & (shown | MountFlags::LAZYTIME)).bits();
        }
        if want.contains(Fields::MOUNT) {
            let parent = if n.parent == 0 { m.id } else { n.parent };
            (r.id, r.parent) = (m.unique(), UNIQUE + parent);
            r.old_ids = [m.id as u32, parent as u32];
            r.attr = Attr::of(m.flags()).bits();
            let mut kind = MountFlags::empty();
            kind.set(MountFlags::SHARED, n.group != 0);
            kind.set(MountFlags::SLAVE, n.master != 0);
            kind.set(MountFlags::UNBINDABLE, n.unbindable);
            kind.set(MountFlags::PRIVATE, kind.is_empty());
            r.propagation = u64::from(kind.bits());
            (r.group, r.master) = (n.group, n.master);
        }
        if want.contains(Fields::FROM) && n.master != 0 {
            r.from = tree.dominating(n, &asker.root);
        }
        if want.contains(Fields::SPACE) {
            r.space = asker.space.number;
        }
        if want.contains(Fields::SUPPORTED) {
            r.supported = Fields::all().bits();
        }
    }

    fn strings(&mut self, asker: &Asker, n: &Node, want: Fields) -> Result<Fields> {
        let m = &n.mount;
        let mut empty = Fields::SUBTYPE;
        if want.contains(Fields::KIND) {
            self.report.kind = self.put(m.fstype().as_bytes())?;
        }
        if want.contains(Fields::ROOT) {
            self.report.root = self.put(&table::root_name(m))?;
        }
        if want.contains(Fields::POINT) {
            match table::point(m, &asker.root) {
                Some(at) => self.report.point = self.put(&at)?,
                None => empty |= Fields::POINT,
            }
        }
        let own: String = m.sb.own_options();
        let own = own.strip_prefix(',').unwrap_or("");
        if own.is_empty() {
            empty |= Fields::OPTIONS | Fields::OPTION_ARRAY;
        }
        if want.contains(Fields::OPTIONS) && !own.is_empty() {
            self.report.options = self.put(own.as_bytes())?;
        }
        if want.contains(Fields::SOURCE) {
            self.report.source = self.put(&m.source)?;
        }
        if want.contains(Fields::OPTION_ARRAY) && !own.is_empty() {
            self.report.option_count = own.split(',').count() as u32;
            self.report.option_array = self.put(own.replace(',', "\0").as_bytes())?;
        }
        Ok(empty)
    }
}

fn statmount(a: &Args, req: UserPtr, buffer: UserPtr, size: usize, flags: Bits<NoFlags>) -> Result<u64> {
    flags.checked()?;
    let r = request(req)?;
    let asker = Asker::new(a, r.space)?;
    let want = Fields::from_bits_truncate(r.param);
    let head = size_of::<Report>();
    let report: Report = doppel_machine::user::zeroed();
    let mut f = Filling { report, text: Vec::new(), room: size.saturating_sub(head) };
    {
        let tree = vfs().tree();
        let n = asker.node(&tree, r.mount)?;
        f.numbers(&asker, &tree, n, want);
        let empty = f.strings(&asker, n, want)?;
        let mut given = want - empty;
        given.set(Fields::FROM, given.contains(Fields::FROM) && n.master != 0);
        f.report.mask = given.bits();
    }
    f.report.size = (head + f.text.len()) as u32;
    let bytes = doppel_machine::user::bytes_of(&f.report);
    buffer.write_bytes(&bytes[..size.min(head)])?;
    if !f.text.is_empty() {
        buffer.add(head as u64).write_bytes(&f.text)?;
    }
    drop(asker.me);
    Ok(0)
}

bitflags::bitflags! {
    /// Flags of listmount(2).
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct ListFlags: u32 {
        const REVERSE = 1;
    }
}

fn listmount(a: &Args, req: UserPtr, ids: UserPtr, count: usize, flags: Bits<ListFlags>) -> Result<u64> {
    const MOST: usize = 1_000_000;
    let flags = flags.checked()?;
    if count > MOST {
        return Err(Errno::EOVERFLOW);
    }
    let r = request(req)?;
    if r.param != 0 && r.param <= UNIQUE {
        return Err(Errno::EINVAL);
    }
    let asker = Asker::new(a, r.space)?;
    let reverse = flags.contains(ListFlags::REVERSE);
    let found = list(&asker, &r, reverse, count)?;
    for (i, id) in found.iter().enumerate() {
        ids.add(8 * i as u64).write(id)?;
    }
    Ok(found.len() as u64)
}

/// The numbers of the mounts below one, but for itself.
fn list(asker: &Asker, r: &Request, reverse: bool, count: usize) -> Result<Vec<u64>> {
    let tree = vfs().tree();
    let from = if r.mount == ROOT {
        (asker.root.mount().id, asker.root.dentry().clone())
    } else {
        let n = asker.node(&tree, r.mount)?;
        (n.mount.id, n.mount.root.clone())
    };
    let below = |n: &&Node| {
        n.mount.unique() != r.mount
            && tree.reachable(n.mount.id, n.mount.root.clone(), (from.0, &from.1))
            && (asker.all || asker.sees(&tree, n))
    };
    let number = |n: &Node| n.mount.unique();
    let after = r.param.saturating_sub(UNIQUE);
    if reverse {
        let before = |n: &&Node| after == 0 || n.mount.id < after;
        let all = tree.of_space(asker.space.number, 0).rev().filter(before).filter(below);
        return Ok(all.take(count).map(number).collect());
    }
    Ok(tree.of_space(asker.space.number, after).filter(below).take(count).map(number).collect())
}

/// `statmount(2)`.
pub(super) const STATMOUNT: Syscall =
    call!(nr::STATMOUNT, statmount(UserPtr, UserPtr, usize, Bits<NoFlags>), Full, "");

/// `listmount(2)`.
pub(super) const LISTMOUNT: Syscall =
    call!(nr::LISTMOUNT, listmount(UserPtr, UserPtr, usize, Bits<ListFlags>), Full, "");
