//! Asynchronous input and output: what a program has begun and does not wait for (`io_submit(2)`).
//!
//! Key types: [`context::Context`] (an instance of kernel AIO), [`armed::Armed`] (a wait for a file to become ready),
//! [`workers::Workers`] (threads of the kernel in a process, which do what may not be done under the lock of a wait queue,
//! or would have its caller wait).
//!
//! Lock order: a wait queue → `Workers::ready`. All else is done by workers, who hold no lock when they begin.

pub mod armed;
pub mod context;
pub mod held;
pub mod result;
pub mod ring;
pub mod shared;
pub mod transfer;
pub mod uring;
pub mod workers;

/// What a process has of this goes: with its memory at exec, and at its end.
pub fn process_leaves(pid: i32) {
    context::CONTEXTS.clear(pid);
    workers::WORKERS.forget(pid);
}
