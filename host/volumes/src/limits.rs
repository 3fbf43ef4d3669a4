//! What files of volumes may take, and what a domain may do with its own in a second.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use doppel_spec::Resources;
use doppel_storage::{Amount, Bound, Limits, Rate};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::error::{Error, IoContext, Result};
use crate::leases::try_lock;
use crate::store::VolumeStore;

impl VolumeStore {
    /// The bound of the volume that this source is, if it is one of this store and has limits. What is used is counted, if nobody has
    /// it: that looks at each of its files.
    ///
    /// # Errors
    /// What the host says.
    pub fn bound(&self, source: &Path) -> Result<Option<Bound>> {
        let Some((name, true)) = self.named(source) else { return Ok(None) };
        let limits = self.get(&name)?.limits;
        if !limits.is_any() {
            return Ok(None);
        }
        let path = self.used_of(&name);
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let used = open.doing("open", &path)?;
        // Who follows waits until it is counted.
        flock(&used, FlockOperation::LockExclusive).doing("lock", &path)?;
        let lock = File::open(self.lock_of(&name)).doing("open", &self.lock_of(&name))?;
        let alone = try_lock(&lock, true).doing("lock", &self.lock_of(&name))?;
        let used = OwnedFd::from(used);
        if alone || rustix::fs::fstat(&used).doing("look at", &path)?.st_size == 0 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(source, flags, Mode::empty()).doing("open", source)?;
            doppel_storage::count(&dir, &used).doing("count what is used of", source)?;
        }
        flock(&used, FlockOperation::Unlock).doing("unlock", &path)?;
        let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        let most = Amount { bytes: most(limits.bytes), inodes: most(limits.inodes) };
        Ok(Some(Bound { most, used: Some(used) }))
    }

    /// Refuses volumes with limits to a domain whose files no storage service counts.
    ///
    /// # Errors
    /// One of them has limits, or what the host says.
    pub fn check_uncounted<'a>(&self, sources: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        for source in sources {
            if let Some((name, _)) = self.named(source)
                && self.get(&name)?.limits.is_any()
            {
                return Err(Error::Wrong(format!(
                    "volume {name:?} has limits, which only para domains keep: a paene domain cannot have it"
                )));
            }
        }
        Ok(())
    }
}

/// What a domain with these resources may do with its volumes and its layer in a second, and its weight.
///
/// # Errors
/// A device is not there, or is none.
pub fn rates(resources: &Resources) -> io::Result<Limits> {
    let rate = |device: &doppel_spec::IoDevice| {
        let (major, minor) = doppel_sys::device::number(&device.device)?;
        Ok(Rate {
            device: rustix::fs::makedev(major, minor),
            read_bytes: device.read_bps,
            written_bytes: device.write_bps,
            reads: device.read_iops,
            writes: device.write_iops,
        })
    };
    let rates = resources.io_devices.iter().map(rate).collect::<io::Result<_>>()?;
    Ok(Limits { weight: resources.io_weight.unwrap_or(Limits::default().weight), rates })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use doppel_abi_service::storage::Used;
    use doppel_spec::IoDevice;
    use doppel_sys::shared::SharedMap;
    use std::os::fd::AsFd;

    use super::*;
    use crate::store::VolumeLimits;

    fn used(bound: &Bound) -> Amount {
        let used = bound.used.as_ref().unwrap();
        SharedMap::new(used.as_fd(), 4096).unwrap().get::<Used>(0).now()
    }

    #[test]
    fn what_is_used_is_counted_when_nobody_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        let limits = VolumeLimits { bytes: Some(1 << 20), inodes: Some(9) };
        let volume = store.create_within(Some("data"), BTreeMap::new(), limits).unwrap();
        assert_eq!(store.get("data").unwrap().limits, limits);
        let plain = store.create(Some("plain"), BTreeMap::new()).unwrap();
        assert!(store.bound(&plain.path).unwrap().is_none() && store.bound(dir.path()).unwrap().is_none());
        fs::create_dir(volume.path.join("d")).unwrap();
        fs::write(volume.path.join("d/file"), vec![1; 10_000]).unwrap();
        fs::hard_link(volume.path.join("d/file"), volume.path.join("again")).unwrap();
        let bound = store.bound(&volume.path).unwrap().unwrap();
        assert_eq!(bound.most, Amount { bytes: 1 << 20, inodes: 9 });
        let first = used(&bound);
        assert_eq!(first.inodes, 3);
        assert!((12_288..40_000).contains(&first.bytes), "{first:?}");
        // Whoever has it counts by itself.
        let lease = store.hold(std::slice::from_ref(&volume.path), None).unwrap();
        fs::write(volume.path.join("more"), "x").unwrap();
        assert_eq!(used(&store.bound(&volume.path).unwrap().unwrap()), first);
        drop(lease);
        assert_eq!(used(&store.bound(&volume.path).unwrap().unwrap()).inodes, 4);
        let said = store.check_uncounted([plain.path.as_path(), &volume.path]).unwrap_err().to_string();
        assert!(said.contains("\"data\""), "{said}");
        store.check_uncounted([plain.path.as_path()]).unwrap();
    }

    #[test]
    fn limits_of_a_volume_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        let limits = |bytes| VolumeLimits { bytes: Some(bytes), inodes: None };
        let create = |limits| store.create_within(Some("data"), BTreeMap::new(), limits);
        create(limits(1 << 20)).unwrap();
        create(limits(1 << 20)).unwrap();
        assert_eq!(create(VolumeLimits::default()).unwrap().limits, limits(1 << 20));
        assert!(matches!(create(limits(2 << 20)), Err(Error::Wrong(_))));
    }

    #[test]
    fn rates_are_of_devices() {
        let device = IoDevice { device: "8:16".into(), read_bps: Some(5), ..IoDevice::default() };
        let asked = Resources { io_devices: vec![device], ..Resources::default() };
        let limits = rates(&asked).unwrap();
        let rate = Rate { device: rustix::fs::makedev(8, 16), read_bytes: Some(5), ..Rate::default() };
        assert_eq!(limits, Limits { weight: 100, rates: vec![rate] });
        let none = IoDevice { device: "/dev/null".into(), ..IoDevice::default() };
        assert!(rates(&Resources { io_devices: vec![none], ..asked }).is_err());
    }
}
