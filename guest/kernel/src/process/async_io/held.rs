//! Files that a request uses.

use alloc::sync::Arc;
use core::ops::Deref;

use crate::objects::vfs::File;

/// An open file that a request uses: it is not released before that, as if it had one more descriptor.
pub struct HeldFile(Arc<File>);

impl HeldFile {
    /// Holds it.
    pub fn new(file: Arc<File>) -> Self {
        file.fd_added();
        Self(file)
    }
}

impl Deref for HeldFile {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        &self.0
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.0.let_go();
    }
}
