//! Telling a caller how far the making of an image is.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

/// What is done at the moment, and how much of it; all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An archive or a layer is read. How long it is, decompressed, is known at its end only.
    Read {
        /// Read so far.
        done: u64,
    },
    /// The image's file system is written.
    Write {
        /// Written so far.
        done: u64,
        /// Its size.
        total: u64,
    },
    /// Programs are looked for system calls, and patched.
    Patch {
        /// Files looked through so far.
        done: u64,
        /// All files.
        total: u64,
    },
}

/// Who is told; by default nobody.
#[derive(Clone, Default)]
pub struct Watcher(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl Watcher {
    /// Tells `who`, often: it must return soon.
    pub fn new(who: impl Fn(Step) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(who)))
    }

    /// Tells nobody.
    #[must_use]
    pub const fn nobody() -> Self {
        Self(None)
    }

    pub(crate) fn tell(&self, step: Step) {
        if let Some(who) = &self.0 {
            who(step);
        }
    }

    /// Tells of what is read from `source`.
    pub(crate) fn watch<R: Read>(&self, source: R) -> impl Read {
        Watched { source, done: 0, watcher: self.clone() }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.is_some()).finish()
    }
}

struct Watched<R> {
    source: R,
    done: u64,
    watcher: Watcher,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buf)?;
        self.done += n as u64;
        self.watcher.tell(Step::Read { done: self.done });
        Ok(n)
    }
}
