//! Mutexes whose contents are whole at any moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it; a thread that panicked with it left it whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is whole at any moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
