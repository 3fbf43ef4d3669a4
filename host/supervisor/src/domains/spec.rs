//! Requests, checked at the edge, and turned into what the keeper starts.

use std::collections::BTreeMap;

use doppel_api::{self as api, Code, Problem, Validate};

use crate::domains::network;

/// Where programs are looked for unless told otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A request that is wrong.
pub(crate) fn wrong(text: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidRequest, text)
}

/// Checks what a new domain's schema leaves open and needs no look at the host.
pub(crate) fn check(wanted: &api::CreateDomain) -> Result<(), Problem> {
    kind(wanted)?;
    if let Some(signal) = &wanted.stop_signal {
        self::signal(signal)?;
    }
    network::endpoint_spec(&wanted.network).map(drop)
}

/// Checks a new domain whose image has said what it says: that was not looked at yet.
pub(crate) fn check_completed(config: &api::CreateDomain) -> Result<(), Problem> {
    config.validate()?;
    config.stop_signal.as_deref().map_or(Ok(()), |text| signal(text).map(drop))
}

/// Refuses what domains of the wanted kind cannot do.
fn kind(wanted: &api::CreateDomain) -> Result<(), Problem> {
    if wanted.kind == api::Kind::Paene && wanted.freeze_as.is_some() {
        let text = "freeze_as: only para domains can be frozen, and this one is to be paene";
        return Err(Problem::new(Code::Unsupported, text));
    }
    if wanted.kind == api::Kind::Para && keeps_files(wanted) {
        return fits(wanted.kind, &api::Resources { disk_bytes: None, ..wanted.resources.clone() });
    }
    fits(wanted.kind, &wanted.resources)
}

/// Whether what a domain changes is kept. It is if nobody says otherwise, as in Docker: unless it goes with the domain, or its bound
/// is one of memory.
pub(crate) fn keeps_files(wanted: &api::CreateDomain) -> bool {
    let api::Resources { disk_bytes, disk_inodes, .. } = wanted.resources;
    let in_memory = wanted.kind == api::Kind::Paene && (disk_bytes.is_some() || disk_inodes.is_some());
    let kept = !(wanted.auto_remove || wanted.files.read_only || in_memory);
    wanted.files.is_kept() || wanted.files.persist.is_none() && kept
}

/// Refuses limits that domains of this kind cannot have.
pub(crate) fn fits(kind: api::Kind, resources: &api::Resources) -> Result<(), Problem> {
    let unsupported = |text: &str| Err(Problem::new(Code::Unsupported, text));
    match kind {
        api::Kind::Para if resources.disk_bytes.is_some() || resources.disk_inodes.is_some() => unsupported(
            "resources.disk_bytes, resources.disk_inodes: for paene domains, and bytes for what a para domain keeps; its other files count as its memory",
        ),
        api::Kind::Paene if resources.memory_target_bytes.is_some() => {
            unsupported("resources.memory_target_bytes: for a guest kernel, which a paene domain has not")
        }
        api::Kind::Paene if resources.memory_swap_bytes.is_some_and(|n| n > 0) => {
            unsupported("resources.memory_swap_bytes: for a guest kernel, which a paene domain has not")
        }
        _ => Ok(()),
    }
}

/// `given` over `below`: what is missing is as there.
pub(crate) fn over(given: &api::Resources, below: &api::Resources) -> Result<api::Resources, Problem> {
    given.over(below).map_err(|e| Problem::new(Code::Internal, e.to_string()))
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
            wanted.validate().and_then(|()| check(&wanted)).unwrap_err().detail
        };
        assert!(bad(|w| w.image = String::new()).contains("image"));
        assert!(bad(|w| w.name = Some("a/b".into())).contains("a/b"));
        assert!(bad(|w| w.command = vec!["a\0".into()]).contains("NUL"));
        assert!(bad(|w| drop(w.env.insert("A=".into(), String::new()))).contains("env"));
        assert!(bad(|w| w.working_dir = Some("x".into())).contains("working_dir"));
        assert!(bad(|w| w.hostname = Some("a b".into())).contains("hostname"));
        assert!(bad(|w| w.resources.cpus = Some(-1.0)).contains("cpus"));
        assert!(bad(|w| w.resources.memory_bytes = Some(1)).contains("memory_bytes"));
        assert!(bad(|w| w.resources.pids = Some(1)).contains("pids"));
        assert!(bad(|w| w.resources.cpu_weight = Some(0)).contains("cpu_weight"));
        assert!(bad(|w| w.log.max_files = 0).contains("log"));
        let in_memory = |w: &mut api::CreateDomain| {
            w.auto_remove = true;
            w.resources.disk_bytes = Some(1 << 20);
        };
        assert!(bad(in_memory).contains("paene"));
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
    fn environments() {
        let given = BTreeMap::from([("PATH".into(), "/x".into()), ("A".into(), "1".into())]);
        assert_eq!(environment(&given, true, "/h"), ["A=1", "HOME=/h", "PATH=/x", "TERM=xterm"]);
    }
}
