//! Records: what a transaction says.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{Error, NAME};

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Attributes of a file; times in nanoseconds since 1970.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// With the type, as `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
}

/// One change. Files are named by inode numbers; those of the image's files are the image's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Record<'a> {
    /// Attributes of a file, which there may not have been before.
    Inode { ino: u64, attributes: Attributes },
    /// Where a symbolic link leads.
    Target { ino: u64, target: &'a [u8] },
    /// All extended attributes of a file, in place of what it had.
    Xattrs { ino: u64, xattrs: Xattrs },
    /// A regular file's size. From now on its bytes are this layer's, not the image's; pages behind the end are gone.
    Size { ino: u64, size: u64 },
    /// Pages of a file are in these blocks of the layer.
    Data { ino: u64, page: u64, pages: u64, block: u64 },
    /// Pages of a file are zeros.
    Hole { ino: u64, page: u64, pages: u64 },
    /// A file has no name any more.
    Gone { ino: u64 },
    /// A name in a directory, whatever stood there before; `cookie` tells its place in listings.
    Entry { dir: u64, name: &'a [u8], ino: u64, cookie: u64 },
    /// The image's file of this name is hidden.
    Whiteout { dir: u64, name: &'a [u8] },
    /// The layer says nothing of this name any more.
    Absent { dir: u64, name: &'a [u8] },
    /// Numbers from this one on were never given to a file.
    Next { ino: u64 },
}

/// Longest text of a record: a link's target, or an attribute's value.
const TEXT: usize = 64 << 10;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Error::Corrupt("a record is cut off"))?;
        self.0 = rest;
        Ok(head)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        let mut word = [0; 8];
        word.copy_from_slice(self.bytes(8)?);
        Ok(u64::from_le_bytes(word))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        let mut word = [0; 4];
        word.copy_from_slice(self.bytes(4)?);
        Ok(u32::from_le_bytes(word))
    }

    fn text(&mut self, most: usize) -> Result<&'a [u8], Error> {
        let len = self.u32()? as usize;
        if len > most {
            return Err(Error::Corrupt("a text is too long"));
        }
        self.bytes(len)
    }

    fn name(&mut self) -> Result<&'a [u8], Error> {
        let name = self.text(NAME)?;
        let none =
            name.is_empty() || name == b"." || name == b".." || name.iter().any(|b| matches!(b, 0 | b'/'));
        if none { Err(Error::Corrupt("a name is none")) } else { Ok(name) }
    }

    fn attributes(&mut self) -> Result<Attributes, Error> {
        let [mode, uid, gid, nlink] = [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let rdev = self.u64()?;
        let mut time = || self.u64().map(u64::cast_signed);
        let [atime, mtime, ctime, btime] = [time()?, time()?, time()?, time()?];
        Ok(Attributes { mode, uid, gid, nlink, rdev, atime, mtime, ctime, btime })
    }

    fn xattrs(&mut self) -> Result<Xattrs, Error> {
        let mut xattrs = Xattrs::new();
        for _ in 0..self.u32()? {
            let name = self.text(NAME)?;
            xattrs.insert(name.to_vec(), self.text(TEXT)?.to_vec());
        }
        Ok(xattrs)
    }
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn words(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

impl<'a> Record<'a> {
    /// Bytes of a [`Record::Data`].
    pub const DATA_BYTES: usize = 33;

    /// Adds it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inode { ino, attributes: a } => {
                out.push(1);
                words(out, &[*ino]);
                for word in [a.mode, a.uid, a.gid, a.nlink] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                words(out, &[a.rdev]);
                words(out, &[a.atime, a.mtime, a.ctime, a.btime].map(i64::cast_unsigned));
            }
            Self::Target { ino, target } => {
                out.push(2);
                words(out, &[*ino]);
                text(out, target);
            }
            Self::Xattrs { ino, xattrs } => {
                out.push(3);
                words(out, &[*ino]);
                out.extend_from_slice(&(xattrs.len() as u32).to_le_bytes());
                for (name, value) in xattrs {
                    text(out, name);
                    text(out, value);
                }
            }
            Self::Size { ino, size } => {
                out.push(4);
                words(out, &[*ino, *size]);
            }
            Self::Data { ino, page, pages, block } => {
                out.push(5);
                words(out, &[*ino, *page, *pages, *block]);
            }
            Self::Hole { ino, page, pages } => {
                out.push(6);
                words(out, &[*ino, *page, *pages]);
            }
            Self::Gone { ino } => {
                out.push(7);
                words(out, &[*ino]);
            }
            Self::Entry { dir, name, ino, cookie } => {
                out.push(8);
                words(out, &[*dir, *ino, *cookie]);
                text(out, name);
            }
            Self::Whiteout { dir, name } => {
                out.push(9);
                words(out, &[*dir]);
                text(out, name);
            }
            Self::Absent { dir, name } => {
                out.push(10);
                words(out, &[*dir]);
                text(out, name);
            }
            Self::Next { ino } => {
                out.push(11);
                words(out, &[*ino]);
            }
        }
    }

    /// The first record of these bytes, and those behind it.
    ///
    /// # Errors
    /// There is none.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let (tag, rest) = bytes.split_first().ok_or(Error::Corrupt("a record is cut off"))?;
        let mut r = Reader(rest);
        let record = match tag {
            1 => Self::Inode { ino: r.u64()?, attributes: r.attributes()? },
            2 => Self::Target { ino: r.u64()?, target: r.text(TEXT)? },
            3 => Self::Xattrs { ino: r.u64()?, xattrs: r.xattrs()? },
            4 => Self::Size { ino: r.u64()?, size: r.u64()? },
            5 => Self::Data { ino: r.u64()?, page: r.u64()?, pages: r.u64()?, block: r.u64()? },
            6 => Self::Hole { ino: r.u64()?, page: r.u64()?, pages: r.u64()? },
            7 => Self::Gone { ino: r.u64()? },
            8 => {
                let [dir, ino, cookie] = [r.u64()?, r.u64()?, r.u64()?];
                Self::Entry { dir, name: r.name()?, ino, cookie }
            }
            9 => Self::Whiteout { dir: r.u64()?, name: r.name()? },
            10 => Self::Absent { dir: r.u64()?, name: r.name()? },
            11 => Self::Next { ino: r.u64()? },
            _ => return Err(Error::Corrupt("a record of no known kind")),
        };
        Ok((record, r.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn records_are_what_they_were() {
        let attributes =
            Attributes { mode: 0o100_644, uid: 1, gid: 2, nlink: 3, mtime: -1, ..Attributes::default() };
        let xattrs = Xattrs::from([(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![])]);
        let all = [
            Record::Inode { ino: 1, attributes },
            Record::Target { ino: 1, target: b"/x" },
            Record::Xattrs { ino: 1, xattrs },
            Record::Size { ino: 1, size: 2 },
            Record::Data { ino: 1, page: 2, pages: 3, block: 4 },
            Record::Hole { ino: 1, page: 2, pages: 3 },
            Record::Gone { ino: 1 },
            Record::Entry { dir: 1, name: b"n", ino: 2, cookie: 3 },
            Record::Whiteout { dir: 1, name: b"n" },
            Record::Absent { dir: 1, name: b"n" },
            Record::Next { ino: 1 },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|r| r.encode(&mut bytes));
        let mut rest = &bytes[..];
        for record in &all {
            let (read, behind) = Record::decode(rest).unwrap();
            assert_eq!(&read, record);
            for cut in 0..rest.len() - behind.len() {
                assert!(Record::decode(&rest[..cut]).is_err());
            }
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'a'; 256]] {
            let mut bytes = Vec::new();
            Record::Entry { dir: 1, name, ino: 2, cookie: 3 }.encode(&mut bytes);
            assert!(Record::decode(&bytes).is_err(), "{name:?}");
        }
        assert!(Record::decode(&[12, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
