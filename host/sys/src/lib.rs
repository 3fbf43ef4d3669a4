//! Doppel: host/sys.
