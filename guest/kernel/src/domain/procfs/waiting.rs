//! Where threads wait: /proc/PID/wchan and /proc/PID/stack.
//!
//! Functions are the guest kernel's own, so their names are not Linux'. A thread that runs shows none.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use doppel_machine::backtrace;
use doppel_unwind::kernel::Function;

use crate::core::sched::runnable::Runnable;
use crate::process::task::{Thread, current, remote};
use crate::{Errno, Result};

/// Functions by which threads wait, whatever for.
const MEANS: &[&str] = &[
    "doppel_machine::",
    "doppel_kernel::core::sched::",
    "doppel_kernel::process::task::",
    "core::",
    "alloc::",
];

/// Calls of closures: they say nothing that the closure's own name does not.
const GLUE: &str = "core::ops::function::";

/// One call on the way to a wait.
pub struct Call {
    /// Return address.
    pub pc: u64,
    /// Its function.
    pub function: Function<'static>,
}

/// The calls that led to where a thread waits, innermost first; empty if it runs.
pub fn calls(t: &Thread) -> Vec<Call> {
    if !t.entity().waits() {
        return Vec::new();
    }
    let (Some(trace), Some(table)) = (t.task.backtrace(), backtrace::table()) else { return Vec::new() };
    let call = |pc: &u64| table.function(*pc - 1).map(|function| Call { pc: *pc, function });
    trace.addresses().iter().filter_map(call).collect()
}

/// The function in which a thread waits, in short.
pub fn channel(calls: &[Call]) -> Option<String> {
    let path =
        calls.iter().map(|c| path(c.function.name)).find(|p| !MEANS.iter().any(|m| p.starts_with(m)))?;
    let path = path.strip_prefix("doppel_kernel::").unwrap_or(&path);
    Some(path.split("::").filter(|part| !part.starts_with('{')).collect::<Vec<_>>().join("::"))
}

/// `<a::B as c::D>::e` is `a::B::e`.
fn path(name: &str) -> String {
    let Some((of, method)) = name.strip_prefix('<').and_then(|n| n.split_once(">::")) else {
        return name.into();
    };
    format!("{}::{method}", of.split(" as ").next().unwrap_or(of))
}

/// `0` if it runs, and for those who may not look into it.
pub fn wchan(t: &Thread) -> Result<String> {
    let may = remote::may_access(&current().process, &t.process).is_ok();
    let channel = if may { channel(&calls(t)) } else { None };
    Ok(channel.unwrap_or_else(|| "0".into()))
}

/// Where a thread waits and its calls, a line each; nothing for those who may not look into it.
pub fn told(t: &Thread) -> (String, String) {
    if remote::may_access(&current().process, &t.process).is_err() {
        return Default::default();
    }
    let calls = calls(t);
    (channel(&calls).unwrap_or_default(), lines(calls))
}

/// A line for each call.
pub fn stack(t: &Thread) -> Result<String> {
    remote::may_access(&current().process, &t.process).map_err(|_| Errno::EACCES)?;
    Ok(lines(calls(t)))
}

fn lines(calls: Vec<Call>) -> String {
    // The return address lies behind the call.
    let line =
        |c: Call| format!("[<0>] {}+{:#x}/{:#x}\n", c.function.name, c.function.offset + 1, c.function.len);
    let said = calls.into_iter().filter(|call| !path(call.function.name).starts_with(GLUE));
    said.map(line).collect()
}
