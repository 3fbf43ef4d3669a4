//! Doppel: host/sys.

mod file_map;

pub use file_map::FileMap;
