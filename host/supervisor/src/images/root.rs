//! A root image of the store.

use std::path::PathBuf;

use doppel_image::ImageConfig;

/// A root image found.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub path: PathBuf,
    pub digest: String,
    /// How its programs are run.
    pub config: ImageConfig,
}
