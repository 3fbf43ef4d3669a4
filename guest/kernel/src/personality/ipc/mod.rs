//! System calls on pipes, queues, semaphores and shared memory.

use core::marker::PhantomData;

use crate::personality::args::{Arg, FromArg};
use crate::{Errno, Result};

pub mod memfd;
pub mod mqueue;
pub mod msg;
pub mod pipe;
pub mod sem;
pub mod shm;
pub mod splice;

/// A command of semctl, msgctl or shmctl, not checked yet.
#[derive(Clone, Copy)]
pub(crate) struct Control<T> {
    number: u32,
    of: PhantomData<T>,
}

impl<T: TryFrom<u32, Error = Errno>> Control<T> {
    /// What it stands for; EINVAL if it is none of them. glibc sets IPC_64 for the layout of the structures, of which
    /// there is one on x86-64.
    fn get(self) -> Result<T> {
        const IPC_64: u32 = 0x100;
        T::try_from(self.number & !IPC_64)
    }
}

impl<T> FromArg for Control<T> {
    const KIND: Arg = Arg::Int;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self { number: raw as u32, of: PhantomData }
    }
}
