//! A domain that is none, for unit tests and fuzz targets of the host's end of what both share.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use doppel_abi_machine::control;
use doppel_sys::child::Child;
use doppel_sys::shared::SharedMap;
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::run::state::{Born, Core, Guests};
use crate::{ExecConfig, Kind};

/// A program with its input connected.
pub(crate) fn exec() -> ExecConfig {
    let mut config = ExecConfig::new(vec!["x".into()]);
    config.spec.stdin = true;
    config
}

/// A control area, and a process that stands for the domain.
pub(crate) struct Peer {
    pub core: Arc<Core>,
    process: std::process::Child,
}

impl Peer {
    pub fn new() -> Self {
        let process = Command::new("sleep").arg("1000000").stdin(Stdio::null()).spawn().expect("a process");
        let pid = i32::try_from(process.id()).expect("an int");
        let pidfd =
            pidfd_open(Pid::from_raw(pid).expect("a process"), PidfdFlags::empty()).expect("it lives");
        let fd = rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&fd, control::SIZE).expect("memory");
        let size = usize::try_from(control::SIZE).expect("it fits");
        let born = Born {
            kind: Kind::Para,
            resume: None,
            kernel: [0; 32],
            image: PathBuf::new(),
            generation: 0,
            vcpus: 1,
            memory_limit: AtomicU64::new(0),
            boot_flags: 0,
            owner: 0,
            freeze_to: None,
            freeze_stop: false,
            storage: false,
        };
        let core = Core {
            child: Child { pid, pidfd },
            map: SharedMap::new(fd.as_fd(), size).expect("memory"),
            label: Mutex::default(),
            id: 1,
            born,
            hostname: Mutex::default(),
            files: Mutex::default(),
            parents: Mutex::default(),
            share: Mutex::default(),
            stops: Mutex::default(),
            asleep: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            sessions: Mutex::default(),
            guests: Guests::default(),
            group: None,
            paging: Mutex::default(),
            record: None,
        };
        Self { core: Arc::new(core), process }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().expect("a child");
        self.process.wait().expect("a child");
    }
}
