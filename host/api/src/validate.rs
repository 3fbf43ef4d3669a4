//! What a request may ask for, checked where it comes in: names, sizes, counts. Pure, and shared with the clients.

use std::collections::BTreeMap;

use doppel_spec::{LEAST_MEMORY, UNBOUNDED};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    CloneFrozen, Code, ConnectNetwork, CreateDisk, CreateDomain, CreateExec, CreateNetwork, CreateVolume,
    DisconnectNetwork, FreezeDomain, ImportImage, KillOptions, Network, Problem, PullImage, PushImage,
    Rename, ResizeDisk, ResizeTerminal, Resources, RollBack, SetDebugEvents, StopOptions, UpdateDomain,
};

/// Longest name of a domain or frozen image, as of a host name's label.
pub const MAX_NAME: usize = 63;
/// Most clones one request may make.
pub const MAX_CLONES: u32 = 10_000;
/// Most labels, and the longest key and value of one in bytes.
const MOST_LABELS: usize = 256;
const LONGEST_LABEL: usize = 4096;

/// What is checked before it is used: each field by its schema (see [`crate::schema`]), then what a schema cannot say.
pub trait Validate: ToSchema + Serialize + 'static {
    /// Refuses what means something else elsewhere, and says what it is here: that helps more than a pattern.
    fn meant(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Refuses fields that do not go together, naming one.
    fn across(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Refuses what is wrong, naming the field.
    fn validate(&self) -> Result<(), Problem> {
        self.meant()?;
        crate::schema::check(self)?;
        self.across()
    }
}

fn refuse(field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{field}: {why}"))
}

/// Checks a name of a domain or frozen image: letters, digits, `-`, `_`, `.`; the first a letter or digit.
pub fn name(field: &str, text: &str) -> Result<(), Problem> {
    if text.is_empty() || text.len() > MAX_NAME {
        return Err(refuse(field, format!("a name has 1 to {MAX_NAME} characters, not {}", text.len())));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.chars().all(fits) || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(refuse(
            field,
            format!("{text:?} is no name; letters, digits, '-', '_' and '.', the first a letter or digit"),
        ));
    }
    Ok(())
}

/// Checks a name of a network. Those that mean something else to Docker's users are no names: whoever gives one would have a
/// network of that name, and not what was meant.
pub fn network_name(field: &str, text: &str) -> Result<(), Problem> {
    let instead = match text {
        "host" => {
            "a domain never has the host's own network; -p publishes its ports there, and nat reaches out"
        }
        "bridge" | "default" => "it is called nat here (an address of its own, outbound through the host)",
        "none" | "nat" => "it is a kind of network, not the name of one",
        _ if text.starts_with("container:") || text.starts_with("ns:") => {
            "domains do not share a network stack; on a network of one name they find each other by their names"
        }
        _ => return name(field, text),
    };
    Err(refuse(field, format!("{text:?}: {instead}")))
}

/// Checks the name of a network that may be the one of domains that name none.
pub fn network_or_default(field: &str, text: &str) -> Result<(), Problem> {
    if text.eq_ignore_ascii_case(doppel_spec::DEFAULT_NETWORK) { Ok(()) } else { network_name(field, text) }
}

/// Checks the names of a domain's networks, and that they go together.
fn networks_of(network: &Network) -> Result<(), Problem> {
    if let Some(name) = &network.name {
        network_name("network.name", name)?;
    }
    for (i, one) in network.networks.iter().flatten().enumerate() {
        network_or_default(&format!("network.networks[{i}].name"), &one.name)?;
        for alias in &one.aliases {
            name(&format!("network.networks[{i}].aliases"), alias)?;
        }
    }
    network.check_networks().map_err(|(field, why)| refuse(&format!("network.{field}"), why))
}

/// Checks a path inside a domain.
pub fn path(field: &str, text: &str) -> Result<(), Problem> {
    if !text.starts_with('/') {
        return Err(refuse(field, format!("{text:?} is no absolute path")));
    }
    if text.len() >= 4096 {
        return Err(refuse(field, "longer than 4095 bytes"));
    }
    if text.contains('\0') {
        return Err(refuse(field, "has a NUL byte"));
    }
    Ok(())
}

fn env(field: &str, variables: &BTreeMap<String, String>) -> Result<(), Problem> {
    match variables.keys().find(|k| k.contains('=')) {
        Some(key) => Err(refuse(field, format!("the name {key:?} has an '='"))),
        None => Ok(()),
    }
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    let long = |text: &String| text.len() > LONGEST_LABEL;
    if labels.len() > MOST_LABELS || labels.iter().any(|(k, v)| long(k) || long(v)) {
        return Err(refuse(
            "labels",
            format!(
                "at most {MOST_LABELS}, keys of 1 to {LONGEST_LABEL} bytes, values of at most {LONGEST_LABEL}"
            ),
        ));
    }
    Ok(())
}

fn signal(field: &str, text: Option<&String>) -> Result<(), Problem> {
    match text.and_then(|text| text.parse::<i64>().ok()) {
        Some(n) if !(1..=64).contains(&n) => Err(refuse(field, format!("{n} is not between 1 and 64"))),
        _ => Ok(()),
    }
}

/// Brings limits down to what the host has, so that a domain is told the truth about CPUs and memory; says what it changed.
pub fn within_host(limits: &mut Resources, host_cpus: f64, host_memory: u64) -> Vec<String> {
    let asked = limits.clone();
    limits.cpus = limits.cpus.map(|cpus| cpus.min(host_cpus));
    limits.memory_bytes = limits.memory_bytes.map(|memory| memory.min(host_memory));
    brought_down(&asked, limits)
}

/// What a domain was given less of than was asked for, in words.
pub fn brought_down(asked: &Resources, got: &Resources) -> Vec<String> {
    let mut said = Vec::new();
    if let (Some(asked), Some(got)) = (asked.cpus, got.cpus)
        && got < asked
    {
        said.push(format!("{asked} CPUs were asked for, and the host has {got}: it gets those"));
    }
    if let (Some(asked), Some(got)) = (asked.memory_bytes, got.memory_bytes)
        && got < asked
    {
        said.push(format!(
            "{asked} bytes of memory were asked for, and the host has {got}: they are its limit"
        ));
    }
    said
}

impl Validate for Resources {
    fn across(&self) -> Result<(), Problem> {
        let bounded = self.memory_bytes.filter(|&n| n != UNBOUNDED);
        if let Some(n) = bounded.filter(|&n| n < LEAST_MEMORY) {
            let why = format!("{n} bytes; at least {LEAST_MEMORY} are needed, and 0 is no bound");
            return Err(refuse("resources.memory_bytes", why));
        }
        if self.pids == Some(1) {
            return Err(refuse("resources.pids", "at least 2, or 0 for no bound"));
        }
        if let (Some(most), Some(reserved)) = (self.cpus, self.cpu_reservation)
            && reserved > most
        {
            return Err(refuse("resources.cpu_reservation", "more than `cpus` allows"));
        }
        if let (Some(most), Some(reserved)) = (bounded, self.memory_reservation_bytes)
            && reserved > most
        {
            return Err(refuse("resources.memory_reservation_bytes", "more than `memory_bytes` allows"));
        }
        match (bounded, self.memory_swap_bytes.filter(|&n| n > 0)) {
            (None, Some(_)) => {
                return Err(refuse(
                    "resources.memory_swap_bytes",
                    "is memory and swap together, so it needs `memory_bytes`",
                ));
            }
            (Some(memory), Some(both)) if both < memory => {
                let why =
                    format!("memory and swap together, {both} bytes, are less than `memory_bytes`, {memory}");
                return Err(refuse("resources.memory_swap_bytes", why));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Validate for CreateDomain {
    fn meant(&self) -> Result<(), Problem> {
        networks_of(&self.network)
    }

    fn across(&self) -> Result<(), Problem> {
        env("env", &self.env)?;
        labels(&self.labels)?;
        signal("stop_signal", self.stop_signal.as_ref())?;
        for entry in &self.extra_hosts {
            doppel_spec::host_line(entry).map_err(|why| refuse("extra_hosts", why))?;
        }
        self.files.check().map_err(|(i, why)| refuse(&format!("files.mounts[{i}]"), why))?;
        self.files.check_kept().map_err(|why| refuse("files.layer", why))?;
        self.files.check_disks().map_err(|(i, why)| refuse(&format!("files.disks[{i}]"), why))?;
        if self.auto_remove && self.files.persist == Some(true) && self.files.layer.is_none() {
            let why = "a domain that removes itself when it ends keeps nothing; name a layer, or do without auto_remove (--rm)";
            return Err(refuse("files.persist", why));
        }
        self.resources.across()
    }
}

impl Validate for UpdateDomain {
    fn across(&self) -> Result<(), Problem> {
        self.labels.as_ref().map_or(Ok(()), labels)?;
        self.resources.across()
    }
}

impl Validate for StopOptions {
    fn across(&self) -> Result<(), Problem> {
        signal("signal", self.signal.as_ref())
    }
}

impl Validate for KillOptions {
    fn across(&self) -> Result<(), Problem> {
        signal("signal", self.signal.as_ref())
    }
}

impl Validate for CreateExec {
    fn across(&self) -> Result<(), Problem> {
        env("env", &self.env)
    }
}

impl Validate for CloneFrozen {
    fn meant(&self) -> Result<(), Problem> {
        networks_of(&self.network)
    }

    fn across(&self) -> Result<(), Problem> {
        env("env", &self.env)?;
        labels(&self.labels)?;
        self.resources.across()
    }
}

impl Validate for CreateVolume {
    fn meant(&self) -> Result<(), Problem> {
        let name = self.name.as_ref().map_or(Ok(()), |name| doppel_spec::check_volume_name(name));
        name.map_err(|why| refuse("name", why))?;
        let source = self.source.as_ref().map_or(Ok(()), |name| doppel_spec::check_volume_name(name));
        source.map_err(|why| refuse("source", why))
    }

    fn across(&self) -> Result<(), Problem> {
        let limited = self.size_bytes.is_some() || self.inodes.is_some();
        match (&self.source, &self.name) {
            (None, _) if self.snapshot => Err(refuse("snapshot", "a snapshot is of a `source`")),
            (Some(_), None) => Err(refuse("name", "a copy of a volume has a name")),
            (Some(_), _) if limited => Err(refuse("source", "a copy has the limits of its source")),
            _ => labels(&self.labels),
        }
    }
}

impl Validate for CreateDisk {
    fn meant(&self) -> Result<(), Problem> {
        doppel_spec::check_disk_name(&self.name).map_err(|why| refuse("name", why))?;
        let source = self.source.as_ref().map_or(Ok(()), |name| doppel_spec::check_disk_name(name));
        source.map_err(|why| refuse("source", why))
    }

    fn across(&self) -> Result<(), Problem> {
        match (self.size_bytes, &self.source) {
            (Some(_), None) if self.snapshot => Err(refuse("snapshot", "a snapshot is of a `source`")),
            (Some(_), None) | (None, Some(_)) => Ok(()),
            _ => Err(refuse("size_bytes", "either `size_bytes` or `source`")),
        }
    }
}

impl Validate for CreateNetwork {
    fn meant(&self) -> Result<(), Problem> {
        network_name("name", &self.name)
    }

    fn across(&self) -> Result<(), Problem> {
        labels(&self.labels)
    }
}

impl Validate for ConnectNetwork {
    fn across(&self) -> Result<(), Problem> {
        self.aliases.iter().try_for_each(|alias| name("aliases", alias))
    }
}

impl Validate for DisconnectNetwork {}
impl Validate for ResizeDisk {}
impl Validate for Rename {}
impl Validate for ResizeTerminal {}
impl Validate for SetDebugEvents {}
impl Validate for FreezeDomain {}
impl Validate for RollBack {}
impl Validate for PullImage {}
impl Validate for PushImage {}
impl Validate for ImportImage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "web-1", "A.b_c", "0", &"x".repeat(MAX_NAME)] {
            assert!(name("name", good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".", "..", "a/b", "a b", "ä", "a\0", &"x".repeat(MAX_NAME + 1)] {
            assert!(name("name", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_more_than_the_host_has() {
        let mut limits =
            Resources { cpus: Some(64.0), memory_bytes: Some(100 << 40), ..Resources::default() };
        assert_eq!(within_host(&mut limits, 2.0, 1 << 30).len(), 2);
        assert_eq!((limits.cpus, limits.memory_bytes), (Some(2.0), Some(1 << 30)));
        assert!(within_host(&mut limits, 2.0, 1 << 30).is_empty());
        assert!(within_host(&mut Resources::default(), 2.0, 1 << 30).is_empty());
    }

    #[test]
    fn fields_are_named() {
        let of = |json: &str| serde_json::from_str::<CreateDomain>(json).expect("parses").validate();
        assert!(of(r#"{"image":"busybox"}"#).is_ok());
        assert!(of(r#"{"image":"busybox","resources":{"memory_bytes":0,"pids":0}}"#).is_ok());
        for (json, field) in [
            ("{}", "image"),
            (r#"{"image":"b","name":"a/b"}"#, "name"),
            (r#"{"image":"b","env":{"A=B":"c"}}"#, "env"),
            (r#"{"image":"b","env":{"":"c"}}"#, "env"),
            (r#"{"image":"b","command":["a\u0000"]}"#, "command[0]"),
            (r#"{"image":"b","working_dir":"tmp"}"#, "working_dir"),
            (r#"{"image":"b","resources":{"cpus":-1}}"#, "resources.cpus"),
            (r#"{"image":"b","resources":{"memory_bytes":1}}"#, "resources.memory_bytes"),
            (r#"{"image":"b","resources":{"memory_target_bytes":0}}"#, "resources.memory_target_bytes"),
            (
                r#"{"image":"b","resources":{"io_devices":[{"device":"sda"}]}}"#,
                "resources.io_devices[0].device",
            ),
            (
                r#"{"image":"b","resources":{"io_devices":[{"device":"8:0","read_iops":4294967296}]}}"#,
                "resources.io_devices[0].read_iops",
            ),
            (r#"{"image":"b","stop_signal":"65"}"#, "stop_signal"),
            (
                r#"{"image":"b","network":{"name":"container:x"}}"#,
                "network.name: \"container:x\": domains do not share",
            ),
            (r#"{"image":"b","health":{"command":["x"],"interval_seconds":0}}"#, "health.interval_seconds"),
        ] {
            let problem = of(json).expect_err(json);
            assert_eq!(problem.status, 400);
            assert!(problem.detail.starts_with(field), "{json}: {}", problem.detail);
        }
    }
}
