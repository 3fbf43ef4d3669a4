//! Extended attributes of a [`Node`].

use alloc::vec::Vec;

use super::broken;
use super::layer::unwritten;
use super::node::{Node, Xattrs};
use crate::objects::vfs::flags::SetXattr;
use crate::{Errno, Result};

/// Most bytes of names and values one file may have.
const TOTAL_MAX: usize = 64 << 10;

impl Node {
    /// The attributes as a map of their own, from the image the first time.
    fn xattr_map<R>(&self, f: impl FnOnce(&mut Xattrs) -> Result<R>) -> Result<R> {
        let mut x = self.xattrs.lock();
        if x.is_none() {
            let mut map = Xattrs::default();
            if let Some(i) = &self.lower {
                self.fs
                    .image()?
                    .xattrs(i, |prefix, name, value| {
                        let mut full = prefix.to_vec();
                        full.extend_from_slice(name);
                        map.insert(full, value.to_vec());
                        true
                    })
                    .map_err(broken)?;
            }
            *x = Some(map);
        }
        match x.as_mut() {
            Some(map) => f(map),
            None => Err(Errno::EIO),
        }
    }

    pub(super) fn xattr_get(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr_map(|m| m.get(name).cloned().ok_or(Errno::ENODATA))
    }

    pub(super) fn xattr_set(&self, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.changing()?;
        self.xattr_map(|m| {
            match m.contains_key(name) {
                true if how == SetXattr::Create => return Err(Errno::EEXIST),
                false if how == SetXattr::Replace => return Err(Errno::ENODATA),
                _ => {}
            }
            let used: usize = m.iter().filter(|(k, _)| *k != name).map(|(k, v)| k.len() + v.len()).sum();
            if used + name.len() + value.len() > TOTAL_MAX {
                return Err(Errno::ENOSPC);
            }
            m.insert(name.to_vec(), value.to_vec());
            Ok(())
        })?;
        self.meta.lock().ctime = super::now();
        self.changed(unwritten::FILE | unwritten::XATTRS);
        Ok(())
    }

    pub(super) fn xattr_list(&self) -> Result<Vec<u8>> {
        self.xattr_map(|m| {
            let mut out = Vec::new();
            for name in m.keys() {
                out.extend_from_slice(name);
                out.push(0);
            }
            Ok(out)
        })
    }

    pub(super) fn xattr_remove(&self, name: &[u8]) -> Result<()> {
        self.changing()?;
        self.xattr_map(|m| m.remove(name).map(drop).ok_or(Errno::ENODATA))?;
        self.meta.lock().ctime = super::now();
        self.changed(unwritten::FILE | unwritten::XATTRS);
        Ok(())
    }
}
