//! What a domain's mounts name: made before it starts, found when it does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use doppel_spec::{Files, Mount, MountKind};

use crate::error::{Error, IoContext, Result};
use crate::store::{Volume, VolumeLimits, VolumeStore};

impl VolumeStore {
    /// Makes what the mounts of a new domain name and is not there: volumes, and sources of binds that ask for it. Volumes
    /// without a name get one. An empty volume gets what the image has at its place, unless it is not to.
    ///
    /// # Errors
    /// A bind's source is missing, the image is damaged, or what the host says.
    pub fn prepare(&self, files: &mut Files, image: &Path) -> Result<()> {
        for mount in files.mounts.iter_mut().filter(|mount| mount.is_volume()) {
            match mount.kind {
                MountKind::Bind => self.prepare_bind(mount)?,
                _ => {
                    let volume = match mount.source.as_deref() {
                        Some(name) => self.create(Some(name), BTreeMap::new())?,
                        None => self.create_anonymous(VolumeLimits::default())?,
                    };
                    check_writes(mount, &volume)?;
                    mount.source = Some(volume.name.clone());
                    if !volume.snapshot && !mount.no_copy && is_empty(&volume.path)? {
                        let image = File::open(image).doing("open", image)?;
                        doppel_image::copy_out(&image, &mount.target, &volume.path)
                            .map_err(|source| Error::Image { name: volume.name, source })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Where on this host the binds and volumes of a domain are, in their order.
    ///
    /// # Errors
    /// One is not there any more, or what the host says.
    pub fn sources(&self, files: &Files) -> Result<Vec<PathBuf>> {
        files.volumes().map(|mount| self.source(mount)).collect()
    }

    fn source(&self, mount: &Mount) -> Result<PathBuf> {
        let source = mount.source.as_deref().unwrap_or_default();
        if mount.kind == MountKind::Volume {
            let volume = self.get(source)?;
            check_writes(mount, &volume)?;
            return Ok(volume.path);
        }
        let path = Path::new(source);
        // Links in it are the operator's; what is mounted is where they lead.
        let path = path.canonicalize().map_err(|e| missing(path, e))?;
        self.check_place(&path)?;
        Ok(path)
    }

    fn prepare_bind(&self, mount: &Mount) -> Result<()> {
        let path = Path::new(mount.source.as_deref().unwrap_or_default());
        // Of one that is missing, what is there above it.
        let there = path.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
        self.check_place(&there)?;
        make_source(mount, path)
    }

    fn check_place(&self, path: &Path) -> Result<()> {
        if self.binds.iter().any(|dir| path.starts_with(dir)) {
            return Ok(());
        }
        let places: Vec<_> = self.binds.iter().map(|dir| dir.display().to_string()).collect();
        let where_then = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
        Err(Error::Refused(format!(
            "{} is not mounted: of this host, domains are given {where_then} (`binds` in doppeld.toml)",
            path.display()
        )))
    }
}

/// Refuses a snapshot that is not to be only read.
fn check_writes(mount: &Mount, volume: &Volume) -> Result<()> {
    if volume.snapshot && !mount.is_read_only() {
        let text =
            format!("volume {:?} is a snapshot, which domains only read: mount it with `ro`", volume.name);
        return Err(Error::Wrong(text));
    }
    Ok(())
}

fn make_source(mount: &Mount, path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && mount.create_source => {
            fs::create_dir_all(path).doing("make the source of a bind,", path)
        }
        Err(e) => Err(missing(path, e)),
        Ok(found) if found.is_dir() || found.is_file() => Ok(()),
        Ok(_) => Err(Error::Wrong(format!(
            "{} is neither a directory nor a regular file; sockets, pipes and devices of the host cannot be mounted",
            path.display()
        ))),
    }
}

fn missing(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Error::Wrong(format!("the source of a bind, {}, does not exist", path.display()))
        }
        _ => Error::Io { what: format!("use the source of a bind, {}", path.display()), source: error },
    }
}

fn is_empty(dir: &Path) -> Result<bool> {
    Ok(fs::read_dir(dir).doing("list", dir)?.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: MountKind, source: Option<&str>) -> Mount {
        let (source, target) = (source.map(str::to_owned), "/x".to_owned());
        Mount { kind, source, target, no_copy: kind == MountKind::Volume, ..Mount::default() }
    }

    fn files(mount: Mount) -> Files {
        Files { mounts: vec![mount], ..Files::default() }
    }

    #[test]
    fn volumes_are_made_at_first_use() {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        let mut named = files(mount(MountKind::Volume, Some("data")));
        assert!(matches!(store.sources(&named), Err(Error::NotFound(_))));
        store.prepare(&mut named, Path::new("/none")).unwrap();
        assert_eq!(store.sources(&named).unwrap(), [dir.path().join("volumes/data/_data")]);
        let mut anonymous = files(mount(MountKind::Volume, None));
        store.prepare(&mut anonymous, Path::new("/none")).unwrap();
        let name = anonymous.mounts[0].source.clone().unwrap();
        assert!(store.get(&name).unwrap().anonymous);
    }

    #[test]
    fn binds_lie_where_they_may() {
        let dir = tempfile::tempdir().unwrap();
        let (open, closed) = (dir.path().join("open"), dir.path().join("closed"));
        fs::create_dir(&open).and_then(|()| fs::create_dir(&closed)).unwrap();
        std::os::unix::fs::symlink(&closed, open.join("link")).unwrap();
        let store = VolumeStore::of(dir.path()).with_binds_below(vec![open.canonicalize().unwrap()]);
        let try_at = |path: &Path| {
            let bind = Mount { create_source: true, ..mount(MountKind::Bind, path.to_str()) };
            store.prepare(&mut files(bind), Path::new("/none"))
        };
        try_at(&open.join("new/deep")).unwrap();
        for path in [&closed, &open.join("link"), &open.join("link/new"), &open.join("../closed/new")] {
            assert!(matches!(try_at(path), Err(Error::Refused(_))), "{}", path.display());
        }
        assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
        let late = files(mount(MountKind::Bind, open.join("link").to_str()));
        assert!(matches!(store.sources(&late), Err(Error::Refused(_))));
    }

    #[test]
    fn sources_of_binds_are_there_or_made() {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        let path = dir.path().join("a/b");
        let bind = mount(MountKind::Bind, path.to_str());
        let said = store.prepare(&mut files(bind.clone()), Path::new("/none")).unwrap_err().to_string();
        assert!(said.contains("does not exist"), "{said}");
        let made = Mount { create_source: true, ..bind };
        store.prepare(&mut files(made.clone()), Path::new("/none")).unwrap();
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        let found = store.sources(&files(mount(MountKind::Bind, link.to_str()))).unwrap();
        assert_eq!(found, [path.canonicalize().unwrap()]);
        let said = store.prepare(&mut files(mount(MountKind::Bind, Some("/dev/null"))), Path::new("/none"));
        assert!(said.unwrap_err().to_string().contains("neither"));
    }
}
