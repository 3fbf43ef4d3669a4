//! Requests, checked at the edge, and turned into what the keeper starts.

use std::collections::BTreeMap;

use doppel_api::{self as api, Code, Problem};
use doppel_domain::{LEAST_MEMORY, UNBOUNDED};

use crate::domains::{names, network};
use crate::keeper::protocol::{Limits, Log};

/// Most entries and bytes of what callers may attach.
const MOST_LABELS: usize = 256;
const LONGEST_LABEL: usize = 4096;
/// Where programs are looked for unless told otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A request that is wrong.
pub(crate) fn wrong(text: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, text)
}

/// Checks everything about a new domain that needs no look at the host.
pub(crate) fn check(wanted: &api::CreateDomain) -> Result<(), Problem> {
    if wanted.image.is_empty() {
        return Err(wrong("image: name one; `GET /v1/images` lists them"));
    }
    kind(wanted)?;
    if let Some(name) = &wanted.name {
        names::check(name)?;
    }
    let lists = wanted.command.iter().chain(wanted.entrypoint.iter().flatten());
    for text in lists.chain(&wanted.working_dir).chain(&wanted.hostname) {
        no_nul("command", text)?;
    }
    for (name, value) in &wanted.env {
        if name.is_empty() || name.contains('=') {
            return Err(wrong(format!("env: {name:?} is no name of a variable")));
        }
        no_nul("env", name)?;
        no_nul("env", value)?;
    }
    if wanted.working_dir.as_ref().is_some_and(|d| !d.starts_with('/')) {
        return Err(wrong("working_dir: it must be an absolute path"));
    }
    if let Some(hostname) = &wanted.hostname {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if hostname.is_empty() || hostname.len() > 64 || !hostname.chars().all(good) {
            return Err(wrong(format!(
                "hostname: {hostname:?} is none (1 to 64 letters, digits, '-', '.', '_')"
            )));
        }
    }
    if let Some(signal) = &wanted.stop_signal {
        self::signal(signal)?;
    }
    if wanted.timeout_seconds == Some(0) {
        return Err(wrong("timeout_seconds: 0 is no time to live"));
    }
    labels(&wanted.labels)?;
    if wanted.log.max_files == 0 || wanted.log.max_files > 100 || wanted.log.max_bytes < 4096 {
        return Err(wrong("log: 1 to 100 files of at least 4,096 bytes"));
    }
    if let Some(health) = &wanted.health {
        self::health(health)?;
    }
    if let Some(frozen) = &wanted.freeze_as {
        names::check(frozen)?;
    }
    network::wanted(&wanted.network)?;
    resources(&wanted.resources)
}

/// Refuses what domains of the wanted kind cannot do.
fn kind(wanted: &api::CreateDomain) -> Result<(), Problem> {
    let unsupported = |text: &str| Err(Problem::new(Code::Unsupported, text));
    let resources = &wanted.resources;
    match wanted.kind {
        api::Kind::Para if resources.disk_bytes.is_some() || resources.disk_inodes.is_some() => unsupported(
            "resources.disk_bytes, resources.disk_inodes: for paene domains; a para domain's files count as its memory",
        ),
        api::Kind::Paene if wanted.freeze_as.is_some() => {
            unsupported("freeze_as: only para domains can be frozen, and this one is to be paene")
        }
        api::Kind::Paene if resources.memory_target_bytes.is_some() => {
            unsupported("resources.memory_target_bytes: for a guest kernel, which a paene domain has not")
        }
        _ => Ok(()),
    }
}

fn no_nul(field: &str, text: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        Err(wrong(format!("{field}: {text:?} contains a NUL character")))
    } else {
        Ok(())
    }
}

/// Checks labels.
pub(crate) fn labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    let long = |t: &String| t.len() > LONGEST_LABEL;
    if labels.len() > MOST_LABELS || labels.iter().any(|(k, v)| k.is_empty() || long(k) || long(v)) {
        return Err(wrong(format!(
            "labels: at most {MOST_LABELS}, keys of 1 to {LONGEST_LABEL} bytes, values of at most {LONGEST_LABEL}"
        )));
    }
    Ok(())
}

fn health(health: &api::HealthCheck) -> Result<(), Problem> {
    let time = |field: &str, value: f64, least: f64| {
        if (least..=86_400.0).contains(&value) {
            Ok(())
        } else {
            Err(wrong(format!("health.{field}: {value} is not between {least} and 86,400 seconds")))
        }
    };
    time("interval_seconds", health.interval_seconds, 0.1)?;
    time("timeout_seconds", health.timeout_seconds, 0.1)?;
    time("start_period_seconds", health.start_period_seconds, 0.0)?;
    if health.retries == 0 {
        return Err(wrong("health.retries: at least 1"));
    }
    Ok(())
}

/// Checks limits.
pub(crate) fn resources(r: &api::Resources) -> Result<(), Problem> {
    let cpus = |field: &str, value: Option<f64>| match value {
        Some(n) if !(0.01..=doppel_domain::MOST_CPUS).contains(&n) => Err(wrong(format!(
            "resources.{field}: {n} CPUs; 0.01 to {} are possible",
            doppel_domain::MOST_CPUS
        ))),
        _ => Ok(()),
    };
    cpus("cpus", r.cpus)?;
    cpus("cpu_reservation", r.cpu_reservation)?;
    let memory = |field: &str, value: Option<u64>| match value {
        Some(n) if n < LEAST_MEMORY => {
            Err(wrong(format!("resources.{field}: {n} bytes; at least {LEAST_MEMORY} are needed")))
        }
        _ => Ok(()),
    };
    memory("memory_bytes", r.memory_bytes.filter(|&n| n != UNBOUNDED))?;
    memory("memory_target_bytes", r.memory_target_bytes)?;
    let weight = |field: &str, value: Option<u32>| match value {
        Some(n) if !(1..=10_000).contains(&n) => {
            Err(wrong(format!("resources.{field}: {n}; 1 to 10,000 are possible")))
        }
        _ => Ok(()),
    };
    weight("cpu_weight", r.cpu_weight)?;
    weight("io_weight", r.io_weight)?;
    if r.pids == Some(1) {
        return Err(wrong("resources.pids: at least 2, or 0 for no bound"));
    }
    if let (Some(most), Some(reserved)) = (r.cpus, r.cpu_reservation)
        && reserved > most
    {
        return Err(wrong("resources.cpu_reservation: more than `cpus` allows"));
    }
    if let (Some(most), Some(reserved)) = (r.memory_bytes, r.memory_reservation_bytes)
        && most != UNBOUNDED
        && reserved > most
    {
        return Err(wrong("resources.memory_reservation_bytes: more than `memory_bytes` allows"));
    }
    Ok(())
}

/// As the keeper wants them.
pub(crate) fn limits(r: &api::Resources) -> Limits {
    Limits {
        cpus: r.cpus,
        cpu_weight: r.cpu_weight,
        cpu_reservation: r.cpu_reservation,
        memory: r.memory_bytes,
        memory_reservation: r.memory_reservation_bytes,
        memory_target: r.memory_target_bytes,
        pids: r.pids,
        io_weight: r.io_weight,
        io_limits: r.io_devices.iter().map(io_limit).collect(),
    }
}

fn io_limit(d: &api::IoDevice) -> doppel_domain::IoLimit {
    doppel_domain::IoLimit {
        device: d.device.clone(),
        read_bytes: d.read_bps,
        write_bytes: d.write_bps,
        read_operations: d.read_iops,
        write_operations: d.write_iops,
    }
}

/// As the keeper wants it.
pub(crate) fn log(log: &api::LogTarget) -> Log {
    Log { max_bytes: log.max_bytes, max_files: log.max_files }
}

/// `new` over `old`: what is missing stays.
pub(crate) fn merge(old: &api::Resources, new: &api::Resources) -> api::Resources {
    api::Resources {
        cpus: new.cpus.or(old.cpus),
        cpu_weight: new.cpu_weight.or(old.cpu_weight),
        cpu_reservation: new.cpu_reservation.or(old.cpu_reservation),
        memory_bytes: new.memory_bytes.or(old.memory_bytes),
        memory_reservation_bytes: new.memory_reservation_bytes.or(old.memory_reservation_bytes),
        memory_target_bytes: new.memory_target_bytes.or(old.memory_target_bytes),
        pids: new.pids.or(old.pids),
        io_weight: new.io_weight.or(old.io_weight),
        io_devices: merge_devices(&old.io_devices, &new.io_devices),
        disk_bytes: new.disk_bytes.or(old.disk_bytes),
        disk_inodes: new.disk_inodes.or(old.disk_inodes),
    }
}

fn merge_devices(old: &[api::IoDevice], new: &[api::IoDevice]) -> Vec<api::IoDevice> {
    let mut all = old.to_vec();
    for more in new {
        match all.iter_mut().find(|d| d.device == more.device) {
            Some(device) => {
                device.read_bps = more.read_bps.or(device.read_bps);
                device.write_bps = more.write_bps.or(device.write_bps);
                device.read_iops = more.read_iops.or(device.read_iops);
                device.write_iops = more.write_iops.or(device.write_iops);
            }
            None => all.push(more.clone()),
        }
    }
    all
}

const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];
/// SIGKILL.
pub(crate) const KILL: i32 = 9;
/// Number of the first and the last real-time signal, as programs see them.
const REALTIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The number of a signal given by name or number.
pub(crate) fn signal(text: &str) -> Result<i32, Problem> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Ok(n) = text.parse::<i32>()
        && (1..=64).contains(&n)
    {
        return Ok(n);
    }
    if let Some(n) =
        name.strip_prefix("RTMIN+").and_then(|n| n.parse::<i32>().ok()).map(|n| n.saturating_add(34))
        && REALTIME.contains(&n)
    {
        return Ok(n);
    }
    SIGNALS.iter().find(|(n, _)| *n == name).map(|(_, n)| *n).ok_or_else(|| {
        wrong(format!("{text:?} is no signal; give a name as SIGTERM or a number from 1 to 64"))
    })
}

/// A program's environment: defaults, then what was asked for.
pub(crate) fn environment(given: &BTreeMap<String, String>, tty: bool, home: &str) -> Vec<String> {
    let mut all = BTreeMap::from([("PATH", PATH), ("HOME", home)]);
    if tty {
        all.insert("TERM", "xterm");
    }
    all.extend(given.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    all.into_iter().map(|(k, v)| format!("{k}={v}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals() {
        for (text, n) in [("SIGTERM", 15), ("term", 15), ("9", 9), ("KILL", 9), ("RTMIN+3", 37), ("64", 64)] {
            assert_eq!(signal(text).unwrap(), n);
        }
        for text in ["", "0", "65", "-1", "SIGFOO", "RTMIN+31", "RTMIN+-9"] {
            assert_eq!(signal(text).unwrap_err().code, Code::InvalidRequest, "{text}");
        }
    }

    #[test]
    fn requests() {
        let good = api::CreateDomain { image: "x".into(), ..Default::default() };
        check(&good).unwrap();
        let bad = |change: fn(&mut api::CreateDomain)| {
            let mut wanted = good.clone();
            change(&mut wanted);
            check(&wanted).unwrap_err().detail
        };
        assert!(bad(|w| w.image = String::new()).contains("image"));
        assert!(bad(|w| w.name = Some("a/b".into())).contains("a/b"));
        assert!(bad(|w| w.command = vec!["a\0".into()]).contains("NUL"));
        assert!(bad(|w| drop(w.env.insert("A=".into(), String::new()))).contains("env"));
        assert!(bad(|w| w.working_dir = Some("x".into())).contains("working_dir"));
        assert!(bad(|w| w.hostname = Some("a b".into())).contains("hostname"));
        assert!(bad(|w| w.resources.cpus = Some(f64::NAN)).contains("cpus"));
        assert!(bad(|w| w.resources.cpus = Some(-1.0)).contains("cpus"));
        assert!(bad(|w| w.resources.memory_bytes = Some(1)).contains("memory_bytes"));
        assert!(bad(|w| w.resources.pids = Some(1)).contains("pids"));
        assert!(bad(|w| w.resources.cpu_weight = Some(0)).contains("cpu_weight"));
        assert!(bad(|w| w.log.max_files = 0).contains("log"));
        assert!(bad(|w| w.resources.disk_bytes = Some(1 << 20)).contains("paene"));
        let paene = |change: fn(&mut api::CreateDomain)| {
            let mut wanted = api::CreateDomain { kind: api::Kind::Paene, ..good.clone() };
            check(&wanted).unwrap();
            change(&mut wanted);
            check(&wanted).unwrap_err().code
        };
        assert_eq!(paene(|w| w.freeze_as = Some("x".into())), Code::Unsupported);
        assert_eq!(paene(|w| w.resources.memory_target_bytes = Some(64 << 20)), Code::Unsupported);
    }

    #[test]
    fn limits_of_devices_are_merged() {
        let of = |device: &str, read_bps, write_bps| api::IoDevice {
            device: device.into(),
            read_bps,
            write_bps,
            ..Default::default()
        };
        let old = [of("8:0", Some(1), Some(2)), of("8:1", Some(3), None)];
        let merged = merge_devices(&old, &[of("8:0", None, Some(0)), of("/dev/x", Some(4), None)]);
        assert_eq!(
            merged,
            [of("8:0", Some(1), Some(0)), of("8:1", Some(3), None), of("/dev/x", Some(4), None)]
        );
    }

    #[test]
    fn environments() {
        let given = BTreeMap::from([("PATH".into(), "/x".into()), ("A".into(), "1".into())]);
        assert_eq!(environment(&given, true, "/h"), ["A=1", "HOME=/h", "PATH=/x", "TERM=xterm"]);
    }
}
