//! `--trace`: system calls printed as strace prints them, on the log ring.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use doppel_machine::user::UserPtr;

use crate::Result;
use crate::core::log;
use crate::objects::lookup::caller::{PATH_MAX, at, read_string};
use crate::personality::{Arg, Args, Syscall, table};

/// Longest string or buffer shown, as strace's default.
const SHOWN: usize = 32;

fn quote(out: &mut String, bytes: &[u8], cut: bool) {
    out.push('"');
    for &b in bytes {
        match b {
            b'\n' => out.push_str("\\n"),
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(b));
            }
            0x20..=0x7e => out.push(char::from(b)),
            _ => push(out, format_args!("\\x{b:02x}")),
        }
    }
    out.push('"');
    if cut {
        out.push_str("...");
    }
}

/// Formatting into a String cannot fail.
fn push(out: &mut String, args: core::fmt::Arguments<'_>) {
    let r = out.write_fmt(args);
    debug_assert!(r.is_ok());
}

/// Shows what register `i` holds.
fn argument(out: &mut String, raw: &[u64; 6], i: usize, kind: Arg) {
    let value = raw[i];
    let number = value as i32;
    match kind {
        Arg::Sig => push(out, format_args!("{number} /* {} */", doppel_abi_linux::signal::name(number))),
        Arg::Int => push(out, format_args!("{number}")),
        Arg::Long => push(out, format_args!("{}", value.cast_signed())),
        Arg::Hex => push(out, format_args!("{value:#x}")),
        Arg::Octal => push(out, format_args!("{:#o}", value as u32)),
        Arg::Fd if number == at::FDCWD => out.push_str("AT_FDCWD"),
        Arg::Fd => push(out, format_args!("{number}")),
        Arg::Ptr if value == 0 => out.push_str("NULL"),
        Arg::Ptr => push(out, format_args!("{value:#x}")),
        Arg::Str => match read_string(UserPtr(value), PATH_MAX) {
            Ok(s) => quote(out, &s, false),
            Err(_) => push(out, format_args!("{value:#x}")),
        },
        Arg::Buf => {
            let len = raw[i + 1] as usize;
            let mut buf = [0u8; SHOWN];
            let n = len.min(SHOWN);
            match UserPtr(value).read_bytes(&mut buf[..n]) {
                Ok(()) => quote(out, &buf[..n], len > n),
                Err(_) => push(out, format_args!("{value:#x}")),
            }
        }
    }
}

/// The line up to the arguments' closing parenthesis. Calls that do not return are printed at once.
pub fn enter(a: &Args, nr: u64, entry: Option<&Syscall>) -> String {
    use doppel_abi_linux::syscalls::nr as n;
    let mut line = format!("[{}] ", a.thread.tid());
    match table::name(nr) {
        Some(name) => line.push_str(name),
        None => push(&mut line, format_args!("syscall_{nr:#x}")),
    }
    line.push('(');
    for (i, kind) in entry.map_or(&[][..], |s| s.args).iter().enumerate().take(6) {
        if i > 0 {
            line.push_str(", ");
        }
        argument(&mut line, &a.raw, i, *kind);
    }
    line.push(')');
    if entry.is_some_and(|s| matches!(s.nr, n::EXIT | n::EXIT_GROUP)) {
        line.push_str(" = ?\n");
        log::log(&line);
        line.clear();
    }
    line
}

/// Prints the line with its result.
pub fn leave(mut line: String, result: &Result<u64>) {
    if line.is_empty() {
        return;
    }
    match result {
        Ok(v) if *v >= 0x1_0000_0000 => push(&mut line, format_args!(" = {v:#x}")),
        Ok(v) => push(&mut line, format_args!(" = {v}")),
        Err(e) if e.0 >= 512 => push(&mut line, format_args!(" = ? {}", e.name())),
        Err(e) => push(&mut line, format_args!(" = -1 {}", e.name())),
    }
    line.push('\n');
    log::log(&line);
}
