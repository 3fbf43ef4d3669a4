//! Process descriptors (`pidfd_open(2)`): readable once the process has exited.

use alloc::format;
use alloc::sync::Arc;

use crate::core::namespace::Kind;
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};
use crate::process::namespaces::{nsfs, numbers};
use crate::process::task::Process;
use crate::process::task::current_ref;
use crate::process::task::remote;
use crate::{Errno, Result};

/// What a process descriptor refers to.
pub struct PidFd {
    process: Arc<Process>,
}

impl PidFd {
    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

/// The kinds of namespaces in the order of their requests, and whether those of the children to come.
const NAMESPACES: [(Kind, bool); 10] = [
    (Kind::Cgroup, false),
    (Kind::Ipc, false),
    (Kind::Mount, false),
    (Kind::Net, false),
    (Kind::Pid, false),
    (Kind::Pid, true),
    (Kind::Time, false),
    (Kind::Time, true),
    (Kind::User, false),
    (Kind::Uts, false),
];

impl FileOps for PidFd {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.process.exit_wait);
        }
        PollEvents::READABLE.when(self.process.is_zombie())
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        // PIDFD_GET_*_NAMESPACE, from 0xff01 on.
        let (kind, for_children) =
            *cmd.checked_sub(0xff01).and_then(|i| NAMESPACES.get(i as usize)).ok_or(Errno::ENOTTY)?;
        if arg != 0 {
            return Err(Errno::EINVAL);
        }
        let leader = self.process.threads().first().cloned().ok_or(Errno::ESRCH)?;
        remote::may_access(&current_ref().process, &self.process).map_err(|_| Errno::EACCES)?;
        nsfs::descriptor(nsfs::of(&self.process, Some(&leader), kind, for_children).ok_or(Errno::ESRCH)?)
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        if self.process.is_zombie() {
            out.push_str("Pid:\t-1\nNSpid:\t-1\n");
            return;
        }
        let pid = numbers::shown(self.process.pid);
        out.push_str(&format!("Pid:\t{pid}\nNSpid:\t{pid}"));
        let here = numbers::of(&current_ref().process).clone();
        for n in numbers::of(&self.process).shown_below(&here, self.process.pid).into_iter().skip(1) {
            out.push_str(&format!("\t{n}"));
        }
        out.push('\n');
    }
}

/// A new descriptor of the calling thread for `target`.
pub fn open(target: &Arc<Process>) -> Result<i32> {
    open_with(target, OpenFlags::empty())
}

pub(crate) fn open_with(target: &Arc<Process>, extra: OpenFlags) -> Result<i32> {
    let ops = Arc::new(PidFd { process: target.clone() });
    current_ref().files().insert(File::anon(ops, "anon_inode:[pidfd]".into(), OpenFlags::RDWR | extra), true)
}

/// The process behind a descriptor of the calling thread; EBADF if it is no process descriptor.
pub fn process_of(fd: i32) -> Result<Arc<Process>> {
    let thread = current_ref();
    let file = thread.file(fd)?;
    file.downcast::<PidFd>().map(|p| p.process.clone()).ok_or(Errno::EBADF)
}

/// The pid behind a descriptor of the calling thread.
pub fn pid_of(fd: i32) -> Result<i32> {
    process_of(fd).map(|p| p.pid)
}
