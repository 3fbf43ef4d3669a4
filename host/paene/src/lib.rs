//! Paene domains: programs on the host's own kernel, under the same commands as those on a guest kernel.
//!
//! A para domain's first process is the guest kernel. A paene domain's is the **attendant** ([`attend`]): our own program,
//! started in the guest kernel's place by `host/domain`, with the same control area, console rings, sessions and doorbell
//! (`common/abi/machine`). It makes a container with youki's libcontainer, runs the domain's program in it, and moves bytes,
//! signals and exits between that and the rings. Everything above (fleets, the supervisor, logs, exec, copies) cannot tell
//! the two kinds apart, and control groups, names and ends are those of any domain.
//!
//! * `attendant`: the loop around all of it, its `container` (made by libcontainer) with its `groups`, `session`s of further
//!   programs, and the rights it gives up (`confined`).
//! * `root`: the image, shared and read-only (`lower`; `check`: that the host's kernel can be given it), a layer of the
//!   domain's own over it (`tree`), and whose the files are (`owners`).
//! * `program`: what the host asks for (`request`), the container as OCI describes one (`bundle`), becoming a program inside
//!   (`start`, `enter`), the host's own commands (`builtin`), the guest kernel's ends of the rings (`ring`, `streams`).
//! * `network`: its device, and who moves that one's packets. `disks`: its block devices, and who serves them.
//!
//! Boundary: the attendant is root on the host, in PID and mount namespaces of its own; nothing of it is in reach of the
//! container, whose user namespace maps root to an id that owns nothing. The domain's processes are in its PID namespace:
//! they end with it.
#![forbid(unsafe_code)]

mod attendant;
mod disks;
mod failure;
mod network;
mod program;
mod root;

pub use attendant::confined;

use std::process::ExitCode;

#[cfg(feature = "fuzz")]
pub use network::fuzz::packets as fuzz_packets;

use doppel_abi_machine::ATTENDANT;

/// To be called first by programs that start domains: if this process is an attendant, or one of its helpers, does its
/// work and says how it ended.
#[must_use]
pub fn attend() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    if args.next()? != ATTENDANT {
        return None;
    }
    let first = args.next()?;
    Some(match first.to_str() {
        Some(program::enter::VERB) => program::enter::run(),
        Some(root::check::VERB) => root::check::run(args.next().as_deref().and_then(|user| user.to_str())),
        Some(network::process::VERB) => network::process::run(),
        Some(disks::process::VERB) => disks::process::run(),
        _ => attendant::run::run(&first, args),
    })
}
