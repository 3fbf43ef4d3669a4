//! Block I/O of a control group: its weight, and limits for each device.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use doppel_spec::IoDevice;

use super::{View, WEIGHT, at};

/// What `blkio.weight` is for a group that asks for nothing.
const V1_WEIGHT: u64 = 500;

/// What is asked for of one device: none leaves a figure as it is, 0 takes its limit away.
struct IoLimit<'a>(&'a IoDevice);

impl IoLimit<'_> {
    /// The figures: v2's word for each, v1's file, and the value.
    fn figures(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let all = [
            ("rbps", "blkio.throttle.read_bps_device", self.0.read_bps),
            ("wbps", "blkio.throttle.write_bps_device", self.0.write_bps),
            ("riops", "blkio.throttle.read_iops_device", self.0.read_iops),
            ("wiops", "blkio.throttle.write_iops_device", self.0.write_iops),
        ];
        all.into_iter().filter_map(|(word, file, value)| Some((word, file, value?)))
    }

    /// The device's number, as control groups want it.
    fn number(&self) -> io::Result<String> {
        let (major, minor) =
            doppel_sys::device::number(&self.0.device).map_err(|e| self.wrong(&e.to_string()))?;
        Ok(format!("{major}:{minor}"))
    }

    fn wrong(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, format!("limit of block I/O: {}: {why}", self.0.device))
    }

    /// What is wrong if the host does not take it.
    fn refused(&self, path: &Path, error: io::Error) -> io::Error {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NODEV) => self.wrong("no such disk (parts of disks are none)"),
            _ => at(path, error),
        }
    }
}

fn unsupported(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

impl View {
    /// A file of the group that not every host has.
    fn optional(&self, file: &str) -> Option<PathBuf> {
        self.dirs.iter().map(|(_, dir)| dir.join(file)).find(|path| path.exists())
    }

    pub(super) fn weigh_io(&self, weight: u32) -> io::Result<()> {
        // v1 knows weights from 10 (bfq: 1) to 1,000.
        let bounded = |weight: u64, least: u64| weight.clamp(least, 1000).to_string();
        let weight = u64::from(weight);
        let ways = [
            ("io.weight", format!("default {weight}")),
            ("io.bfq.weight", format!("default {}", bounded(weight, 1))),
            ("blkio.weight", bounded(weight * V1_WEIGHT / u64::from(WEIGHT), 10)),
            ("blkio.bfq.weight", bounded(weight, 1)),
        ];
        // Which of them counts depends on each device's scheduler.
        let mut known = false;
        for (file, value) in &ways {
            if let Some(path) = self.optional(file) {
                fs::write(&path, value).map_err(|e| at(&path, e))?;
                known = true;
            }
        }
        if known {
            return Ok(());
        }
        Err(unsupported("this host has no scheduler that weighs block I/O (io.weight, blkio.weight)"))
    }

    pub(super) fn limit_io(&self, device: &IoDevice) -> io::Result<()> {
        let limit = IoLimit(device);
        let device = limit.number()?;
        if let Some(path) = self.optional("io.max") {
            let mut line = device;
            for (word, _, value) in limit.figures() {
                let value = if value == 0 { "max".to_owned() } else { value.to_string() };
                line.push_str(&format!(" {word}={value}"));
            }
            return fs::write(&path, line).map_err(|e| limit.refused(&path, e));
        }
        for (_, file, value) in limit.figures() {
            let path = self.optional(file).ok_or_else(|| {
                unsupported(
                    "this host cannot limit block I/O (no io.max, no blkio.throttle in its control groups)",
                )
            })?;
            fs::write(&path, format!("{device} {value}")).map_err(|e| limit.refused(&path, e))?;
        }
        Ok(())
    }
}
