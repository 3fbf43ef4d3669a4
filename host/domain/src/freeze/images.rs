//! Frozen images in use, so that a hundred clones open and check one once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use doppel_freezer::FrozenImage;

use crate::Error;
use crate::lock::lock;

/// An image, locked while it is opened.
type CacheEntry = Arc<Mutex<Weak<FrozenImage>>>;

/// Those of a process, by file. Lock order: the table, then a place; while one is opened only its own.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Mutex<HashMap<PathBuf, CacheEntry>>>);

impl Images {
    /// The image in this file; opening it takes as long as it is large, and others of it wait.
    pub(crate) fn open(&self, path: &Path) -> Result<Arc<FrozenImage>, Error> {
        let place = {
            let mut all = lock(&self.0);
            // Whom nobody opens just now can be looked at.
            all.retain(|_, p| Arc::strong_count(p) > 1 || lock(p).strong_count() > 0);
            all.entry(path.to_owned()).or_default().clone()
        };
        let mut place = lock(&place);
        if let Some(image) = place.upgrade() {
            return Ok(image);
        }
        let image = Arc::new(FrozenImage::open(path)?);
        *place = Arc::downgrade(&image);
        Ok(image)
    }
}
