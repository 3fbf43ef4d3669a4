//! Domain ids: unique among live domains, each standing for one host uid.
//!
//! `/run/doppel/domains/<id>` exists and is locked (`flock`) by the process that runs the domain for as
//! long as the domain lives. The lock dies with that process, so a file without a lock is left over from
//! a sudden death and is swept, along with its control group, by a later start.
//!
//! Lock order: `next`, then a domain's file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use doppel_confine::limits::UID_COUNT;
use rustix::fs::FlockOperation;

use crate::Error;

/// How often (in started domains) left-over files are looked for when many domains run.
const SWEEP_EVERY: u32 = 64;
/// Up to so many files, every start looks.
const FEW: usize = 32;

/// A live domain's id, and its name if it was given one; released when dropped.
#[derive(Debug)]
pub(crate) struct Identity {
    pub id: u32,
    pub name: Option<String>,
    // Held for what their dropping does.
    _files: Vec<Claim>,
}

/// A locked file, removed when dropped.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    // Held for its lock; closed after the file is removed.
    _file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If it cannot be removed it is at least unlocked next, and swept later.
        let _ = fs::remove_file(&self.path);
    }
}

impl Identity {
    /// Claims a free id, and `name` for it.
    pub fn claim(name: Option<&str>) -> Result<Self, Error> {
        Self::claim_in(&runtime_dir(), name)
    }

    fn claim_in(base: &Path, name: Option<&str>) -> Result<Self, Error> {
        let failed = |doing: &str| Error::host(format!("{doing} in {}", base.display()));
        let (domains, names) = (base.join("domains"), base.join("names"));
        for dir in [&domains, &names] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(failed("make directories"))?;
        }
        let name_claim = match name {
            Some(name) => {
                Some(Claim::take(&names.join(name)).map_err(failed("claim a name"))?.ok_or_else(|| {
                    Error::Config(format!("a domain named {name:?} is running; choose another --name"))
                })?)
            }
            None => None,
        };
        let mut next = open_private(&base.join("next")).map_err(failed("open the id counter"))?;
        rustix::fs::flock(&next, FlockOperation::LockExclusive)
            .map_err(|e| failed("lock the id counter")(e.into()))?;
        let mut text = String::new();
        next.read_to_string(&mut text).map_err(failed("read the id counter"))?;
        let mut id: u32 = text.trim().parse().unwrap_or(0);
        let claim = loop {
            // Id 0 is nobody's.
            id = (id + 1) % UID_COUNT;
            if id != 0
                && let Some(claim) =
                    Claim::take(&domains.join(id.to_string())).map_err(failed("claim an id"))?
            {
                break claim;
            }
        };
        (&claim._file).write_all(name.unwrap_or_default().as_bytes()).map_err(failed("write the name"))?;
        next.rewind()
            .and_then(|()| next.write_all(format!("{id:<10}").as_bytes()))
            .map_err(failed("write the id counter"))?;
        sweep(base, id, if id.is_multiple_of(SWEEP_EVERY) { usize::MAX } else { FEW });
        let files = std::iter::once(claim).chain(name_claim).collect();
        Ok(Self { id, name: name.map(str::to_owned), _files: files })
    }

    /// The domain's name: the given one, or one made of its id.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("d{}", self.id))
    }

    /// The name of its control group.
    pub fn cgroup(&self) -> String {
        cgroup_name(self.id, self.name.as_deref())
    }

    /// How many files stand for it.
    #[cfg(test)]
    fn claims(&self) -> usize {
        self._files.len()
    }
}

fn cgroup_name(id: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("d{id}-{name}"),
        None => format!("d{id}"),
    }
}

impl Claim {
    /// Creates and locks the file; none if another process has it.
    fn take(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = open_private(path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Its former owner may have removed it between our opening and our locking it.
            if file.metadata()?.nlink() > 0 {
                file.set_len(0)?;
                return Ok(Some(Self { path: path.to_owned(), _file: file }));
            }
        }
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Removes what domains left behind whose process died suddenly, looking at `most` files at most.
fn sweep(base: &Path, own: u32, most: usize) {
    let Ok(entries) = fs::read_dir(base.join("domains")) else { return };
    for entry in entries.flatten().take(most) {
        let Some(id) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if id == own {
            continue;
        }
        let name = fs::read_to_string(entry.path()).unwrap_or_default();
        // A lock we get means that nobody lives there; dropping the claim removes the file. What fails
        // here is tried again by a later sweep.
        if let Ok(Some(_claim)) = Claim::take(&entry.path()) {
            let name = (!name.is_empty()).then_some(name.as_str());
            crate::cgroup::remove_left_over(&cgroup_name(id, name));
            if let Some(name) = name {
                drop(Claim::take(&base.join("names").join(name)));
            }
        }
    }
}

/// Where live domains are noted.
fn runtime_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run/doppel".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("doppel"),
        None => std::env::temp_dir().join(format!("doppel-{}", rustix::process::geteuid().as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_until_released() {
        let base = std::env::temp_dir().join(format!("doppel-test-{}", std::process::id()));
        let one = Identity::claim_in(&base, Some("web")).unwrap();
        let two = Identity::claim_in(&base, None).unwrap();
        assert_ne!(one.id, two.id);
        assert_eq!((one.claims(), two.claims()), (2, 1));
        assert!(matches!(Identity::claim_in(&base, Some("web")), Err(Error::Config(_))));
        drop(one);
        let again = Identity::claim_in(&base, Some("web")).unwrap();
        assert_ne!(again.id, two.id);
        drop((again, two));
        assert_eq!(fs::read_dir(base.join("domains")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(base.join("names")).unwrap().count(), 0);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_dead_process_leaves_nothing() {
        let base = std::env::temp_dir().join(format!("doppel-sweep-{}", std::process::id()));
        fs::create_dir_all(base.join("domains")).unwrap();
        fs::create_dir_all(base.join("names")).unwrap();
        fs::write(base.join("domains/77"), "old").unwrap();
        fs::write(base.join("names/old"), "").unwrap();
        sweep(&base, 1, FEW);
        assert!(!base.join("domains/77").exists());
        assert!(!base.join("names/old").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
