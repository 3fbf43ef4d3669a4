//! The caller's terminal: its size, and raw mode that always ends.

use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock};

use rustix::termios::{OptionalActions, Termios};

/// Size of the terminal behind a descriptor as the machine interface has it: rows << 16 | columns.
pub(crate) fn winsize(fd: impl AsFd) -> Option<u32> {
    let size = rustix::termios::tcgetwinsize(fd).ok()?;
    Some(u32::from(size.ws_row) << 16 | u32::from(size.ws_col))
}

/// The mode to go back to, for the panic hook as well.
static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: OnceLock<()> = OnceLock::new();

/// Standard input in raw mode until dropped.
#[derive(Debug)]
pub(crate) struct RawMode(());

impl RawMode {
    /// Puts the terminal on standard input, if there is one, into raw mode.
    pub fn enter() -> std::io::Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !rustix::termios::isatty(&stdin) {
            return Ok(None);
        }
        let before = rustix::termios::tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *lock() = Some(before);
        HOOK.get_or_init(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                next(info);
            }));
        });
        rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self(())))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    SAVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn restore() {
    if let Some(before) = lock().take() {
        // The terminal may be gone, in which case there is nothing to restore.
        let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}
