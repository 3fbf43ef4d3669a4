//! Frozen images: written from a stopped domain, kept, checked, and given to clones (docs/design.md §8).
//!
//! * [`freeze`]: what of a stopped domain's memory must be kept ([`scan`](mod@scan)), and writing it.
//! * [`Ahead`]: its page file, copied before it stands still.
//! * [`FrozenImage`]: an image opened, checked whole, ready to be mapped; refuses a host it does not fit.
//! * [`WorkingSet`]: the pages a woken domain touches first, read ahead at the next wake.
//! * [`Parent`]: what a new image need not write, since an older one has it.
//! * [`FrozenStore`]: images by name, on disk or in memory.
//! * [`share`](mod@share): which pages of running clones became equal after the checkpoint.
//!
//! Boundary: the host kernel's view of a domain's processes is believed, nothing the domain itself wrote is.
//! Layouts are in `common/abi/machine` (`frozen`); stopping and starting domains is `host/domain`'s part.
#![forbid(unsafe_code)]

mod ancestors;
mod checked;
mod draft;
mod error;
mod export;
mod format;
mod host;
mod open;
pub mod resident;
pub mod scan;
pub mod share;
mod store;
mod working_set;
mod write;

pub use ancestors::{Lineage, Parent};
pub use error::Error;
pub use format::{Description, parse_segment as segment};
pub use open::{FrozenImage, Identity};
pub use scan::Load;
pub use store::{Entry, FrozenStore, Medium, is_of_sleeper};
pub use working_set::WorkingSet;
pub use write::{Ahead, Report, Shadows, Standing, Subject, freeze, prepare};
