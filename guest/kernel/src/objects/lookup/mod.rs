//! Finding, opening, making and removing files by name.

pub mod caller;
pub mod context;
pub mod fast;
pub mod names;
pub mod open;
pub mod opener;
pub mod path;
pub mod perm;
pub mod walk;
