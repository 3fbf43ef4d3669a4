//! Starting domains: what is asked, the kernel to run, the memory they are born with.

pub mod config;
pub mod control;
pub mod defaults;
pub mod elf;
pub mod first_process;
pub mod kernel;
pub mod kernel_cache;
pub mod mounts;
pub mod namespaces;
pub mod pool;
pub mod speculation;
pub mod start;
pub mod start_threads;
pub mod symbols;
