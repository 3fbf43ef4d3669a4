//! One domain's life: build, run, stop, account.
//!
//! [`DomainConfig`] says what is wanted; [`Domain::start`] makes the memory, the identity and the control
//! group and forks the domain's first process, confined, executing the guest kernel; [`Domain::wait`]
//! moves console bytes and signals until the program ends; dropping a [`Domain`] leaves nothing behind.
//! A [`Fleet`] does the same for any number of domains on one thread.
//!
//! Boundary: policy comes from `common/confine`, mechanism from `common/sys`, layouts from `common/abi/machine`.
//! Everything a domain can write is read once and checked (`io::ring`, `run::domain`).
#![forbid(unsafe_code)]

mod error;
mod freeze;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod io;
mod launch;
mod limits;
mod lock;
mod paging;
#[cfg(any(test, feature = "fuzz"))]
mod peer;
mod registry;
mod run;
mod session;

pub use doppel_spec::{
    ExecConfig, IoDevice, Kind, LEAST_MEMORY, NO_PIDS_LIMIT, Program, Resources, UNBOUNDED,
};
pub use error::Error;
pub use freeze::frozen::{FreezeReport, Resume, image_digest};
pub use freeze::images::Images;
pub use freeze::share::{DomainStats, Sharing, SharingStats};
pub use io::archive;
pub use io::forward::{CAPTURE_MAX, Captured};
pub use io::output::{Output, Sink, Stream};
pub use launch::config::{DomainConfig, Keep, NetworkLink, StorageLink};
pub use launch::defaults::{Bound, Defaults};
pub use launch::elf::Gates;
pub use launch::kernel::{Kernel, kernel_digest};
pub use launch::namespaces::begin as begin_namespaces;
pub use launch::pool::Pool;
pub use launch::speculation::Speculation;
pub use limits::cgroup::{ServiceGroups, Usage, all_tasks, cgroups, tasks_bound};
pub use limits::rests::Rests;
pub use registry::adopt::{Adopted, Adoption, Channels, Gone, Orphan};
pub use registry::messages::{Reply, Request};
pub use registry::requests::{ask, running};
pub use run::domain::{Domain, Killer, StartTimes};
pub use run::exit::Outcome;
pub use run::fleet::{Ended, Event, Fleet, SessionEvent, SessionKey, Start};
pub use run::key::Key;
pub use run::outcome::{borrow, hold};
pub use session::piped::Piped;
pub use session::remote::{Remote, SessionMessage, attach, terminal_size};
pub use session::{Session, SessionEnd, SessionStep};
