//! The same log as a file system on a device of a fixed size.
//!
//! ```text
//! block 0, 1            superblock, twice: the valid one with the higher generation counts
//! then two halves       of one of them transactions are read, which begin with a checkpoint: header, records, zeros up to the next block
//! then data             of files, each block where a record says
//! ```
//! When a half is full, or its log far longer than what it says, a checkpoint goes into the other half, and a superblock names that. So the
//! log never ends, and its length is bounded.
//!
//! **A crash leaves a consistent tree** as for a layer's file: data goes to blocks that nobody has, and a transaction counts if its
//! sums are right, that of its data included as long as nobody has said that it is on the disk. A block that a transaction has freed is used
//! again only when no reader would ask for its sum: when the last transaction on the disk says that the one that freed it is there too.
//!
//! **A full device** refuses what is new and takes what makes room: a transaction that has no place in its half is put into the
//! checkpoint of the other one, so removing files needs no room at all.
//!
//! Key types: [`Writer`], [`Loaded`], [`format`](fn@format).
//!
//! Boundary: a device's bytes are hostile. Memory is bounded by what the caller allows; [`load`] gives a tree without circles, in which
//! each directory has one name and each block one owner.

mod check;
mod read;
mod space;
mod superblock;
mod write;

pub use check::ROOT;
pub use read::{Loaded, load};
pub use superblock::{FEWEST, Superblock};
pub use write::{Placed, Refused, Writer, format};
