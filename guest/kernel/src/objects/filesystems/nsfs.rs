//! Namespaces as files that can be mounted: a bind of /proc/PID/ns/* keeps the namespace (`namespaces(7)`).

use alloc::string::String;
use alloc::sync::Arc;

use crate::core::namespace::Kind;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::{MountFlags, OpenFlags};
use crate::objects::vfs::inode::{FileType, Inode, Stat};
use crate::objects::vfs::mount::{Mount, MountNamespace, Superblock};
use crate::objects::vfs::{File, FileOps};
use crate::{Errno, Result};

/// A file that stands for a namespace.
struct Held(Arc<File>);

impl Inode for Held {
    fn stat(&self) -> Stat {
        self.0.ops().stat(&self.0).unwrap_or_default()
    }

    fn kind(&self) -> FileType {
        FileType::Regular
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        Ok(self.0.ops().clone())
    }
}

/// Kind and number of the namespace that a file stands for, by its name `kind:[number]`.
fn namespace(file: &File) -> Option<(&str, u64)> {
    const KINDS: [Kind; Kind::COUNT] =
        [Kind::Cgroup, Kind::Ipc, Kind::Mount, Kind::Net, Kind::Pid, Kind::Time, Kind::User, Kind::Uts];
    let name: &String = file.anon_name.as_ref()?;
    let (kind, number) = name.strip_suffix(']')?.split_once(":[")?;
    KINDS.iter().find(|k| k.name() == kind)?;
    Some((kind, number.parse().ok()?))
}

/// A mount of the namespace that a file stands for: EINVAL if it stands for none, or for mounts as old as those it would be
/// among, which would keep themselves.
pub(crate) fn mount(space: &MountNamespace, file: &Arc<File>) -> Result<Arc<Mount>> {
    let (kind, number) = namespace(file).ok_or(Errno::EINVAL)?;
    if kind == Kind::Mount.name() && number <= space.number {
        return Err(Errno::EINVAL);
    }
    let name = file.anon_name.as_deref().unwrap_or("");
    let root = Dentry::make(Arc::new(Held(file.clone())), None, name.as_bytes());
    let sb = Superblock::of_domain("nsfs", root.clone());
    Ok(Mount::new(root, sb, b"nsfs", MountFlags::empty()))
}
