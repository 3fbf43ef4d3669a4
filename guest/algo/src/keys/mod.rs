//! Keys and keyrings (`keyrings(7)`): which there are, who may do what with them, how they are found, what they count for.
//!
//! Key types: [`Store`] (all keys of a domain), [`Key`], [`Who`] (who calls, with the keyrings of its own), [`Caller`] (a
//! store in a caller's hands: what system calls ask for). Nothing here waits or touches memory of programs.
//!
//! A key lives as long as a keyring or a thread holds it ([`Store::hold`], [`Store::release`]). What has ended stays
//! visible for a while, as on Linux, and is then taken out of all keyrings ([`Store::collect`]).

mod attrs;
mod caller;
mod find;
mod key;
mod kind;
mod make;
mod rings;
mod show;
mod store;
#[cfg(test)]
mod tests;
mod who;

pub use attrs::Content;
pub use caller::{Caller, Found, Lookup, Need};
pub use key::{Key, Payload, Serial, perm};
pub use kind::Kind;
pub use store::{Limits, Store};
pub use who::{Destination, Rings, Who};
