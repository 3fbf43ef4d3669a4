//! One domain's life: build, run, stop, account.
//!
//! [`DomainConfig`] says what is wanted; [`Domain::start`] makes the memory, the identity and the control
//! group and forks the domain's first process, confined, executing the guest kernel; [`Domain::wait`]
//! moves console bytes and signals until the program ends; dropping a [`Domain`] leaves nothing behind.
//! A [`Fleet`] does the same for any number of domains on one thread.
//!
//! Boundary: policy comes from `host/confine`, mechanism from `host/sys`, layouts from `abi/machine`.
//! Everything a domain can write is read once and checked (`ring.rs`, `domain.rs`).
#![forbid(unsafe_code)]

mod adopt;
mod arbiter;
pub mod archive;
mod cgroup;
mod config;
mod console;
mod control;
mod core;
mod crew;
mod defaults;
mod domain;
mod elf;
mod error;
mod fleet;
mod foreground;
mod frozen;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod holder;
mod identity;
mod images;
mod kernel;
mod last;
mod launch;
mod namespaces;
mod nursery;
mod outlet;
mod output;
#[cfg(any(test, feature = "fuzz"))]
mod peer;
mod piped;
mod pool;
mod reaper;
mod record;
mod relay;
mod remote;
mod requests;
mod ring;
mod session;
mod shadow;
mod share;
mod sharer;
mod shelf;
mod speculation;
mod terminal;
mod wake;

pub use adopt::{Adopted, Adoption, Gone, Orphan};
pub use cgroup::{IoLimit, Resources, ServiceGroups, Usage, all_tasks, cgroups, tasks_bound};
pub use config::{Disk, DomainConfig, Kind, LEAST_MEMORY, MOST_CPUS, NO_PIDS_LIMIT, NetworkLink, UNBOUNDED};
pub use defaults::{Bound, Defaults};
pub use domain::{Domain, Killer, Outcome, StartTimes};
pub use elf::Gates;
pub use error::Error;
pub use fleet::{Ended, Event, Fleet, Key, NewLimits, SessionEvent, SessionKey, Start};
pub use frozen::{CloneConfig, FreezeReport, Resume, image_digest};
pub use images::Images;
pub use kernel::{Kernel, kernel_digest};
pub use last::{borrow, hold};
pub use outlet::{CAPTURE_MAX, Captured};
pub use output::{Output, Sink, Stream};
pub use piped::Piped;
pub use pool::Pool;
pub use record::Keep;
pub use remote::{Remote, Said, attach, terminal_size};
pub use requests::{Reply, Request, ask, running};
pub use session::{ExecConfig, Session, SessionEnd, SessionStep};
pub use share::{DomainStats, Sharing, SharingStats};
pub use speculation::Speculation;
