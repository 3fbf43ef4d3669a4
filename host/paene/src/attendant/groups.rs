//! `/sys/fs/cgroup` of a container: its own control groups and no others, read-only, laid out as on its host.
//!
//! The attendant is born in the domain's groups, and the container's cgroup namespace begins there; so what these are called
//! inside (`/proc/self/cgroup`) is the root of what is mounted here. Groups of v1 are in a directory for each hierarchy.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_remount, move_mount, open_tree};

use crate::failure::{Failure, cannot};
use crate::root::owners::Owners;

/// Where programs look for them.
const PLACE: &str = "/sys/fs/cgroup";
/// Of a hierarchy that is the only one, the name.
const UNIFIED: &str = "";

/// The domain's group in one hierarchy.
#[derive(Debug)]
pub(crate) struct Group {
    /// Of the directory where the hierarchy is mounted; v1 calls it after its controllers.
    hierarchy: String,
    mount: OwnedFd,
}

impl Group {
    /// Takes hold of a group, as long as the host's view of them is to be seen.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, dir, flags).map_err(cannot("open the domain's control group"))?;
        Ok(Self { hierarchy: hierarchy(dir), mount })
    }
}

/// The name of the hierarchy that the group at `dir` is in: it is two above, where the hierarchy is mounted.
fn hierarchy(dir: &Path) -> String {
    if dir.join("cgroup.controllers").exists() {
        return UNIFIED.to_owned();
    }
    let name = dir.ancestors().nth(2).and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Shows its groups to the container of a process, which has not begun to run anything.
pub(crate) fn show(groups: Vec<Group>, process: BorrowedFd<'_>, owners: Owners) -> Result<(), Failure> {
    if groups.is_empty() {
        return Ok(());
    }
    let go = || {
        doppel_sys::namespace::enter_mounts(process)?;
        mount_all(groups, Path::new(PLACE), owners)
    };
    // On a thread of its own, which is over before anything forks: it ends with the container's view of files. libcontainer
    // would take groups in the attendant's view, where it looks, for its own to change.
    std::thread::scope(|scope| {
        std::thread::Builder::new().spawn_scoped(scope, go).map(|thread| thread.join())
    })
    .map_err(cannot("start a thread"))?
    .map_err(|_| "cannot show the domain its control groups")?
    .map_err(cannot("show the domain its control groups"))
}

fn mount_all(groups: Vec<Group>, root: &Path, owners: Owners) -> io::Result<()> {
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let read_only = MountFlags::BIND | MountFlags::RDONLY | plain;
    let unified = groups.iter().any(|g| g.hierarchy == UNIFIED);
    if !unified {
        let options = format!("mode=755,size=64k,uid={0},gid={0}", owners.first);
        mount("doppel", root, "tmpfs", plain, Some(CString::new(options)?.as_c_str()))?;
    }
    for Group { hierarchy, mount } in groups {
        let at = root.join(&hierarchy);
        if !unified {
            fs::create_dir(&at)?;
            // cpu,cpuacct is found as cpu and as cpuacct too.
            for one in hierarchy.split(',').filter(|one| *one != hierarchy) {
                symlink(&hierarchy, root.join(one))?;
            }
        }
        move_mount(&mount, "", CWD, &at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        mount_remount(&at, read_only, "")?;
    }
    if !unified {
        mount_remount(root, read_only, "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_called_after_where_they_are_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("cpu,cpuacct/doppel/d7");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(hierarchy(&group), "cpu,cpuacct");
        fs::write(group.join("cgroup.controllers"), "cpu memory").unwrap();
        assert_eq!(hierarchy(&group), UNIFIED);
    }
}
