//! What a request may ask for, checked where it comes in: names, sizes, counts. Pure, and shared with the clients.

use std::collections::BTreeMap;

use crate::{
    CloneFrozen, Code, CreateDomain, CreateExec, FreezeDomain, HealthCheck, ImportImage, IoDevice,
    KillOptions, Problem, PullImage, PushImage, Rename, ResizeTerminal, Resources, StopOptions, UpdateDomain,
};

/// Longest name of a domain or frozen image, as of a host name's label.
pub const MAX_NAME: usize = 63;
/// Most clones one request may make.
pub const MAX_CLONES: u32 = 10_000;
/// Longest string of a request: a command's argument, a variable, a path.
const MAX_STRING: usize = 128 << 10;
/// Most strings of a list.
const MAX_STRINGS: usize = 4096;
/// Most CPUs anybody may ask for.
const MAX_CPUS: f64 = 4096.0;
/// Least memory that a domain can have.
const LEAST_MEMORY: u64 = 8 << 20;
/// A memory limit that is none.
const UNBOUNDED: u64 = 0;
/// Most block devices with limits.
const MAX_DEVICES: usize = 64;
/// A year: longest of all times.
const MAX_SECONDS: f64 = 365.0 * 86400.0;

/// A value that can be looked at before it is used.
pub trait Validate {
    /// Refuses what is out of range, naming the field.
    fn validate(&self) -> Result<(), Problem> {
        Ok(())
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

fn string(field: &str, text: &str) -> Result<(), Problem> {
    if text.len() > MAX_STRING {
        return Err(refuse(field, format!("longer than {MAX_STRING} bytes")));
    }
    if text.contains('\0') {
        return Err(refuse(field, "has a NUL byte"));
    }
    Ok(())
}

fn strings(field: &str, list: &[String]) -> Result<(), Problem> {
    if list.len() > MAX_STRINGS {
        return Err(refuse(field, format!("more than {MAX_STRINGS} entries")));
    }
    list.iter().try_for_each(|s| string(field, s))
}

fn map(field: &str, map: &BTreeMap<String, String>) -> Result<(), Problem> {
    if map.len() > MAX_STRINGS {
        return Err(refuse(field, format!("more than {MAX_STRINGS} entries")));
    }
    for (key, value) in map {
        if key.is_empty() {
            return Err(refuse(field, "has an empty name"));
        }
        string(field, key)?;
        string(field, value)?;
    }
    Ok(())
}

fn env(field: &str, variables: &BTreeMap<String, String>) -> Result<(), Problem> {
    map(field, variables)?;
    match variables.keys().find(|k| k.contains('=')) {
        Some(key) => Err(refuse(field, format!("the name {key:?} has an '='"))),
        None => Ok(()),
    }
}

fn optional(field: &str, text: Option<&String>) -> Result<(), Problem> {
    text.map_or(Ok(()), |text| string(field, text))
}

fn directory(field: &str, text: Option<&String>) -> Result<(), Problem> {
    optional(field, text)?;
    match text {
        Some(text) if !text.starts_with('/') => Err(refuse(field, format!("{text:?} is no absolute path"))),
        _ => Ok(()),
    }
}

/// Checks a path inside a domain.
pub fn path(field: &str, text: &str) -> Result<(), Problem> {
    directory(field, Some(&text.to_owned()))?;
    if text.len() >= 4096 {
        return Err(refuse(field, "longer than 4095 bytes"));
    }
    Ok(())
}

fn signal(field: &str, text: Option<&String>) -> Result<(), Problem> {
    let Some(text) = text else { return Ok(()) };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-');
    if text.is_empty() || text.len() > 16 || !text.chars().all(fits) {
        return Err(refuse(field, format!("{text:?} is no signal; a name as SIGTERM, or a number")));
    }
    if text.parse::<i64>().is_ok_and(|n| !(1..=64).contains(&n)) {
        return Err(refuse(field, format!("{text} is not between 1 and 64")));
    }
    Ok(())
}

fn seconds(field: &str, value: f64, least: f64) -> Result<(), Problem> {
    if value.is_finite() && (least..=MAX_SECONDS).contains(&value) {
        return Ok(());
    }
    Err(refuse(field, format!("{value} is not between {least} and {MAX_SECONDS} seconds")))
}

fn cpus(field: &str, value: Option<f64>) -> Result<(), Problem> {
    match value {
        Some(v) if !v.is_finite() || v <= 0.0 || v > MAX_CPUS => {
            Err(refuse(field, format!("{v} is not above 0 and at most {MAX_CPUS}")))
        }
        _ => Ok(()),
    }
}

fn between<T: PartialOrd + std::fmt::Display>(
    field: &str,
    value: Option<T>,
    least: T,
    most: T,
) -> Result<(), Problem> {
    match value {
        Some(v) if v < least || v > most => {
            Err(refuse(field, format!("{v} is not between {least} and {most}")))
        }
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
    fn validate(&self) -> Result<(), Problem> {
        // What a host can have: 2^52 bytes are more than x86-64 can address.
        const MOST: u64 = 1 << 52;
        cpus("resources.cpus", self.cpus)?;
        cpus("resources.cpu_reservation", self.cpu_reservation)?;
        between("resources.cpu_weight", self.cpu_weight, 1, 10_000)?;
        between("resources.io_weight", self.io_weight, 1, 10_000)?;
        let bounded = self.memory_bytes.filter(|&n| n != UNBOUNDED);
        between("resources.memory_bytes", bounded, LEAST_MEMORY, MOST)?;
        between("resources.memory_reservation_bytes", self.memory_reservation_bytes, 0, MOST)?;
        between("resources.memory_target_bytes", self.memory_target_bytes, LEAST_MEMORY, MOST)?;
        between("resources.pids", self.pids, 0, 4 << 20)?;
        between("resources.disk_bytes", self.disk_bytes, 64 << 10, MOST)?;
        between("resources.disk_inodes", self.disk_inodes, 1, MOST)?;
        if self.io_devices.len() > MAX_DEVICES {
            return Err(refuse("resources.io_devices", format!("more than {MAX_DEVICES} entries")));
        }
        self.io_devices.iter().try_for_each(Validate::validate)
    }
}

impl Validate for IoDevice {
    fn validate(&self) -> Result<(), Problem> {
        let field = "resources.io_devices";
        // Control groups take so many operations.
        const MOST: u64 = u32::MAX as u64;
        string(field, &self.device)?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let numbers =
            self.device.split_once(':').is_some_and(|(major, minor)| number(major) && number(minor));
        if self.device.len() > 255 || !(numbers || self.device.starts_with('/')) {
            return Err(refuse(
                field,
                format!("{:?} is no device; a file as /dev/sda, or a number as 8:0", self.device),
            ));
        }
        between(field, self.read_iops, 0, MOST)?;
        between(field, self.write_iops, 0, MOST)
    }
}

impl Validate for HealthCheck {
    fn validate(&self) -> Result<(), Problem> {
        strings("health.command", &self.command)?;
        seconds("health.interval_seconds", self.interval_seconds, 0.001)?;
        seconds("health.timeout_seconds", self.timeout_seconds, 0.001)?;
        seconds("health.start_period_seconds", self.start_period_seconds, 0.0)?;
        between("health.retries", Some(self.retries), 1, 1_000_000)
    }
}

impl Validate for CreateDomain {
    fn validate(&self) -> Result<(), Problem> {
        if self.image.is_empty() {
            return Err(refuse("image", "is missing"));
        }
        string("image", &self.image)?;
        if let Some(text) = &self.name {
            name("name", text)?;
        }
        strings("command", &self.command)?;
        strings("entrypoint", self.entrypoint.as_deref().unwrap_or_default())?;
        env("env", &self.env)?;
        directory("working_dir", self.working_dir.as_ref())?;
        optional("user", self.user.as_ref())?;
        match &self.hostname {
            // The kernel's own limit (__NEW_UTS_LEN).
            Some(text) if text.len() > 64 => return Err(refuse("hostname", "longer than 64 bytes")),
            text => optional("hostname", text.as_ref())?,
        }
        map("labels", &self.labels)?;
        self.resources.validate()?;
        if let Some(health) = &self.health {
            health.validate()?;
        }
        signal("stop_signal", self.stop_signal.as_ref())?;
        between("log.max_files", Some(self.log.max_files), 1, 1000)?;
        between("log.max_bytes", Some(self.log.max_bytes), 4096, 1 << 40)?;
        if let Some(text) = &self.freeze_as {
            name("freeze_as", text)?;
        }
        Ok(())
    }
}

impl Validate for UpdateDomain {
    fn validate(&self) -> Result<(), Problem> {
        self.resources.validate()?;
        self.labels.as_ref().map_or(Ok(()), |labels| map("labels", labels))
    }
}

impl Validate for StopOptions {
    fn validate(&self) -> Result<(), Problem> {
        signal("signal", self.signal.as_ref())
    }
}

impl Validate for KillOptions {
    fn validate(&self) -> Result<(), Problem> {
        signal("signal", self.signal.as_ref())
    }
}

impl Validate for Rename {
    fn validate(&self) -> Result<(), Problem> {
        name("name", &self.name)
    }
}

impl Validate for ResizeTerminal {
    fn validate(&self) -> Result<(), Problem> {
        between("rows", Some(self.rows), 1, u16::MAX)?;
        between("columns", Some(self.columns), 1, u16::MAX)
    }
}

impl Validate for CreateExec {
    fn validate(&self) -> Result<(), Problem> {
        if self.command.is_empty() {
            return Err(refuse("command", "is empty"));
        }
        strings("command", &self.command)?;
        env("env", &self.env)?;
        directory("working_dir", self.working_dir.as_ref())?;
        optional("user", self.user.as_ref())?;
        if let Some(terminal) = self.terminal {
            terminal.validate()?;
        }
        self.timeout_seconds.map_or(Ok(()), |value| seconds("timeout_seconds", value, 0.001))
    }
}

impl Validate for FreezeDomain {
    fn validate(&self) -> Result<(), Problem> {
        name("frozen", &self.frozen)
    }
}

impl Validate for CloneFrozen {
    fn validate(&self) -> Result<(), Problem> {
        between("count", self.count, 1, MAX_CLONES)?;
        if let Some(text) = &self.name {
            name("name", text)?;
        }
        strings("args", &self.args)?;
        strings("command", &self.command)?;
        env("env", &self.env)?;
        map("labels", &self.labels)?;
        self.resources.validate()
    }
}

impl Validate for PullImage {
    fn validate(&self) -> Result<(), Problem> {
        if self.reference.is_empty() {
            return Err(refuse("reference", "is missing"));
        }
        string("reference", &self.reference)?;
        optional("name", self.name.as_ref())?;
        optional("platform", self.platform.as_ref())
    }
}

impl Validate for PushImage {
    fn validate(&self) -> Result<(), Problem> {
        if self.name.is_empty() {
            return Err(refuse("name", "is missing"));
        }
        string("name", &self.name)?;
        string("reference", &self.reference)
    }
}

impl Validate for ImportImage {
    fn validate(&self) -> Result<(), Problem> {
        if self.name.is_empty() {
            return Err(refuse("name", "is missing"));
        }
        string("name", &self.name)
    }
}

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
            (r#"{"image":"b","command":["a\u0000"]}"#, "command"),
            (r#"{"image":"b","working_dir":"tmp"}"#, "working_dir"),
            (r#"{"image":"b","resources":{"cpus":-1}}"#, "resources.cpus"),
            (r#"{"image":"b","resources":{"memory_bytes":1}}"#, "resources.memory_bytes"),
            (r#"{"image":"b","resources":{"memory_target_bytes":0}}"#, "resources.memory_target_bytes"),
            (r#"{"image":"b","resources":{"io_devices":[{"device":"sda"}]}}"#, "resources.io_devices"),
            (
                r#"{"image":"b","resources":{"io_devices":[{"device":"8:0","read_iops":4294967296}]}}"#,
                "resources.io_devices",
            ),
            (r#"{"image":"b","stop_signal":"65"}"#, "stop_signal"),
            (r#"{"image":"b","health":{"command":["x"],"interval_seconds":0}}"#, "health.interval_seconds"),
        ] {
            let problem = of(json).expect_err(json);
            assert_eq!(problem.status, 400);
            assert!(problem.detail.starts_with(&format!("{field}: ")), "{json}: {}", problem.detail);
        }
    }
}
