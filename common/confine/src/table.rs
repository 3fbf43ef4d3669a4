//! Allow-lists as Markdown tables, for `doppel debug`, SECURITY.md and docs/services.md.

use std::fmt::Write;

use doppel_abi_linux::syscalls::name_of;

use crate::service::Service;
use crate::{ALLOWED, Rule, Site};

/// What a guest kernel may ask of the host.
#[must_use]
pub fn host_call_table() -> String {
    table(ALLOWED)
}

/// What a service domain may ask of the host.
#[must_use]
pub fn service_call_table(service: &Service) -> String {
    table(&service.allowed())
}

/// One row a host system call; ends with their number.
fn table(rules: &[Rule]) -> String {
    let mut out = String::from("| nr | call | arguments | why |\n|---:|---|---|---|\n");
    for rule in rules {
        let site = if rule.site == Site::Sigreturn { " (sigreturn site)" } else { "" };
        // A bar would end the table's cell.
        let cell = |text: &str| text.replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {}{site} | {} | {} |",
            rule.number,
            name_of(rule.number),
            cell(rule.arguments),
            cell(rule.why)
        );
    }
    let _ = writeln!(out, "\n{} host system calls.", rules.len());
    out
}
