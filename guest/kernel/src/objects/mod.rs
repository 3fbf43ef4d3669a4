//! What programs hold by descriptors: files and their systems, pipes, events, sockets.

pub mod block;
pub mod erofs;
pub mod filesystems;
pub mod ipc;
pub mod lookup;
pub mod net;
pub mod pages;
pub mod rootfs;
pub mod storage;
pub mod vfs;
