//! The host's unsafe fence: the few things that `rustix` cannot offer as safe calls.
//!
//! * [`child`]: fork a domain's first process, confine it, execute the guest kernel in it.
//! * [`shared`]: memory shared with a domain, read and written without ever making a `&[u8]` of it.
//! * [`signal`]: signals as a descriptor.
//! * [`FileMap`]: a file mapped read-only.
//!
//! Boundary: mechanism only. What a domain is confined to is said by `host/confine`, and nothing here
//! trusts a byte that a domain can write.

pub mod child;
mod file_map;
pub mod shared;
pub mod signal;

pub use file_map::FileMap;
