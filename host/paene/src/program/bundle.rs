//! The container as OCI's runtime specification describes one (`config.json`), for libcontainer.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

use crate::disks::DISK;
use crate::program::request::Request;
use crate::root::layer::LAYER;
use crate::root::owners::Owners;
use crate::root::volumes::{Bind, is_volume};

/// What root in a domain may do, to what is its own: Docker's default set.
pub(crate) const CAPABILITIES: &[(&str, CapabilitySet)] = &[
    ("CAP_CHOWN", CapabilitySet::CHOWN),
    ("CAP_DAC_OVERRIDE", CapabilitySet::DAC_OVERRIDE),
    ("CAP_FSETID", CapabilitySet::FSETID),
    ("CAP_FOWNER", CapabilitySet::FOWNER),
    ("CAP_MKNOD", CapabilitySet::MKNOD),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW),
    ("CAP_SETGID", CapabilitySet::SETGID),
    ("CAP_SETUID", CapabilitySet::SETUID),
    ("CAP_SETFCAP", CapabilitySet::SETFCAP),
    ("CAP_SETPCAP", CapabilitySet::SETPCAP),
    ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    ("CAP_SYS_CHROOT", CapabilitySet::SYS_CHROOT),
    ("CAP_KILL", CapabilitySet::KILL),
    ("CAP_AUDIT_WRITE", CapabilitySet::AUDIT_WRITE),
];
/// Resource limits; with one byte of core the host makes none, by a pipe neither, which it would with 0. Lowered to the host's own where those are less.
pub(crate) const LIMITS: &[(Resource, u64)] = &[(Resource::Nofile, 1 << 20), (Resource::Core, 1)];
/// When the host runs out of memory, domains go before services.
pub(crate) const OOM_SCORE: i32 = doppel_confine::limits::OOM_SCORE_ADJ;

/// Paths that say too much, or do too much; OCI's and Docker's defaults.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Writes the bundle of a container whose root file system is at `root`.
pub(crate) fn write(
    dir: &Path,
    root: &Path,
    request: &Request,
    owners: Owners,
    volumes: &[Bind],
) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("config.json"), serde_json::to_vec(&config(root, request, owners, volumes))?)
}

/// What is mounted because somebody asks for it.
fn asked(request: &Request, volumes: &[Bind]) -> Vec<Value> {
    let mut volumes = volumes.iter();
    let one = |[at, kind, options]: &[OsString; 3]| {
        if is_volume(kind) {
            let volume = volumes.next()?;
            // Whether it is read-only the mount that is bound says.
            let rest = volume.options.iter().map(String::as_str).filter(|o| !matches!(*o, "ro" | "rw"));
            let options: Vec<&str> = std::iter::once("bind").chain(rest).collect();
            return Some(json!({
                "destination": volume.target.to_string_lossy(), "type": "bind", "source": volume.source, "options": options,
            }));
        }
        let (at, kind, options) = (at.to_string_lossy(), kind.to_string_lossy(), options.to_string_lossy());
        let options: Vec<&str> = options.split(',').filter(|option| !option.is_empty()).collect();
        Some(json!({ "destination": at, "type": kind, "source": kind, "options": options }))
    };
    request.mounts.iter().filter(|[_, kind, _]| kind != LAYER && kind != DISK).filter_map(one).collect()
}

fn config(root: &Path, request: &Request, owners: Owners, volumes: &[Bind]) -> Value {
    let capabilities: Vec<&str> = CAPABILITIES.iter().map(|(name, _)| *name).collect();
    let map = json!([{ "containerID": 0, "hostID": owners.first, "size": owners.count }]);
    let limit = |(resource, most): &(Resource, u64)| {
        let most = rustix::process::getrlimit(*resource).maximum.map_or(*most, |m| m.min(*most));
        let name = if *resource == Resource::Core { "RLIMIT_CORE" } else { "RLIMIT_NOFILE" };
        json!({ "type": name, "soft": most, "hard": most })
    };
    let mount = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": kind, "options": options });
    let mut mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=64k"]),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=64m"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    mounts.extend(asked(request, volumes));
    let namespaces = ["user", "pid", "mount", "network", "ipc", "uts", "cgroup", "time"];
    json!({
        "ociVersion": "1.2.0",
        "hostname": request.hostname.to_string_lossy(),
        "root": { "path": root, "readonly": request.read_only() },
        "process": {
            "terminal": false,
            "user": { "uid": request.program.uid, "gid": request.program.gid, "additionalGids": request.program.groups },
            // What really runs, and where, is `program`'s: these need not be text.
            "args": ["program"],
            "env": [],
            "cwd": "/",
            "noNewPrivileges": true,
            "oomScoreAdj": OOM_SCORE,
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
            "rlimits": LIMITS.iter().map(limit).collect::<Vec<_>>(),
        },
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces.map(|kind| json!({ "type": kind })),
            "uidMappings": map,
            "gidMappings": map,
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
            "cgroupsPath": "/",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libcontainer_reads_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let program = doppel_spec::Program { uid: 7, groups: vec![8], ..Default::default() };
        let request = Request { program, hostname: "h".into(), ..Request::default() };
        let owners = Owners { first: 1 << 29, count: 1 << 16 };
        let mounts = [
            ["/", LAYER, "source=/l"],
            ["/m", "tmpfs", "ro"],
            ["/dev/vda", DISK, "index=0"],
            ["/v", "bind", "source=/x"],
        ];
        let mounts = mounts.iter().map(|m| m.map(OsString::from)).collect();
        let request = Request { mounts, ..request };
        let volume =
            Bind { source: "/run/volumes/0".into(), target: "/v".into(), options: vec!["ro".into()] };
        write(dir.path(), Path::new("/somewhere"), &request, owners, &[volume]).unwrap();
        let spec = libcontainer::oci_spec::runtime::Spec::load(dir.path().join("config.json")).unwrap();
        let mounts = spec.mounts().as_ref().unwrap();
        let neither = ["/", "/dev/vda"].map(Path::new);
        assert!(
            mounts.iter().all(|mount| !neither.contains(&mount.destination().as_path())),
            "layer and disk are no mounts"
        );
        let volume = mounts.last().unwrap();
        assert_eq!(volume.source().as_ref().unwrap(), Path::new("/run/volumes/0"));
        assert_eq!(volume.options().as_ref().unwrap(), &["bind"]);
        let process = spec.process().as_ref().unwrap();
        assert_eq!((process.user().uid(), process.no_new_privileges()), (7, Some(true)));
        let linux = spec.linux().as_ref().unwrap();
        assert_eq!(linux.namespaces().as_ref().unwrap().len(), 8);
        assert_eq!(linux.uid_mappings().as_ref().unwrap()[0].host_id(), 1 << 29);
    }
}
