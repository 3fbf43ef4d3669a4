//! `doppel doctor`: what this host needs to run domains, checked one by one, with a remedy for what is missing.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use doppel_client::Client;
use doppel_confine::limits::MAX_TASKS;
use doppel_image::Store;
use serde::Serialize;

use crate::supervised::Outcome;
use crate::terminal::out::say;

/// Oldest host kernel that is supported: system calls are dispatched by the guest, with FSGSBASE in user mode.
const KERNEL: (u32, u32) = (5, 15);
/// Mappings a process may have; a domain with many threads and libraries needs as many as the same program natively.
const MAPS: u64 = 65_530;
/// Process ids; every guest process is a host process.
const PIDS: u64 = 32_768;
/// Descriptors a keeper has for each domain that has a network: doorbell, process, and two of the network's; what it has
/// otherwise; and how many domains should find room.
const DESCRIPTORS: u64 = 4;
const RESERVED: u64 = 64;
const MANY: u64 = 200;
/// Sources of the host's time that its vDSO reads without a system call, which a guest kernel may not make.
const CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen"];
/// `AT_HWCAP2` of the auxiliary vector, and its bit for FSGSBASE.
const HWCAP2: (u64, u64) = (26, 1 << 1);

/// Options of `doppel doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// One line of JSON a check
    #[arg(long)]
    json: bool,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Domains run, but something is missing.
    Warning,
    /// Domains cannot run.
    Failed,
}

/// A check and how it ended.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

fn check(name: &'static str, verdict: Verdict, found: impl Into<String>, remedy: &str) -> Check {
    let remedy = (verdict != Verdict::Ok).then(|| remedy.to_owned());
    Check { name, verdict, found: found.into(), remedy }
}

fn verdict(good: bool, otherwise: Verdict) -> Verdict {
    if good { Verdict::Ok } else { otherwise }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Runs all checks.
pub fn run(args: &DoctorArgs) -> Outcome {
    let checks = [
        kernel(),
        seccomp(),
        fsgsbase(),
        clock(),
        namespaces(),
        memfd(),
        cgroups(),
        overcommit(),
        at_least("vm.max_map_count", "/proc/sys/vm/max_map_count", MAPS),
        tasks(),
        descriptors(),
        mitigations(),
        smt(),
        merging(),
        swap(),
        paene(),
        store(),
        supervisor(),
    ];
    for check in &checks {
        if args.json {
            say!("{}", serde_json::to_string(check)?)?;
            continue;
        }
        let mark = match check.verdict {
            Verdict::Ok => "ok      ",
            Verdict::Warning => "warning ",
            Verdict::Failed => "FAILED  ",
        };
        say!("{mark}{:<18}{}", check.name, check.found)?;
        if let Some(remedy) = &check.remedy {
            say!("        {:<18}-> {remedy}", "")?;
        }
    }
    let failed = checks.iter().any(|c| c.verdict == Verdict::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What this host lacks for a guest kernel, if anything.
pub fn lacking() -> Option<String> {
    let needed = [kernel(), seccomp(), fsgsbase(), clock(), namespaces(), memfd()];
    let failed = needed.into_iter().find(|c| c.verdict == Verdict::Failed)?;
    Some(format!("{}: {}", failed.name, failed.found))
}

fn kernel() -> Check {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|p| p.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let remedy = format!("a kernel from {}.{} on", KERNEL.0, KERNEL.1);
    check("kernel", verdict(version >= KERNEL, Verdict::Failed), format!("Linux {release}"), &remedy)
}

/// What domains of the other kind need (docs/paene.md).
fn paene() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    // One that is not in the kernel yet may be a module of it.
    let has = |name: &str| {
        known.lines().any(|line| line.split_whitespace().last() == Some(name))
            || Path::new(&format!("/lib/modules/{release}/kernel/fs/{name}")).exists()
    };
    let there = |path: &str| Path::new(path).exists();
    let needed = [
        (rustix::process::geteuid().is_root(), "root"),
        // Its module's directory has another name.
        (has("overlay") || has("overlayfs"), "the file system overlay"),
        (there("/dev/net/tun"), "/dev/net/tun (for a network)"),
    ];
    let missing: Vec<&str> = needed.iter().filter(|(is, _)| !is).map(|(_, what)| *what).collect();
    let forced = std::env::var_os("DOPPEL_PAENE_ROOT").is_some_and(|word| !word.is_empty());
    let found = if !missing.is_empty() {
        format!("not here: {}", missing.join(", "))
    } else if forced || !has("erofs") || !there("/dev/loop-control") {
        "root, overlay, tun; images are unpacked in the store (without erofs and loop devices, or by DOPPEL_PAENE_ROOT)".to_owned()
    } else {
        "root, overlay, tun; images are mounted (erofs, loop devices)".to_owned()
    };
    let found = if there("/dev/fuse") && there("/dev/loop-control") {
        found
    } else {
        format!("{found}; no disks (they need /dev/fuse and /dev/loop-control)")
    };
    let remedy = "only for --kind paene; para domains do without";
    check("paene domains", verdict(missing.is_empty(), Verdict::Warning), found, remedy)
}

fn seccomp() -> Check {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let has = |action: &str| actions.split_whitespace().any(|a| a == action);
    let found = if actions.is_empty() { "not there".into() } else { actions.trim().to_owned() };
    let good = ["trap", "errno", "kill_process"].iter().all(|a| has(a));
    check("seccomp", verdict(good, Verdict::Failed), found, "a kernel with CONFIG_SECCOMP_FILTER")
}

fn fsgsbase() -> Check {
    let vector = fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
    let value = vector
        .chunks_exact(16)
        .find(|entry| word(&entry[..8]) == HWCAP2.0)
        .map_or(0, |entry| word(&entry[8..]));
    let good = value & HWCAP2.1 != 0;
    let found = if good { "in user mode" } else { "not in user mode" };
    let remedy = "a CPU with FSGSBASE (2012 and later), and no nofsgsbase on the kernel's command line";
    check("fsgsbase", verdict(good, Verdict::Failed), found, remedy)
}

fn namespaces() -> Check {
    let most = number("/proc/sys/user/max_user_namespaces");
    let root = rustix::process::geteuid().is_root();
    let refused = |path: &str, value| !root && number(path) == Some(value);
    if most.unwrap_or(0) == 0 {
        return check(
            "user namespaces",
            Verdict::Failed,
            "none allowed",
            "sysctl user.max_user_namespaces=15000",
        );
    }
    if refused("/proc/sys/kernel/unprivileged_userns_clone", 0) {
        let remedy = "run as root, or sysctl kernel.unprivileged_userns_clone=1";
        return check("user namespaces", Verdict::Failed, "only for root", remedy);
    }
    if refused("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1) {
        let remedy = "run as root, or sysctl kernel.apparmor_restrict_unprivileged_userns=0";
        return check("user namespaces", Verdict::Failed, "restricted by AppArmor", remedy);
    }
    check("user namespaces", Verdict::Ok, format!("{} allowed", most.unwrap_or(0)), "")
}

fn clock() -> Check {
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned());
    let good = source == "unknown" || CLOCKS.contains(&source.as_str());
    let remedy =
        "domains read the time without system calls: a stable TSC; if the host's is, boot with tsc=reliable";
    check("clock source", verdict(good, Verdict::Failed), source, remedy)
}

fn memfd() -> Check {
    use rustix::fs::MemfdFlags;
    match rustix::fs::memfd_create("doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING) {
        Ok(_) => check("memfd", Verdict::Ok, "with seals", ""),
        Err(e) => check("memfd", Verdict::Failed, e.to_string(), "a kernel with CONFIG_MEMFD_CREATE"),
    }
}

fn cgroups() -> Check {
    const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];
    let root = Path::new("/sys/fs/cgroup");
    let missing = |there: &dyn Fn(&str) -> bool| {
        NEEDED.into_iter().filter(|c| !there(c)).collect::<Vec<_>>().join(", ")
    };
    let remedy =
        "limits that need what is missing are refused: mount it, and delegate it if you are not root";
    if let Ok(list) = fs::read_to_string(root.join("cgroup.controllers")) {
        let missing = missing(&|c| list.split_whitespace().any(|l| l == c));
        let found = if missing.is_empty() { "v2".into() } else { format!("v2 without {missing}") };
        return check("control groups", verdict(missing.is_empty(), Verdict::Warning), found, remedy);
    }
    let missing = missing(&|c| root.join(c).join("cgroup.procs").exists());
    let found = match missing.split(", ").count() {
        _ if missing.is_empty() => "v1".into(),
        3 => "none".into(),
        _ => format!("v1 without {missing}"),
    };
    check("control groups", verdict(missing.is_empty(), Verdict::Warning), found, remedy)
}

fn overcommit() -> Check {
    let value = number("/proc/sys/vm/overcommit_memory");
    let found = match value {
        Some(0) => "0 (heuristic)".into(),
        Some(1) => "1 (always)".into(),
        Some(n) => format!("{n} (never)"),
        None => "unknown".to_owned(),
    };
    // Domains reserve address space for what they may use at most.
    let remedy = "sysctl vm.overcommit_memory=0 (or 1): domains reserve more than they use";
    check("vm.overcommit", verdict(value != Some(2), Verdict::Failed), found, remedy)
}

fn at_least(name: &'static str, path: &str, least: u64) -> Check {
    let value = number(path);
    let found = value.map_or_else(|| "unknown".into(), |v| v.to_string());
    let good = value.is_none_or(|v| v >= least);
    check(name, verdict(good, Verdict::Warning), found, &format!("sysctl {name}={least} or more"))
}

/// How many domains the host's processes and threads are enough for.
fn tasks() -> Check {
    let number = |file: &str| number(&format!("/proc/sys/kernel/{file}"));
    let (pids, threads) = (number("pid_max"), number("threads-max"));
    let shown = |v: Option<u64>| v.map_or_else(|| "unknown".into(), |v| v.to_string());
    let should = doppel_domain::all_tasks();
    let most = doppel_domain::tasks_bound().unwrap_or(should);
    let found = format!(
        "kernel.pid_max {}, threads-max {}: domains have {most} together, enough for {} of two tasks each, or {} with the most a \
         domain may have ({MAX_TASKS})",
        shown(pids),
        shown(threads),
        most / 2,
        most / MAX_TASKS
    );
    let good = pids.min(threads).is_none_or(|v| v >= PIDS) && most >= should;
    let remedy = format!(
        "sysctl kernel.pid_max={PIDS} or more, and {should} into pids.max of the control group doppel, or `--pids-limit` for each domain"
    );
    check("tasks", verdict(good, Verdict::Warning), found, &remedy)
}

/// How many domains a process may keep: each takes a few of its descriptors.
fn descriptors() -> Check {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let domains = most.saturating_sub(RESERVED) / DESCRIPTORS;
    let found = format!("RLIMIT_NOFILE {most}: enough for {domains} domains in one keeper started from here");
    let remedy = "LimitNOFILE= of the unit, or `ulimit -n`";
    check("descriptors", verdict(domains >= MANY, Verdict::Warning), found, remedy)
}

/// What the host's kernel knows of holes in its CPUs, which any program beside a secret could use.
fn mitigations() -> Check {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten();
    let open = entries.filter_map(|e| {
        let says = fs::read_to_string(e.path()).ok()?;
        says.starts_with("Vulnerable").then(|| e.file_name().to_string_lossy().into_owned())
    });
    let mut open: Vec<String> = open.collect();
    open.sort();
    let found = if open.is_empty() { "none open".into() } else { format!("open: {}", open.join(", ")) };
    let remedy = "update microcode and kernel, and do not boot with mitigations=off; domains of strangers can read memory by these";
    check("CPU mitigations", verdict(open.is_empty(), Verdict::Warning), found, remedy)
}

/// Threads of one core see each other's caches.
fn smt() -> Check {
    let on = fs::read_to_string("/sys/devices/system/cpu/smt/active").is_ok_and(|t| t.trim() == "1");
    let remedy = "boot with nosmt, or keep domains of strangers off each other's cores (cpusets): they can listen to each other by timing";
    check("SMT", verdict(!on, Verdict::Warning), if on { "on" } else { "off" }, remedy)
}

/// Equal pages that the host's kernel merges tell who has them.
fn merging() -> Check {
    let on = number("/sys/kernel/mm/ksm/run") == Some(1);
    let remedy = "echo 2 > /sys/kernel/mm/ksm/run; domains never ask for it, but other programs may";
    check("KSM", verdict(!on, Verdict::Warning), if on { "on" } else { "off" }, remedy)
}

/// What is swapped out stays on the disk.
fn swap() -> Check {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let places: Vec<&str> = text.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    let plain: Vec<&str> =
        places.iter().copied().filter(|p| !p.contains("zram") && !p.contains("/dm-")).collect();
    let found = if places.is_empty() { "none".into() } else { places.join(", ") };
    let remedy = "encrypt it, or swapoff -a: domains' memory can stay on the disk";
    check("swap", verdict(plain.is_empty(), Verdict::Warning), found, remedy)
}

fn store() -> Check {
    let root = Store::from_env().root().to_owned();
    let place = root.display().to_string();
    let remedy = format!("make {place} writable for you, or set DOPPEL_STORE to a directory that is");
    let tried = fs::create_dir_all(&root).and_then(|()| tempfile::tempfile_in(&root).map(|_| ()));
    match tried {
        Ok(()) => check("image store", Verdict::Ok, place, ""),
        Err(e) => check("image store", Verdict::Failed, format!("{place}: {e}"), &remedy),
    }
}

fn supervisor() -> Check {
    let remedy = "start doppeld (systemctl enable --now doppeld.socket); `doppel run` works without it";
    let asked = Client::from_env().and_then(|client| client.version().map(|v| (client.place(), v)));
    match asked {
        Ok((place, v)) => check("supervisor", Verdict::Ok, format!("{} at {place}", v.version), ""),
        Err(e) => check("supervisor", Verdict::Warning, e.to_string(), remedy),
    }
}
