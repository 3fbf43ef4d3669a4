//! Memory that comes back: domains with a target give up what is cold to their swap regions (docs/memory.md).

pub mod pager;
pub mod region;
mod round;

pub(crate) use round::Paging;
