//! The first process of a domain: born in a v2 control group, and failures that are named.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use doppel_sys::child::{ChildPlan, spawn};

/// A static program that sleeps for ever.
fn sleeper() -> File {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("sleeper.c"), dir.join("sleeper"));
    fs::write(&source, "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n").unwrap();
    let status = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(status.expect("cc (package gcc) is needed").success());
    File::open(program).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A writable v2 hierarchy, if this host has one.
fn unified() -> Option<&'static Path> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(Path::new)
        .find(|p| p.join("cgroup.controllers").exists())
}

#[test]
fn it_is_born_in_its_control_group() {
    let Some(root) = unified().filter(|_| is_root()) else {
        eprintln!("skipped: needs root and a v2 hierarchy");
        return;
    };
    let group = root.join(format!("doppel-test-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    let dir = File::open(&group).unwrap();
    let program = sleeper();
    let child = spawn(&ChildPlan {
        executable: program.as_fd(),
        arguments: &[CString::new("sleeper").unwrap()],
        descriptors: &[],
        namespaces: doppel_confine::limits::NAMESPACES,
        join: None,
        user_namespace: false,
        privileged: false,
        uid: 0x7000_0000,
        gid: 0x7000_0000,
        cgroup: Some(dir.as_fd()),
        cgroup_tasks: &[],
        limits: &[],
        speculation: &[],
        tied: true,
        oom_score_adj: c"0",
    })
    .unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", child.pid)).unwrap();
    rustix::process::pidfd_send_signal(&child.pidfd, rustix::process::Signal::KILL).unwrap();
    let id = rustix::process::WaitId::PidFd(child.pidfd.as_fd());
    rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED).unwrap();
    let name = group.file_name().unwrap().to_str().unwrap();
    assert!(groups.lines().any(|l| l.starts_with("0::") && l.ends_with(name)), "{groups}");
    fs::remove_dir(&group).unwrap();
}

#[test]
fn a_failing_step_is_named() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let text = File::open("/proc/self/status").unwrap();
    let error = spawn(&ChildPlan {
        executable: text.as_fd(),
        arguments: &[CString::new("x").unwrap()],
        descriptors: &[text.as_fd()],
        namespaces: doppel_confine::limits::NAMESPACES,
        join: None,
        user_namespace: false,
        privileged: false,
        uid: 0x7000_0000,
        gid: 0x7000_0000,
        cgroup: None,
        cgroup_tasks: &[],
        limits: &[],
        speculation: &[],
        tied: true,
        oom_score_adj: c"0",
    })
    .unwrap_err();
    assert_eq!(error.step, "execute the guest kernel");
    let error = spawn(&ChildPlan {
        executable: text.as_fd(),
        arguments: &[],
        descriptors: &[],
        namespaces: doppel_confine::limits::NAMESPACES,
        join: None,
        user_namespace: false,
        privileged: false,
        uid: 0x7000_0000,
        gid: 0x7000_0000,
        cgroup: None,
        cgroup_tasks: &[],
        limits: &[],
        speculation: &[],
        tied: true,
        oom_score_adj: c"5000",
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "cannot set oom_score_adj: Invalid argument (os error 22)");
}
