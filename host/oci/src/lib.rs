//! OCI images: pulling from and pushing to registries, reading and writing image archives.
//!
//! A pulled image is two things in the store: *blobs* (manifest, configuration, layers as they were sent; named by
//! digest, shared by images) and a root image made from the layers, which `doppel-image` writes.
//!
//! Key types: [`Reference`] (what is pulled), [`Blobs`] (the store of blobs), [`Pull`], [`Push`], [`Artifact`] (one file of another kind), [`Progress`] (told
//! what happens), [`Cancel`] (ends an operation from another thread). Everything blocks: an asynchronous caller runs it
//! on a thread of its own.
//!
//! Boundary: registries and archives are hostile. Nothing they send is believed before its SHA-256 is right; every
//! length is bounded before it is read; text of theirs is shown with control characters escaped; layers are applied to
//! a tree in memory, never to a directory of the host.
//!
//! Lock order: a partial blob's lock, then none; the store's lock is taken alone.
#![forbid(unsafe_code)]

mod archive;
mod artifact;
mod auth;
mod blobs;
mod client;
mod digest;
mod download;
mod error;
mod model;
mod progress;
mod pull;
mod push;
mod reference;
mod save;

pub use archive::{Import, import, is_layout, sniff};
pub use artifact::{Artifact, ArtifactKind};
pub use auth::Credentials;
pub use blobs::{Blobs, Pruned};
pub use digest::Digest;
pub use error::{Error, Result};
pub use model::Platform;
pub use progress::{Cancel, Event, Progress};
pub use pull::{Pull, Pulled};
pub use push::{Push, Pushed};
pub use reference::Reference;
pub use save::save;
