//! Files: mapped whole, named by handles, locked in parts.

pub mod handle;
mod map;
pub mod record_lock;

pub use map::FileMap;
