//! Images in use although perhaps no name has them: each user keeps an empty file `pins/<hex>.<user>`.
//!
//! A stopped domain has its image open in no process. Without a pin a pull that gives the image's name to another one
//! would take the file from under it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::error::IoContext;
use crate::{Error, Result, Store};

impl Store {
    /// Keeps the image with this digest until [`Self::unpin`]; `user` tells who (letters, digits, `-`).
    ///
    /// # Errors
    /// If there is no such image (any more), or what the host says.
    pub fn pin(&self, digest: &str, user: &str) -> Result<()> {
        let dir = self.pins();
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).doing("create", &dir)?;
        let pin = dir.join(format!("{digest}.{user}"));
        // Under the lock nobody is removing it.
        let _lock = self.lock()?;
        // A link that points elsewhere (a store made of links) counts.
        if self.image_path(digest).symlink_metadata().is_err() {
            return Err(Error::NotFound(format!("sha256:{digest}")));
        }
        File::create(&pin).doing("create", &pin)?;
        Ok(())
    }

    /// Gives an image up again. If nobody else has it, it goes with the next import or prune: to look for that takes
    /// longer than a domain lives.
    ///
    /// # Errors
    /// What the host says.
    pub fn unpin(&self, digest: &str, user: &str) -> Result<()> {
        let pin = self.pins().join(format!("{digest}.{user}"));
        match fs::remove_file(&pin) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.doing("remove", &pin),
        }
    }

    /// Digests and users of all pins.
    ///
    /// # Errors
    /// What the host says.
    pub fn pinned(&self) -> Result<Vec<(String, String)>> {
        let dir = self.pins();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).doing("list", &dir),
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry.doing("list", &dir)?.file_name();
            if let Some((digest, user)) = name.to_str().and_then(|n| n.split_once('.')) {
                all.push((digest.to_owned(), user.to_owned()));
            }
        }
        Ok(all)
    }

    /// Digests of all images that somebody has pinned.
    pub(crate) fn held(&self) -> Result<BTreeSet<String>> {
        Ok(self.pinned()?.into_iter().map(|(digest, _)| digest).collect())
    }

    fn pins(&self) -> PathBuf {
        self.root().join("pins")
    }
}
