//! The host's unsafe fence: the few things that `rustix` cannot offer as safe calls.
//!
//! * [`child`]: fork a domain's first process, confine it, execute the guest kernel in it.
//! * [`shared`]: memory shared with a domain, read and written without ever making a `&[u8]` of it.
//! * [`signal`]: signals as a descriptor.
//! * [`landlock`]: where files may be changed.
//! * [`memory`]: copies of other processes' memory.
//! * [`cpu`]: the features of this CPU.
//! * [`FileMap`]: a file mapped read-only.
//! * [`handle`]: files named by handles that outlive names and processes.
//! * [`huge`]: huge pages in the host's cache of a file.
//! * [`inherited`]: sockets from a service manager.
//! * [`net::datagram`]: datagrams with what their headers say.
//! * [`device`]: block devices: their numbers, and image files as ones.
//! * [`namespace`]: user namespaces, id-mapped mounts, a loopback device, joining those of others.
//! * [`filter`]: seccomp programs.
//! * [`privileges`]: capabilities given up.
//! * [`record_lock`]: locks of ranges of files, of an open file description.
//! * [`net::options`]: options of sockets by level and name.
//! * [`net::stream`]: streams with urgent bytes.
//! * [`net::tunnel`]: network devices whose packets a program moves.
//!
//! Boundary: mechanism only. What a domain is confined to is said by `common/confine`, and nothing here
//! trusts a byte that a domain can write.

pub mod child;
pub mod cpu;
pub mod device;
mod file;
pub mod filter;
pub mod huge;
pub mod inherited;
pub mod landlock;
pub mod memory;
pub mod namespace;
mod net;
pub mod pagemap;
pub mod privileges;
pub mod shared;
pub mod signal;

pub use file::{FileMap, handle, record_lock};
pub use net::{datagram, netlink, options, packet, stream, tunnel};
