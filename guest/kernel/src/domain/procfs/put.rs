//! Formatting into a text.

use alloc::string::String;
use core::fmt::Write;

/// Formatting into a String cannot fail.
pub(super) fn put(s: &mut String, args: core::fmt::Arguments<'_>) {
    let r = s.write_fmt(args);
    debug_assert!(r.is_ok());
}
