//! What a domain may use.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Kind;
#[cfg(feature = "cli")]
use crate::values;

/// Least memory limit: below this not even the guest kernel fits.
pub const LEAST_MEMORY: u64 = 8 << 20;
/// The memory limit of a domain that wants none, nor the one that all have by default.
pub const UNBOUNDED: u64 = 0;
/// The limit on processes and threads of a domain that wants none, as if it said nothing.
pub const NO_PIDS_LIMIT: u32 = 0;
/// Memory and swap of a domain that has as much swap as can be.
pub const MOST_SWAP: u64 = 1 << 52;
/// Most CPUs of one domain.
pub const MOST_CPUS: f64 = 256.0;

/// What a domain may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Resources {
    /// Most CPUs, fractions allowed (a cap).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 256)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = values::cpus, help = "Number of CPUs, fractions allowed"))]
    pub cpus: Option<f64>,
    /// Share of the CPU when it is scarce, 1 to 10,000; 100 if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub cpu_weight: Option<u32>,
    /// CPUs set aside; refused if the sum over all domains is above what the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 256)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = values::cpus, help = "CPUs set aside"))]
    pub cpu_reservation: Option<f64>,
    /// Most memory, in bytes, at least 8 MiB; 0: no bound, not even that of `[domains] memory` in `doppeld.toml`, which
    /// counts if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4503599627370496_u64)]
    #[cfg_attr(
        feature = "cli",
        arg(
            short, long = "memory", value_name = "SIZE", value_parser = values::memory,
            help = "Memory limit, for example 512m; 0 or unlimited: no bound"
        )
    )]
    pub memory_bytes: Option<u64>,
    /// Memory set aside, in bytes; refused if the sum over all domains is above what the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4503599627370496_u64)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "memory-reservation", value_name = "SIZE", value_parser = values::size,
            help = "Memory set aside, for example 256m"
        )
    )]
    pub memory_reservation_bytes: Option<u64>,
    /// What the guest kernel should try to stay under, in bytes (the balloon's target).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8388608, maximum = 4503599627370496_u64)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "memory-target", value_name = "SIZE", value_parser = values::size,
            help = "Memory the guest kernel should try to stay under"
        )
    )]
    pub memory_target_bytes: Option<u64>,
    /// Memory and swap together, in bytes, as Docker counts: the swap region is what this is more than `memory_bytes`, and equal means
    /// none. If missing, a domain with a target has as much swap as memory, and others have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4503599627370496_u64)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "memory-swap", value_name = "SIZE", value_parser = values::swap, allow_negative_numbers = true,
            help = "Memory and swap together; -1: as much swap as can be; the same as --memory: none"
        )
    )]
    pub memory_swap_bytes: Option<u64>,
    /// Most processes and threads, at least 2; 0, or if missing: as many as any domain may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4194304)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "pids-limit", value_name = "N", value_parser = values::tasks, allow_negative_numbers = true,
            help = "Most processes and threads; 0 or -1: no bound"
        )
    )]
    pub pids: Option<u32>,
    /// Share of block I/O, 1 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub io_weight: Option<u32>,
    /// Limits of block I/O, a device each; refused where the host's control groups have none.
    #[schema(max_items = 64)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub io_devices: Vec<IoDevice>,
    /// Most bytes that files may hold beside the image. Of a paene domain they are in memory then, and half of the host's memory if
    /// it is missing; of a para domain those that it keeps are bounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 4503599627370496_u64)]
    #[cfg_attr(
        feature = "cli",
        arg(
            long = "disk", value_name = "SIZE", value_parser = values::size,
            help = "Most that a paene domain, or a para domain that keeps its files, may write beside its image, for example 1g"
        )
    )]
    pub disk_bytes: Option<u64>,
    /// Most files and directories of that, of a paene domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4503599627370496_u64)]
    #[cfg_attr(feature = "cli", arg(long = "inodes", value_name = "N"))]
    pub disk_inodes: Option<u64>,
}

impl Resources {
    /// The first that only a supervisor can give: what is set aside is counted over all domains.
    #[must_use]
    pub fn supervised(&self) -> Option<&'static str> {
        let asked = [
            (self.cpu_reservation.is_some(), "cpu_reservation"),
            (self.memory_reservation_bytes.is_some(), "memory_reservation_bytes"),
        ];
        asked.into_iter().find(|(asked, _)| *asked).map(|(_, field)| field)
    }

    /// These, and of `others` what is missing here; limits of a device are each by itself.
    ///
    /// # Errors
    /// None that is known: both are plain data.
    pub fn over(&self, others: &Self) -> serde_json::Result<Self> {
        let mut merged = serde_json::to_value(others)?;
        if let (Some(all), Value::Object(given)) = (merged.as_object_mut(), serde_json::to_value(self)?) {
            all.extend(given);
        }
        let merged: Self = serde_json::from_value(merged)?;
        Ok(Self { io_devices: devices_over(&self.io_devices, &others.io_devices), ..merged })
    }

    /// Of these, what any domain of this kind can have: only paene domains have a bound on files in memory.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Self {
        match kind {
            Kind::Para => Self { disk_bytes: None, disk_inodes: None, ..self.clone() },
            Kind::Paene => self.clone(),
        }
    }
}

fn devices_over(these: &[IoDevice], others: &[IoDevice]) -> Vec<IoDevice> {
    let mut all = others.to_vec();
    for more in these {
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

/// Most that may be moved to and from a block device in a second; 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IoDevice {
    /// The device: its file, or its number as `8:0`.
    #[schema(max_length = 255, pattern = "^(/.*|[0-9]+:[0-9]+)$")]
    pub device: String,
    /// Bytes read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bps: Option<u64>,
    /// Bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bps: Option<u64>,
    /// Read operations.
    #[schema(maximum = 4294967295_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Write operations.
    #[schema(maximum = 4294967295_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_counts_and_what_is_missing_is_as_below() {
        let below = Resources { cpus: Some(0.1), pids: Some(9), ..Default::default() };
        let given = Resources { pids: Some(0), memory_bytes: Some(u64::MAX), ..Default::default() };
        let both = Resources { cpus: Some(0.1), ..given.clone() };
        assert_eq!(given.over(&below).unwrap(), both);
    }

    #[test]
    fn limits_of_devices_are_each_by_itself() {
        let of = |device: &str, read_bps, write_bps| IoDevice {
            device: device.into(),
            read_bps,
            write_bps,
            ..Default::default()
        };
        let below = [of("8:0", Some(1), Some(2)), of("8:1", Some(3), None)];
        let merged = devices_over(&[of("8:0", None, Some(0)), of("/dev/x", Some(4), None)], &below);
        assert_eq!(
            merged,
            [of("8:0", Some(1), Some(0)), of("8:1", Some(3), None), of("/dev/x", Some(4), None)]
        );
    }
}
