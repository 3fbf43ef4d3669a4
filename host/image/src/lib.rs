//! Doppel: host/image.
#![forbid(unsafe_code)]
