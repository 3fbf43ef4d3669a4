//! Layers: what domains have changed of their images' files, kept in `layers/` of a store.
//!
//! ```text
//! layers/.lock             held by whoever makes or removes one, or notes or forgets a user
//! layers/NAME/layer.json   what is known of it
//! layers/NAME/lock         held by the process that runs the domain that has it
//! layers/NAME/user         the domain of a supervisor's that has it, running or not, by its id
//! layers/NAME/layer        of a para domain: its changes, as `common/layer` has them
//! layers/NAME/below/0, …   of a clone: what it lies on, as a frozen image has it too; links to the same files
//! layers/NAME/below/stack   how these are one layer
//! layers/NAME/upper/       of a paene domain: what an overlay has above the image
//! layers/NAME/work/        of a paene domain: the overlay's own
//! ```
//! A domain's own layer is called by the domain's id and goes with it; others are called as somebody wished, and stay.
//! One domain at a time has a layer. It appears complete and goes at once, by a rename each.
//!
//! Key types: [`LayerStore`] (all of a store), [`Layer`] (one), [`Base`] (what it lies on), [`Lock`] (a domain runs on it), [`Stack`] (its files
//! as one).
//!
//! Boundary: names are checked before they are part of a path; what is in a layer is a domain's and is never followed here.
#![forbid(unsafe_code)]

mod below;
mod error;
mod store;

pub use below::{Stack, can_share, files, is_shared, share};
pub use error::{Error, Result};
pub use store::{Base, Layer, LayerStore, Lock, file, most, state, upper};
