//! Trees of mounts that a descriptor stands for (`open_tree(2)`, `fsmount(2)`).

use alloc::sync::Arc;

use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::mount::MountNamespace;
use crate::objects::vfs::{File, FileOps};

/// What keeps such a tree: when the last descriptor goes, what was not moved elsewhere goes too.
struct Detached(Arc<MountNamespace>);

impl FileOps for Detached {
    fn pollable(&self) -> bool {
        false
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        out.push_str(&alloc::format!("mounts:\t{}\n", self.0.mounts()));
    }
}

/// An O_PATH file of the root of a tree, which keeps the tree.
pub fn open(tree: Arc<MountNamespace>, root: Path) -> Arc<File> {
    File::new(Arc::new(Detached(tree)), root.inode().clone(), root, OpenFlags::PATH)
}
