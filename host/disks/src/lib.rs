//! Disks: block devices of a fixed size that domains are given, kept in `disks/` of a store.
//!
//! ```text
//! disks/.lock            held by whoever makes, changes or removes one
//! disks/.layers/ID       a layer (`common/disk`)
//! disks/NAME/disk.json   what is known of it: its topmost layer among others
//! disks/NAME/lock        held by processes that run domains that have it: by one alone, or by several that only read
//! disks/NAME/live        where the blocks of the topmost layer are, as long as this host runs
//! disks/.kept-ID         a disk as a frozen image has it, or as somebody wants it who makes a snapshot of one that a domain writes
//! disks/.wanted-ID       somebody does, as long as it is there
//! ```
//! A disk appears complete and goes at once, by a rename each. Disks belong to nobody: they stay until somebody removes them. A layer
//! goes when no disk needs it any more.
//!
//! Key types: [`DiskStore`] (all of a store), [`Disk`] (one), [`Held`] (a domain runs with it), [`InUse`] (those of a domain that runs, to be
//! frozen with it, or snapshotted), [`FrozenDisks`] (what a frozen image has of them).
//!
//! Boundary: names are checked before they are part of a path; what is on a disk is a domain's and is never interpreted here.
#![forbid(unsafe_code)]

mod error;
mod format;
mod frozen;
mod held;
mod in_use;
mod layers;
mod store;

pub use error::{Error, Result};
pub use frozen::{FrozenDisk, FrozenDisks};
pub use held::Held;
pub use in_use::{Cut, InUse};
pub use store::{Disk, DiskStore};
