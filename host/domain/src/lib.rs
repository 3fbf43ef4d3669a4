//! Doppel: host/domain.
#![forbid(unsafe_code)]
