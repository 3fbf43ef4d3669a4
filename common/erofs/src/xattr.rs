//! Extended attributes: the area behind an inode, and the attributes several inodes share.

use doppel_abi_image as abi;

use crate::{Erofs, Error, Inode, Result};

/// Where one attribute is.
struct Attribute<'a> {
    prefix: &'static [u8],
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Erofs<'a> {
    /// Value of the attribute called `name` (with its prefix, as in `user.note`).
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<&'a [u8]>> {
        let mut found = None;
        self.each_xattr(inode, |attribute| {
            let rest = name.strip_prefix(attribute.prefix);
            if rest == Some(attribute.name) {
                found = Some(attribute.value);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Calls `each` with prefix, rest of the name, and value of every attribute, until it says false.
    pub fn xattrs(
        &self,
        inode: &Inode,
        mut each: impl FnMut(&'static [u8], &'a [u8], &'a [u8]) -> bool,
    ) -> Result<()> {
        self.each_xattr(inode, |a| each(a.prefix, a.name, a.value))
    }

    fn each_xattr(&self, inode: &Inode, mut each: impl FnMut(Attribute<'a>) -> bool) -> Result<()> {
        if inode.xattr_size == 0 {
            return Ok(());
        }
        let area = self.bytes(inode.xattr_offset, inode.xattr_size)?;
        let broken = Error::Corrupt("bad extended-attribute area");
        let (head, rest) = area.split_first_chunk().ok_or(broken)?;
        let shared_bytes = usize::from(abi::XattrHeader::decode(head).shared_count) * 4;
        let (shared, mut inline) = rest.split_at_checked(shared_bytes).ok_or(broken)?;
        // Every round takes at least an entry's head, so the area's size bounds the loop. Zero padding may
        // follow the last entry.
        while let Some(raw) = inline.first_chunk().filter(|raw| **raw != [0; 4]) {
            let size = abi::XattrEntry::decode(raw).total_size();
            if !each(attribute(inline.get(..size).ok_or(broken)?)?) {
                return Ok(());
            }
            inline = inline.get(size..).ok_or(broken)?;
        }
        for id in shared.as_chunks::<4>().0 {
            let at = self.xattrs.checked_add(u64::from(u32::from_le_bytes(*id)) * abi::XATTR_ALIGN as u64);
            let at = at.ok_or(broken)?;
            let size = abi::XattrEntry::decode(self.array(at)?).total_size();
            if !each(attribute(self.bytes(at, size as u64)?)?) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Splits an entry's bytes (head, name, value, padding).
fn attribute(bytes: &[u8]) -> Result<Attribute<'_>> {
    let broken = Error::Corrupt("bad extended attribute");
    let (head, rest) = bytes.split_first_chunk().ok_or(broken)?;
    let head = abi::XattrEntry::decode(head);
    let (name, rest) = rest.split_at_checked(usize::from(head.name_len)).ok_or(broken)?;
    let value = rest.get(..usize::from(head.value_size)).ok_or(broken)?;
    let prefix = abi::XATTR_PREFIXES.iter().find(|(index, _)| *index == head.name_index);
    let (_, prefix) = prefix.ok_or(Error::Unsupported("unknown extended-attribute prefix"))?;
    Ok(Attribute { prefix, name, value })
}
