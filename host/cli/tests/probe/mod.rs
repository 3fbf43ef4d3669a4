//! Runs the hostile stand-in for the guest kernel (`probe.c`) as `doppel run` runs the real one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The command under test.
pub const DOPPEL: &str = env!("CARGO_BIN_EXE_doppel");

/// The compiled probe and a file that passes for an image.
pub fn files() -> &'static (PathBuf, PathBuf) {
    static FILES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    FILES.get_or_init(|| {
        // Test programs run side by side: each compiles a probe of its own.
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
        std::fs::create_dir_all(&dir).unwrap();
        let (probe, image) = (dir.join("probe"), dir.join("image.erofs"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probe/probe.c");
        let status =
            Command::new("cc").args(["-O1", "-Wall", "-static", "-o"]).arg(&probe).arg(source).status();
        assert!(status.expect("cc (package gcc) is needed").success(), "the probe does not compile");
        std::fs::write(&image, [0u8; 8192]).unwrap();
        (probe, image)
    })
}

/// `doppel run` of the probe doing `what`.
pub fn command(options: &[&str], what: &str) -> Command {
    let (probe, image) = files();
    let mut command = Command::new(DOPPEL);
    command.arg("run").args(options).arg("--kernel").arg(probe).arg(image).args(["--", what]);
    command.stdin(Stdio::null());
    command
}

/// Host pid of the domain's first process.
pub fn first_process(doppel: &Child) -> i32 {
    let path = format!("/proc/{0}/task/{0}/children", doppel.id());
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Sends a signal.
pub fn kill(pid: i32, signal: i32) {
    let status = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
    assert!(status.success());
}
