//! Paene domains: programs on the host's own kernel, under the same commands as those on a guest kernel.
//!
//! A para domain's first process is the guest kernel. A paene domain's is the **attendant** ([`attend`]): our own program,
//! started in the guest kernel's place by `host/domain`, with the same control area, console rings, sessions and doorbell
//! (`common/abi/machine`). It makes a container with youki's libcontainer, runs the domain's program in it, and moves bytes,
//! signals and exits between that and the rings. Everything above (fleets, the supervisor, logs, exec, copies) cannot tell
//! the two kinds apart, and control groups, names and ends are those of any domain.
//!
//! * `request`: what the host asks for. `lower`: the image, shared and read-only. `confined`: what it gives up. `check`: that the host's kernel can be given it. `root`: a layer of the domain's own over it.
//!   `bundle`: the container as OCI describes one. `container`: made by libcontainer.
//!   `groups`: its control groups. `network`: its device, and who moves that one's packets. `program`: becoming a program inside. `session`, `enter`: further programs. `builtin`: the host's own commands.
//! * `ring`, `streams`: the guest kernel's ends of the rings. `attendant`: the loop around all of it.
//!
//! Boundary: the attendant is root on the host, in PID and mount namespaces of its own; nothing of it is in reach of the
//! container, whose user namespace maps root to an id that owns nothing. The domain's processes are in its PID namespace:
//! they end with it.
#![forbid(unsafe_code)]

mod attendant;
mod builtin;
mod bundle;
mod check;
pub mod confined;
mod container;
mod enter;
mod groups;
mod lower;
mod network;
mod program;
mod request;
mod ring;
mod root;
mod session;
mod streams;
mod talk;

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
        Some(enter::VERB) => enter::run(),
        Some(check::VERB) => check::run(args.next().as_deref().and_then(|user| user.to_str())),
        Some(network::process::VERB) => network::process::run(),
        _ => attendant::run(&first, args),
    })
}
