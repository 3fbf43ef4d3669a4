//! Console and streams: rings on the domain's side, where bytes go on ours.

pub mod archive;
pub mod console;
pub mod forward;
pub mod output;
pub mod ring;
pub mod terminal;
