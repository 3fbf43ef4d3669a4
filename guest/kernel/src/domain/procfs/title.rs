//! /proc/PID/cmdline: the memory of a process' arguments, which it may have overwritten to give itself a title.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::process::task::{Process, remote};

/// Longest title that runs on behind the arguments.
const TITLE_MAX: u64 = 4096;
/// Longest command line shown.
const MAX: u64 = 2 << 20;

/// What /proc/PID/cmdline shows of `p`: nothing of a process without memory.
pub fn command_line(p: &Arc<Process>) -> Vec<u8> {
    if p.is_zombie() {
        return Vec::new();
    }
    let a = p.space().mm.areas();
    let mut text = copy(p, a.arg_start, a.arg_end);
    // Arguments that do not end in a NUL were overwritten by a title, one string that may reach into the
    // environment.
    if text.last().is_some_and(|last| *last != 0) {
        let end = a.env_end.max(a.arg_end).min(a.arg_start.saturating_add(TITLE_MAX));
        text = copy(p, a.arg_start, end);
        if let Some(nul) = text.iter().position(|b| *b == 0) {
            text.truncate(nul + 1);
        }
    }
    text
}

/// The bytes `from..to` of its memory, as far as they are there.
fn copy(p: &Arc<Process>, from: u64, to: u64) -> Vec<u8> {
    let len = to.saturating_sub(from).min(MAX);
    let mut text = Vec::new();
    while (text.len() as u64) < len {
        let left = len - text.len() as u64;
        match remote::read(p, from + text.len() as u64, left as usize) {
            Ok(part) if !part.is_empty() => text.extend_from_slice(&part),
            // Gone meanwhile, or unmapped by the program itself: Linux shows what there is.
            _ => break,
        }
    }
    text
}
