//! System calls on pipes, queues, semaphores and shared memory.

pub mod memfd;
pub mod mqueue;
pub mod msg;
pub mod pipe;
pub mod sem;
pub mod shm;
pub mod splice;
