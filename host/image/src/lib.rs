//! Root images: making them from directories, archives and Debian packages, and keeping them in a store.
//!
//! An image is an EROFS file, uncompressed, with the data of every regular file contiguous and starting on
//! a page, so that a guest can map it page by page. It is named by the SHA-256 of its bytes; the same input
//! tree always gives the same bytes (see `docs/images.md`). Behind the file system an image holds the patched
//! text of its programs ([`patch`]).
//!
//! Key types: [`Store`] (images and their names), [`Tree`] (a file tree in memory, what every source is
//! turned into), [`Limits`] (how much an untrusted source may ask for).
//!
//! Boundary: archives and image files are hostile. An archive is never extracted: it becomes a [`Tree`],
//! and only our own spool file is written. Image files are read through `doppel-erofs` only.
#![forbid(unsafe_code)]

mod build;
mod config;
mod error;
mod export;
mod identity;
mod input;
mod inspect;
mod launch;
pub mod patch;
mod pins;
mod store;
mod tree;
mod unpacked;
mod watcher;
mod writer;

pub use build::Build;
pub use config::{Empty, Healthcheck, ImageConfig, Oci};
pub use error::{Error, Result};
pub use export::{Changes, Difference, differences, small_file, write_changed_tar, write_tar};
pub use identity::{IDENTITY_FILE_MAX, Identity, identity};
pub use input::archive::from_tar;
pub use input::compressed::plain as decompressed;
pub use input::directory::from_dir;
pub use inspect::{Inspection, check_for_mount, verify};
pub use launch::{Launch, LaunchOptions, launch};
pub use store::{Counts, NameVersion, OpenImage, Record, Source, Staged, Store};
pub use tree::{Content, Data, Limits, Meta, Tree};
pub use unpacked::{Unpacked, copy_out, unpacked};
pub use watcher::{Step, Watcher};
pub use writer::{Written, write};
