//! The allow-list as a Markdown table, for `doppel debug host-calls` and SECURITY.md.

use std::fmt::Write;

use crate::{ALLOWED, Site};

/// One row a host system call; ends with their number.
#[must_use]
pub fn host_call_table() -> String {
    let mut out = String::from("| nr | call | arguments | why |\n|---:|---|---|---|\n");
    for rule in ALLOWED {
        let site = if rule.site == Site::Sigreturn { " (sigreturn site)" } else { "" };
        // A bar would end the table's cell.
        let cell = |text: &str| text.replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {}{site} | {} | {} |",
            rule.number,
            rule.name,
            cell(rule.arguments),
            cell(rule.why)
        );
    }
    let _ = writeln!(out, "\n{} host system calls.", ALLOWED.len());
    out
}
