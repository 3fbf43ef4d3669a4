//! Freezing a running domain, and what a new one can go on from.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_machine::{boot_flags, resume_flags};
use doppel_disks::FrozenDisks;
use doppel_freezer::FrozenImage;
use doppel_spec::Files;
use doppel_volumes::FrozenVolumes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{DomainConfig, Error, Kind};

/// What a domain starts from instead of a boot.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The frozen image; locked against removal while the domain lives.
    pub image: Arc<FrozenImage>,
    /// Which clone this is, from 1 on; 0 for a domain that wakes.
    pub index: u32,
    /// Keep the identity it had.
    pub wake: bool,
    /// Stop short of letting its programs run (see [`crate::Pool`]).
    pub hold: bool,
}

impl Resume {
    /// The generation of the new domain.
    pub(crate) fn generation(&self) -> u64 {
        self.image.header().generation + u64::from(!self.wake)
    }

    /// What is left of what was asked for: the rest is as it was frozen.
    pub(crate) fn left_of(&self, asked: &DomainConfig) -> DomainConfig {
        let header = *self.image.header();
        let mut config = asked.clone();
        config.image = self.image.root_image();
        let spec = &mut config.spec;
        let mounts = spec.files.volumes().cloned().collect();
        let disks = std::mem::take(&mut spec.files.disks);
        (spec.kind, spec.files) = (Kind::Para, Files { mounts, disks, ..Files::default() });
        spec.tty = header.boot_flags & boot_flags::TTY != 0;
        spec.no_patch = header.boot_flags & boot_flags::NO_PATCH != 0;
        if header.memory_limit > 0 {
            spec.resources.memory_bytes.get_or_insert(header.memory_limit);
        }
        if self.wake && spec.hostname.as_ref().is_none_or(String::is_empty) {
            spec.hostname = Some(self.image.hostname().to_owned());
        }
        config
    }

    /// Refuses a domain without the volumes and disks that this memory goes with, or with others.
    pub(crate) fn check_volumes(&self, count: usize, disks: usize) -> Result<(), Error> {
        let Some(dir) = self.image.volumes() else {
            return if count + disks == 0 {
                Ok(())
            } else {
                Err(Error::Config("it was frozen without volumes and disks".into()))
            };
        };
        let frozen = FrozenVolumes::open(&dir).map_err(|e| Error::State(e.to_string()))?;
        let kept = FrozenDisks::open(&dir).map_err(|e| Error::State(e.to_string()))?;
        match (frozen.count(), kept.all().len()) {
            then if then == (count, disks) => Ok(()),
            (v, d) => {
                let text =
                    format!("it was frozen with {v} volumes and {d} disks, and is given {count} and {disks}");
                Err(Error::Config(text))
            }
        }
    }

    /// Refuses files that are not those which this memory goes with.
    pub(crate) fn check_layer(&self, dir: Option<&Path>) -> Result<(), Error> {
        if !self.wake {
            let wanted = self.image.layers()?.is_some();
            return match (wanted, dir.is_some()) {
                (true, false) => Err(Error::Unsupported(
                    "the frozen image has files in a layer, for which its clones need layers of their own"
                        .into(),
                )),
                (false, true) => Err(Error::Config("the frozen image has all files in memory".into())),
                _ => Ok(()),
            };
        }
        let there = dir.map(doppel_layers::state).transpose().map_err(|e| Error::State(e.to_string()))?;
        match (self.image.header().layer, there.unwrap_or(0)) {
            (then, now) if then == now => Ok(()),
            (0, _) => Err(Error::Config("it was hibernated without a layer".into())),
            (_, 0) => Err(Error::Config("it was hibernated with a layer, which it is not given".into())),
            _ => Err(Error::State(
                "its files are newer than its memory, which cannot go on with them; start it, and it begins with its files"
                    .into(),
            )),
        }
    }

    /// [`resume_flags`] of a domain that is to hold, or not.
    pub(crate) fn held(hold: bool) -> u32 {
        if hold { resume_flags::HOLD } else { 0 }
    }

    /// [`resume_flags`] of the new domain.
    pub(crate) fn flags(&self) -> u32 {
        let wake = if self.wake { resume_flags::WAKE } else { 0 };
        wake | Self::held(self.hold)
    }
}

/// What a freeze cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FreezeReport {
    /// Bytes of pages kept.
    pub bytes: u64,
    /// Bytes of these that were written; the others are in images that were there before.
    #[serde(default)]
    pub written: u64,
    /// Segments a clone will map.
    pub segments: u64,
    /// Microseconds until every vCPU stood still.
    pub stop_us: u64,
    /// Microseconds the domain stood still.
    pub pause_us: u64,
    /// Microseconds until the image was complete.
    pub total_us: u64,
    /// Processes that left a shadow, so that the domain did not have to wait until their memory was copied.
    pub shadows: usize,
    /// Bytes of shared memory and files that were copied before it stood still, and not written meanwhile.
    #[serde(default)]
    pub ahead_bytes: u64,
    /// Milliseconds from its end on until the domain has something to do by itself (a timer, a program that sleeps); 0: it has now; none:
    /// only what comes from outside wakes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_in_ms: Option<u64>,
}

impl FreezeReport {
    pub(crate) fn new(begun: Instant, stopped: Duration, report: &doppel_freezer::Report) -> Self {
        let us = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        Self {
            bytes: report.bytes,
            written: report.written,
            segments: report.segments,
            stop_us: us(stopped),
            pause_us: us(report.time),
            total_us: us(begun.elapsed()),
            shadows: report.shadows,
            ahead_bytes: report.ahead,
            due_in_ms: None,
        }
    }
}

/// Digest of a root image: images of the store are named by it, others are read.
///
/// # Errors
/// If it cannot be read.
pub fn image_digest(path: &Path) -> Result<[u8; 32], Error> {
    let named = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.strip_prefix("sha256-"));
    if let Some(digest) = named.and_then(parse_hex) {
        return Ok(digest);
    }
    let failed = || Error::host(format!("read root image {}", path.display()));
    let mut file = std::fs::File::open(path).map_err(failed())?;
    let (mut hash, mut buf) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buf).map_err(failed())? {
            0 => return Ok(hash.finalize().into()),
            n => hash.update(&buf[..n]),
        }
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests() {
        let name = "ab".repeat(32);
        assert_eq!(image_digest(Path::new(&format!("/x/sha256-{name}.erofs"))).unwrap(), [0xab; 32]);
        let file = std::env::temp_dir().join(format!("doppel-digest-{}", std::process::id()));
        std::fs::write(&file, b"abc").unwrap();
        let digest = image_digest(&file).unwrap();
        assert_eq!(digest[..4], [0xba, 0x78, 0x16, 0xbf]);
        std::fs::remove_file(&file).unwrap();
    }
}
