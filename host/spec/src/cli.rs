//! [`Resources`] on a command line, and Docker's other ways to ask for them.

use crate::{IoDevice, Resources, values};
use clap::Args;

/// What a domain may use: every option of [`Resources`], and Docker's.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ResourceArgs {
    #[command(flatten)]
    ours: Resources,
    #[command(flatten)]
    docker: Docker,
}

impl ResourceArgs {
    /// What is given; bounds are checked where it is used.
    #[must_use]
    pub fn given(&self) -> Resources {
        let mut given = self.ours.clone();
        // Docker's 1024 is our 100.
        let weight = |shares: u32| u32::try_from((u64::from(shares) * 100 / 1024).clamp(1, 10_000)).ok();
        given.cpu_weight = given.cpu_weight.or_else(|| self.docker.cpu_shares.and_then(weight));
        // Its 500 is our 100.
        given.io_weight = given.io_weight.or(self.docker.blkio_weight.map(|weight| weight / 5));
        given.io_devices = self.docker.devices();
        given
    }
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
struct Docker {
    /// Share of the CPU in Docker's measure, where 1024 is the default
    #[arg(short, long, value_name = "N", conflicts_with = "cpu_weight")]
    cpu_shares: Option<u32>,
    /// Share of block I/O in Docker's measure, 10 to 1000, where 500 is the default
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(10..=1000),
        conflicts_with = "io_weight"
    )]
    blkio_weight: Option<u32>,
    /// Most bytes read from a block device in a second, as /dev/sda:10m; 0: no limit
    #[arg(long, value_name = "DEVICE:RATE", value_parser = bytes)]
    device_read_bps: Vec<(String, u64)>,
    /// Most bytes written to it
    #[arg(long, value_name = "DEVICE:RATE", value_parser = bytes)]
    device_write_bps: Vec<(String, u64)>,
    /// Most read operations
    #[arg(long, value_name = "DEVICE:RATE", value_parser = operations)]
    device_read_iops: Vec<(String, u64)>,
    /// Most write operations
    #[arg(long, value_name = "DEVICE:RATE", value_parser = operations)]
    device_write_iops: Vec<(String, u64)>,
}

fn split(text: &str) -> Result<(&str, &str), String> {
    let parts = text.rsplit_once(':').filter(|(device, _)| !device.is_empty());
    parts.ok_or_else(|| "a device and a rate, as /dev/sda:10m or 8:0:10m".to_owned())
}

fn bytes(text: &str) -> Result<(String, u64), String> {
    let (device, rate) = split(text)?;
    Ok((device.to_owned(), values::size(rate)?))
}

fn operations(text: &str) -> Result<(String, u64), String> {
    let (device, rate) = split(text)?;
    Ok((device.to_owned(), rate.parse().map_err(|_| format!("{rate:?} is no number"))?))
}

impl Docker {
    /// Limits of block I/O: one entry a device.
    fn devices(&self) -> Vec<IoDevice> {
        type Field = fn(&mut IoDevice) -> &mut Option<u64>;
        let given: [(&[(String, u64)], Field); 4] = [
            (&self.device_read_bps, |d| &mut d.read_bps),
            (&self.device_write_bps, |d| &mut d.write_bps),
            (&self.device_read_iops, |d| &mut d.read_iops),
            (&self.device_write_iops, |d| &mut d.write_iops),
        ];
        let mut all: Vec<IoDevice> = Vec::new();
        for (list, field) in given {
            for (name, rate) in list {
                let at = all.iter().position(|d| d.device == *name).unwrap_or_else(|| {
                    all.push(IoDevice { device: name.clone(), ..IoDevice::default() });
                    all.len() - 1
                });
                *field(&mut all[at]) = Some(*rate);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        assert_eq!(bytes("/dev/vda:1m"), Ok(("/dev/vda".into(), 1 << 20)));
        assert_eq!(operations("8:0:50"), Ok(("8:0".into(), 50)));
        for bad in ["/dev/vda", ":1m", "/dev/vda:", "/dev/vda:fast"] {
            assert!(bytes(bad).is_err() && operations(bad).is_err(), "{bad}");
        }
        let given = Docker {
            device_read_bps: vec![("8:0".into(), 1), ("8:1".into(), 2)],
            device_write_iops: vec![("8:0".into(), 3)],
            ..Docker::default()
        };
        let first =
            IoDevice { device: "8:0".into(), read_bps: Some(1), write_iops: Some(3), ..IoDevice::default() };
        let second = IoDevice { device: "8:1".into(), read_bps: Some(2), ..IoDevice::default() };
        assert_eq!(given.devices(), [first, second]);
    }
}
