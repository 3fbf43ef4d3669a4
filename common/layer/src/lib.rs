//! The file in which a domain's writable layer is kept: its format, for the guest kernel that writes it and for the host, which makes
//! it and reads it while no domain has it.
//!
//! ```text
//! block 0, 1   superblock, twice: the valid one with the higher generation counts
//! from block 2 transactions, one behind the other, each of whole blocks of 4,096 bytes:
//!              header, records, zeros up to the next block, then blocks of data that records name
//! ```
//! **A crash leaves a consistent tree.** Nothing that is referred to is overwritten: a transaction is appended, with its data, and is
//! there when its sums are right. What comes after one that is not is not there. A transaction says which earlier one was on the
//! disk for certain when it was written; the data of those up to there need not be read to know that they are whole.
//!
//! **Old blocks go.** A checkpoint is a transaction that says all there is; the superblock names it once it is on the disk, and reading
//! begins there. Blocks to which nothing refers any more are given back to the host's file system by punching holes.
//!
//! Key types: [`Superblock`], [`Transaction`] (what makes one), [`Record`], [`Tree`] (what all records say together), [`load`], [`Writer`].
//!
//! Boundary: the file is a domain's, and hostile for the host. Lengths are checked before they are believed, names are checked, work is
//! bounded by the file's size. Whoever walks a [`Tree`] bounds the walk: it may hold cycles.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocks;
pub mod disk;
mod read;
mod record;
mod superblock;
mod transaction;
mod tree;
mod write;

pub use blocks::BlockMap;
pub use read::{Loaded, Source, load};
pub use record::{Attributes, Record, Xattrs};
pub use superblock::{SUPERBLOCKS, Superblock};
pub use transaction::{Header, MAX_RECORDS, Sum, Transaction};
pub use tree::{Content, File, Name, Tree};
pub use write::{Pages, Store, Writer};

use core::fmt;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Longest name of a directory's entry in bytes.
pub const NAME: usize = 255;

/// Why a layer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No superblock is valid: this is no layer.
    NotLayer,
    /// It was written by a newer version of this format.
    Version(u32),
    /// The first transaction, which the superblock names, is not whole.
    Damaged,
    /// A record that is none, or that says what cannot be.
    Corrupt(&'static str),
    /// It says more than the reader has room for.
    TooLarge,
    /// The file could not be read.
    Io,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLayer => f.write_str("this is no layer: it has no valid superblock"),
            Self::Version(v) => {
                write!(f, "this layer has the format {v}, which a newer version of Doppel writes")
            }
            Self::Damaged => f.write_str("the transaction that the superblock names is damaged"),
            Self::Corrupt(what) => write!(f, "the layer is corrupt: {what}"),
            Self::TooLarge => f.write_str("the layer says more than there is room for"),
            Self::Io => f.write_str("the layer cannot be read"),
        }
    }
}

impl core::error::Error for Error {}
