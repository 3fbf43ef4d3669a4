//! Disks as stacks of layers: what a disk's files say, and how they are read and written (docs/disks.md).
//!
//! A layer is one sparse file: a header, a map with two bits for each block of 4 KiB, and the blocks, each at its own place.
//! A block is *data* of this layer, *zero*, or a *hole*: then the layer below has it. The topmost layer alone is written.
//! So a snapshot or a clone is a new, empty layer, whatever the disk's size.
//!
//! **Order.** A write puts the bytes into the file, then says so in the *live map*, a second file; a flush syncs the blocks, then
//! writes what has changed into the layer's own map, and syncs that. The live map counts as long as the host runs: whoever goes on
//! when a writer has been killed finds in it all that was acknowledged. After a power cut the layer's own map counts, which
//! never names a block that is not on the disk. Blocks are independent of each other, so a torn write of the map does no harm.
//!
//! Key types: [`Stack`] (a disk, open), [`Header`] (what a layer is), [`File`] (what is asked of a file).
//!
//! Boundary: these files are the host's own; a domain sees the bytes of its disk only. What they say is checked all the same.
#![forbid(unsafe_code)]

mod file;
mod header;
mod map;
mod resize;
mod stack;

pub use file::File;
pub use header::{Header, Id};
pub use map::map_bytes;
pub use resize::resize;
pub use stack::{Layer, Stack};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Where in a layer's file, and in that of a live map, the map begins.
pub const MAP_AT: u64 = BLOCK;
/// Where in a layer's file the first block lies.
pub const DATA_AT: u64 = 1 << 30;
/// Most bytes of a disk: the map of one has room before the blocks.
pub const MOST_BYTES: u64 = 8 << 40;
/// Most layers of a disk.
pub const MOST_LAYERS: usize = 64;
