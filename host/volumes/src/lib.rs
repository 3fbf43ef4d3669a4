//! Volumes: directories that are kept under names, apart from domains, in `volumes/` of a store.
//!
//! ```text
//! volumes/.lock            held by whoever makes or removes one, or notes or forgets a user
//! volumes/NAME/volume.json what is known of it
//! volumes/NAME/_data/      its files
//! volumes/NAME/lock        held by whoever runs a domain that has it
//! volumes/NAME/used        of one with limits: what its files take
//! volumes/NAME/users/ID    a domain of a supervisor's that has it, running or not
//! ```
//! A volume appears complete and goes at once, by a rename each.
//!
//! Key types: [`VolumeStore`] (all of a store), [`Volume`] (one), [`Leases`] (those that a domain has while it runs).
//! [`prepare`](VolumeStore::prepare) makes what a domain's mounts name, [`sources`](VolumeStore::sources) says where that is.
//!
//! Boundary: names are checked before they are part of a path; what is in a volume is a stranger's and is never read here.
#![forbid(unsafe_code)]

mod copy;
mod error;
mod frozen;
mod leases;
mod limits;
mod mounts;
mod store;

pub use error::{Error, Result};
pub use frozen::{FrozenVolumes, Held};
pub use leases::Leases;
pub use limits::rates;
pub use store::{Volume, VolumeLimits, VolumeStore};
