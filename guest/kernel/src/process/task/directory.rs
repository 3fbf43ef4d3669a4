//! Working directories of processes.

use alloc::vec::Vec;

use crate::objects::lookup::caller::{Caller, at};
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::lookup::perm::MAY_EXEC;
use crate::objects::vfs::inode::FileType;
use crate::process::task::TASKS;
use crate::{Errno, Result};

/// A directory the caller may search.
pub(crate) fn enterable(caller: &Caller, p: Path) -> Result<Path> {
    if p.dentry().kind() != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    perm::check(&caller.cred, &**p.inode(), MAY_EXEC)?;
    Ok(p)
}

/// Gives a process another working directory.
pub fn change_dir(c: &Caller, name: &[u8]) -> Result<()> {
    let p = enterable(c, c.find(at::FDCWD, name, true)?)?;
    c.fs.set_cwd(p);
    Ok(())
}

/// All who stand at `from`, as root or working directory, stand at `to` then (`pivot_root(2)`).
pub fn move_all(from: &Path, to: &Path) {
    let processes: Vec<_> = TASKS.processes.lock().values().cloned().collect();
    for p in processes {
        p.fs().replace(from, to);
        let threads: Vec<_> = p.threads.lock().iter().filter(|t| t.has_own_fs()).cloned().collect();
        threads.iter().for_each(|t| t.fs().replace(from, to));
    }
}
