//! Domains from the outside, with a hostile stand-in for the guest kernel (`probe/probe.c`).
//!
//! What it sees and can reach, what comes back from the console, and what is left behind.

mod probe;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use probe::{DOPPEL, command, files, first_process, kill};

fn run(options: &[&str], what: &str) -> Output {
    command(options, what).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Starts it and waits for its "ready" line.
fn start(options: &[&str], what: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command(options, what).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

/// Whether anything of a domain named `name` is left.
fn left_behind(name: &str) -> Vec<String> {
    let find =
        Command::new("find").args(["/sys/fs/cgroup", "/run/doppel", "-name", &format!("*{name}*")]).output();
    text(&find.unwrap().stdout).lines().map(str::to_owned).collect()
}

fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
}

#[test]
fn a_domain_is_born_with_nothing() {
    let output = run(&[], "report");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let facts: HashMap<&str, &str> =
        text(&output.stdout).lines().map(|line| line.rsplit_once(' ').unwrap()).collect();
    let expected = [
        ("pid", "1"),
        ("sid", "1"),
        ("bounding", "0"),
        ("no_new_privs", "1"),
        ("pdeathsig", "9"),
        ("descriptors", "5"),
        ("links /", "2"),
        ("mkdir", "30"),
        ("stat /proc", "2"),
        ("stat /sys", "2"),
        ("stat /dev", "2"),
        ("stat /etc", "2"),
        ("stat /home", "2"),
        ("cwd", "/"),
        // EMFILE: not one more descriptor can be had.
        ("open / -1", "24"),
        ("socket", "24"),
        ("nofile 5", "5"),
        // With one byte the host writes no core, and does not pipe one to a handler either (core(5)).
        ("core", "1"),
        ("signals changed", "0"),
        ("environment", "0"),
        // EPERM by the seal, EBADF for want of write access, ESRCH for want of anyone else.
        ("control resize", "27"),
        ("image write", "9"),
        ("kill outside", "3"),
        ("caps 0 0", "0"),
    ];
    for (name, value) in expected {
        assert_eq!(facts.get(name), Some(&value), "{name}");
    }
    if is_root() {
        assert_eq!(facts["groups"], "0");
        let (key, uid) = facts.iter().find(|(k, _)| k.starts_with("uid ")).unwrap();
        let uid: u32 = uid.parse().unwrap();
        assert!(uid > 0x7000_0000 && *key == format!("uid {uid}"));
    }
}

#[test]
fn it_lives_in_namespaces_of_its_own() {
    let (mut child, _out) = start(&[], "hang");
    let pid = first_process(&child);
    let namespace = |pid: &str, kind: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
    for kind in ["cgroup", "ipc", "mnt", "net", "pid", "uts"] {
        assert_ne!(namespace(&pid.to_string(), kind), namespace("self", kind), "{kind}");
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name}"))
            .trim()
            .to_owned()
    };
    assert_eq!(field("Seccomp:"), "2");
    // Where the host leaves it to each process: forbidden once and for all. It has the last word elsewhere.
    let ours = std::fs::read_to_string("/proc/self/status").unwrap();
    let branches = ours.lines().find_map(|l| l.strip_prefix("SpeculationIndirectBranch:")).map(str::trim);
    match branches {
        Some("conditional enabled" | "conditional disabled") => {
            assert_eq!(field("SpeculationIndirectBranch:"), "conditional force disabled");
        }
        Some(other) => assert_eq!(field("SpeculationIndirectBranch:"), other),
        None => {}
    }
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    assert_eq!(mounts.lines().count(), 1, "{mounts}");
    assert!(mounts.starts_with("doppel / tmpfs ro,nosuid,nodev,noexec"), "{mounts}");
    let net = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
    assert_eq!(net.lines().filter(|l| l.contains(':')).count(), 1, "only lo: {net}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(soon(|| !std::path::Path::new(&format!("/proc/{pid}")).exists()), "it outlives its doppel");
}

#[test]
fn no_other_call_passes_the_gate() {
    let output = run(&[], "calls");
    let out = text(&output.stdout);
    // mprotect of nothing, mremap and madvise of nothing or of bad addresses, membarrier's query.
    for line in out.lines().filter(|l| l.starts_with("passed")) {
        let number = line.split(' ').nth(1).unwrap();
        assert!(["10", "25", "28", "324"].contains(&number), "{line}");
    }
    assert!(out.contains("refused 17"), "{out}");
}

#[test]
fn calls_from_elsewhere_trap() {
    let output = run(&[], "outside");
    let out = text(&output.stdout);
    assert!(out.contains("wrong 0 traps 599\n"), "{out}");
    assert!(out.contains("x32 -1073743026\n"), "{out}");
}

#[test]
fn hostile_arguments_are_refused() {
    assert_eq!(text(&run(&[], "arguments").stdout), "tried 30\n");
}

#[test]
fn what_a_guest_kernel_needs_works() {
    let output = run(&[], "allowed");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(
        text(&output.stdout),
        "mmap 1\npagefile 1\npunch 0\nzero 0\nimage 1\nmunmap 0\nchildren 2 status 0\n"
    );
}

#[test]
fn bytes_pass_through_unharmed() {
    let mut input = Vec::new();
    for n in 0u32..500_000 {
        input.extend(n.wrapping_mul(2_654_435_761).to_le_bytes());
    }
    let mut child = command(&["-i"], "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let expected = input.clone();
    #[allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let mut output = Vec::new();
    stdout.read_to_end(&mut output).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(output == expected, "{} bytes of {}", output.len(), expected.len());
}

#[test]
fn without_i_the_input_is_empty() {
    let mut child = command(&[], "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    // Nobody reads any more, or somebody might still; both are fine.
    let _ = stdin.write_all(b"unread");
}

#[test]
fn a_reader_that_leaves_hangs_up() {
    let mut child = command(&[], "yes").stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0u8; 1000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}

#[test]
fn signals_are_passed_on() {
    for (signal, bits) in [(1, "1"), (2, "2"), (10, "200"), (15, "4000")] {
        let (mut child, mut out) = start(&[], "signal");
        kill(child.id() as i32, signal);
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("signals {bits}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(143));
    }
}

#[test]
fn sudden_ends_are_explained_and_leave_nothing() {
    for (what, code, words) in [
        ("crash", 125, "its first process was killed by signal 11"),
        ("int80", 125, "its first process was killed by signal 31"),
        ("panic", 125, "last words\ndoppel: domain t-panic ended: guest kernel panic"),
        ("bad-ring", 125, "it broke the console protocol"),
    ] {
        let name = format!("t-{what}");
        let output = run(&["--name", &name], what);
        assert_eq!(output.status.code(), Some(code), "{what}");
        assert!(text(&output.stderr).contains(words), "{what}: {}", text(&output.stderr));
        assert_eq!(left_behind(&name), [""; 0]);
    }
}

#[test]
fn killing_its_first_process_ends_it() {
    let (mut child, _out) = start(&["--name", "t-killed"], "hang");
    let again = run(&["--name", "t-killed"], "hang");
    assert_eq!(again.status.code(), Some(125));
    assert!(text(&again.stderr).contains("a domain named \"t-killed\" is running"));
    kill(first_process(&child), 9);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125));
    assert_eq!(errors, "doppel: domain t-killed ended: its first process was killed by signal 9\n");
    assert_eq!(left_behind("t-killed"), [""; 0]);
}

#[test]
fn killing_doppel_ends_the_domain() {
    let (mut child, _out) = start(&["--name", "t-orphan"], "hang");
    let pid = first_process(&child);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(soon(|| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    // The next domain sweeps up.
    assert!(run(&[], "report").status.success());
    // Or another one that started at the same time does, and has not finished.
    assert!(soon(|| left_behind("t-orphan").is_empty()), "{:?}", left_behind("t-orphan"));
}

#[test]
fn a_fork_bomb_meets_its_limit() {
    let output = run(&["--name", "t-bomb"], "bomb");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "made many\n"), "{output:?}");
    assert_eq!(left_behind("t-bomb"), [""; 0]);
}

#[test]
fn a_memory_hog_meets_its_limit() {
    let output = run(&["--name", "t-hog", "--memory", "32m"], "hog");
    if output.status.code() == Some(125) && text(&output.stderr).contains("control group") {
        eprintln!("skipped: no control groups here");
        return;
    }
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    assert!(text(&output.stderr).contains("out of memory"), "{}", text(&output.stderr));
    assert_eq!(left_behind("t-hog"), [""; 0]);
}

#[test]
fn mistakes_are_named() {
    for (options, words) in [
        (&["--cpus", "0"][..], "resources.cpus: 0"),
        (&["--memory", "1k"], "resources.memory_bytes: 1024 bytes; at least 8388608"),
        (&["--memory", "1q"], "unknown unit"),
        (&["--name", "a/b"], "name: \"a/b\" does not match"),
        (&["-w", "tmp"], "must be an absolute path"),
        (&["-u", "nobody-here"], "has no user"),
        (&["--kernel", "/bin/true"], "not a guest kernel"),
    ] {
        let mut command = Command::new(DOPPEL);
        command.arg("run").args(options).arg(&files().1).args(["--", "x"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{options:?}");
        assert!(text(&output.stderr).contains(words), "{options:?}: {}", text(&output.stderr));
    }
}
