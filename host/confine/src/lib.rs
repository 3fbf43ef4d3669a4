//! Doppel: host/confine.
#![forbid(unsafe_code)]
