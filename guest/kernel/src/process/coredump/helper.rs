//! Core files that are piped to a program (`core_pattern` with `|`): the helper runs in the domain as root, with the core on its
//! standard input, no environment, and as no child of any process.
//!
//! Key type: [`Start`]. The thread that dumps asks PID 1 to start the helper, and waits until that runs its program; its pipe is
//! then written to like a file. Nothing of the helper is a core file itself (RLIMIT_CORE 1).

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_machine::BootArgs;
use doppel_machine::boot::BootData;
use doppel_machine::sync::SpinLock;

use crate::core::sched::{WaitQueue, wait_until_uninterruptible};
use crate::core::time::Expire;
use crate::objects::ipc::pipe::new_pipe;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::process::task::{
    Cred, Process, Resource, Rlimit, Thread, do_group_exit, load_program, start_session,
};
use crate::{Result, kernel};

/// A helper that is being started.
struct Start {
    argv: Vec<Vec<u8>>,
    input: Arc<File>,
    outcome: SpinLock<Option<Result<()>>>,
    known: WaitQueue,
}

/// Starts the helper with these arguments; value: where the core goes. Whoever has it calls `fd_removed` in the end.
pub(super) fn start(argv: Vec<Vec<u8>>) -> Result<Arc<File>> {
    let (input, output) = new_pipe(OpenFlags::empty());
    input.fd_added();
    output.fd_added();
    let start = Arc::new(Start {
        argv,
        input: input.clone(),
        outcome: SpinLock::new(None),
        known: WaitQueue::default(),
    });
    kernel().timekeeper.arm(0, start.clone());
    let outcome = wait_until_uninterruptible(&start.known, || *start.outcome.lock());
    input.fd_removed();
    if let Err(e) = outcome {
        output.fd_removed();
        return Err(e);
    }
    Ok(output)
}

impl Expire for Start {
    fn expire(self: Arc<Self>, _now: u64) {
        let (opener, runner) = (self.clone(), self.clone());
        let open = move |p: &Arc<Process>| {
            p.rlimits.lock()[Resource::Core] = Rlimit { cur: 1, max: 1 };
            p.files().insert(opener.input.clone(), false).map(drop)
        };
        if let Err(e) = start_session(Cred::new(0, 0), open, move |t| runner.run(t)) {
            self.tell(Err(e));
        }
    }
}

impl Start {
    /// The first thing the helper's thread does.
    fn run(&self, t: &Arc<Thread>) {
        let none = BootArgs {
            argc: 0,
            envc: 0,
            uid: 0,
            gid: 0,
            flags: 0,
            winsize: 0,
            clone_args: 0,
            groups: 0,
            mounts: 0,
            hosts: 0,
        };
        let data = BootData {
            args: none,
            groups: Vec::new(),
            argv: self.argv.clone(),
            envp: Vec::new(),
            clone_args: Vec::new(),
            cwd: b"/".to_vec(),
            hostname: Vec::new(),
            mounts: Vec::new(),
            hosts: Vec::new(),
        };
        let loaded = load_program(t, &data);
        self.tell(loaded);
        if loaded.is_err() {
            do_group_exit(t, 127 << 8);
        }
    }

    fn tell(&self, outcome: Result<()>) {
        *self.outcome.lock() = Some(outcome);
        self.known.notify_all();
    }
}
