//! docs/COMPATIBILITY.md, made from the guest kernel's system call table.

use std::fmt::Write;
use std::fs;

use doppel_abi_linux::syscalls::NAMES;
use doppel_kernel::personality::{FAMILIES, Support, Syscall};

const PATH: &str = "docs/COMPATIBILITY.md";

/// Writes the document, or with `check` fails if the one in the tree differs.
pub fn run(check: bool) -> Result<(), Box<dyn std::error::Error>> {
    let text = render()?;
    if !check {
        return Ok(fs::write(PATH, text)?);
    }
    if fs::read_to_string(PATH)? == text {
        Ok(())
    } else {
        Err(format!("{PATH} is out of date: run `cargo run -p xtask -- compat`").into())
    }
}

fn level(s: Support) -> &'static str {
    match s {
        Support::Full => "full",
        Support::Partial => "partial",
        Support::Stub => "stub",
    }
}

fn render() -> Result<String, std::fmt::Error> {
    let rows: Vec<&Syscall> = FAMILIES.iter().flat_map(|(_, calls)| calls.iter()).collect();
    let count = |s: Support| rows.iter().filter(|r| r.support == s).count();
    let missing: Vec<&str> =
        NAMES.iter().filter(|(n, _)| !rows.iter().any(|r| r.nr == *n)).map(|(_, name)| *name).collect();
    let mut out = String::new();
    writeln!(out, "# System calls of a para domain\n")?;
    writeln!(out, "Made from the guest kernel's table by `cargo run -p xtask -- compat`; do not edit.\n")?;
    writeln!(out, "- *full*: everything programs use; *partial*: works, with the limits noted;")?;
    writeln!(out, "  *stub*: accepted without effect or refused with the error noted.")?;
    writeln!(out, "- Everything else is ENOSYS, and logged once with its name.\n")?;
    writeln!(out, "| full | partial | stub | not implemented |\n|---|---|---|---|")?;
    let n = (count(Support::Full), count(Support::Partial), count(Support::Stub));
    writeln!(out, "| {} | {} | {} | {} |\n", n.0, n.1, n.2, missing.len())?;
    for (family, calls) in FAMILIES {
        writeln!(out, "## {family}\n\n| number | call | support | note |\n|---|---|---|---|")?;
        for c in *calls {
            let name = NAMES.iter().find(|(n, _)| *n == c.nr).map_or("?", |(_, s)| *s);
            writeln!(out, "| {} | {name} | {} | {} |", c.nr, level(c.support), c.note)?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## Not implemented (ENOSYS)\n\n{}", missing.join(", "))?;
    Ok(out)
}
