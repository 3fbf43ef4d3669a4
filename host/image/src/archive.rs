//! Reads a tar archive (ustar, GNU and PAX) into a [`Tree`].
//!
//! The archive is hostile: nothing is extracted, file data goes to an unnamed spool file, and every size is
//! bounded before it is believed. The `tar` crate decodes single headers; the loop is ours because it must
//! bound the extension headers, which may claim any size.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};

use doppel_abi_image as abi;
use flate2::bufread::MultiGzDecoder;
use tar::{EntryType, Header};

use crate::pax::Pax;
use crate::tree::{Content, Data, Limits, Meta, Tree};
use crate::{Error, Result};

const RECORD: usize = 512;
/// Most bytes of the long names and PAX headers of one entry.
const EXTENSION_MAX: u64 = 1 << 20;

/// Reads the archive `source` (plain or gzip, told by its first bytes). File data is appended to `spool`.
pub fn from_tar(source: impl Read, spool: &File, limits: Limits) -> Result<Tree> {
    let mut source = BufReader::with_capacity(1 << 18, source);
    let mut magic = Vec::new();
    source.by_ref().take(6).read_to_end(&mut magic).map_err(broken)?;
    let source = io::Cursor::new(magic.clone()).chain(source);
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => {
            let plain = MultiGzDecoder::new(BufReader::with_capacity(1 << 18, source));
            Reader {
                source: BufReader::with_capacity(1 << 18, plain),
                spool,
                spooled: 0,
                extensions: 0,
                tree: Tree::new(limits),
            }
            .run()
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(compressed("zstd")),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(compressed("xz")),
        [b'B', b'Z', b'h', ..] => Err(compressed("bzip2")),
        _ => Reader { source, spool, spooled: 0, extensions: 0, tree: Tree::new(limits) }.run(),
    }
}

fn compressed(with: &str) -> Error {
    Error::source(b"", format!("compressed with {with}; decompress it first (plain tar and gzip are read)"))
}

fn broken(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::source(b"", "ends in the middle (truncated?)"),
        _ => Error::source(b"", format!("cannot be read: {e}")),
    }
}

struct Reader<'a, R> {
    source: R,
    spool: &'a File,
    spooled: u64,
    /// Bytes of extension headers since the last entry.
    extensions: u64,
    tree: Tree,
}

impl<R: Read> Reader<'_, R> {
    fn run(mut self) -> Result<Tree> {
        let (mut global, mut next) = (Pax::default(), None::<Pax>);
        let (mut long_name, mut long_link) = (None, None);
        let mut entries = 0u64;
        while let Some(header) = self.header()? {
            let size = header.entry_size().map_err(|e| Error::source(b"", format!("bad size: {e}")))?;
            match header.entry_type() {
                EntryType::GNULongName => long_name = Some(self.extension_name(size)?),
                EntryType::GNULongLink => long_link = Some(self.extension_name(size)?),
                EntryType::XHeader => {
                    let data = self.extension(size)?;
                    next.get_or_insert_with(|| global.clone()).add(&data)?;
                }
                EntryType::XGlobalHeader => {
                    let data = self.extension(size)?;
                    global.add(&data)?;
                }
                kind => {
                    let mut pax = next.take().unwrap_or_else(|| global.clone());
                    let path = pax.path.take().or(long_name.take());
                    let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
                    let link = pax.link.take().or(long_link.take());
                    let link = link.or_else(|| header.link_name_bytes().map(|l| l.into_owned()));
                    (long_name, long_link) = (None, None);
                    self.entry(&header, kind, &path, link, pax, size)?;
                    entries += 1;
                    self.extensions = 0;
                    // Repeated names make no nodes, so count entries too: the work must stay bounded.
                    if entries > self.tree.limits().nodes.saturating_mul(2) {
                        return Err(Error::source(b"", "holds too many entries for its number of files"));
                    }
                }
            }
        }
        if entries == 0 {
            return Err(Error::source(b"", "holds no files"));
        }
        Ok(self.tree)
    }

    /// The next header; `None` at the end marker.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut block = [0; RECORD];
        match self.source.read_exact(&mut block) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Error::source(b"", "is not a tar archive, or is truncated (no end marker)"));
            }
            Err(e) => return Err(broken(e)),
        }
        if block == [0; RECORD] {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block);
        let checksum = block
            .iter()
            .enumerate()
            .fold(0u32, |sum, (i, byte)| sum + u32::from(if (148..156).contains(&i) { b' ' } else { *byte }));
        if header.cksum().ok() != Some(checksum) {
            return Err(Error::source(
                b"",
                "is not a tar archive, or is damaged (a header's checksum is wrong)",
            ));
        }
        Ok(Some(header.clone()))
    }

    /// The data of an extension header, bounded.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>> {
        self.extensions = self.extensions.saturating_add(size.max(1));
        if self.extensions > EXTENSION_MAX {
            return Err(Error::source(b"", "has headers of more than 1 MiB for one entry"));
        }
        let mut data = Vec::new();
        self.source.by_ref().take(size).read_to_end(&mut data).map_err(broken)?;
        if (data.len() as u64) < size {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        self.skip_padding(size)?;
        Ok(data)
    }

    /// A long name: NUL-terminated.
    fn extension_name(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut name = self.extension(size)?;
        name.truncate(name.iter().position(|b| *b == 0).unwrap_or(name.len()));
        Ok(name)
    }

    fn skip_padding(&mut self, size: u64) -> Result<()> {
        let padding = (size.next_multiple_of(RECORD as u64) - size) as usize;
        self.source.read_exact(&mut [0; RECORD][..padding]).map_err(broken)
    }

    fn entry(
        &mut self,
        header: &Header,
        kind: EntryType,
        path: &[u8],
        link: Option<Vec<u8>>,
        pax: Pax,
        header_size: u64,
    ) -> Result<()> {
        let bad = |what: &str| Error::source(path, format!("bad {what} in its header"));
        if pax.sparse || kind == EntryType::GNUSparse {
            return Err(Error::source(path, "is stored sparse; make the archive without --sparse"));
        }
        let size = pax.size.unwrap_or(header_size);
        let seconds = || header.mtime().ok().and_then(|t| i64::try_from(t).ok());
        let mtime = pax.mtime.or_else(|| Some((seconds()?, 0))).ok_or_else(|| bad("time"))?;
        let owner = |pax: Option<u64>, header: io::Result<u64>, what| {
            pax.or(header.ok()).and_then(|id| u32::try_from(id).ok()).ok_or_else(|| bad(what))
        };
        let meta = Meta {
            mode: (header.mode().map_err(|_| bad("mode"))? & 0o7777) as u16,
            uid: owner(pax.uid, header.uid(), "owner")?,
            gid: owner(pax.gid, header.gid(), "group")?,
            mtime_sec: mtime.0,
            mtime_nsec: mtime.1,
            xattrs: pax.xattrs,
        };
        let link = || link.ok_or_else(|| Error::source(path, "link without a target"));
        let device = || {
            let number = |n: io::Result<Option<u32>>| n.ok().flatten();
            let numbers = number(header.device_major()).zip(number(header.device_minor()));
            numbers
                .and_then(|(major, minor)| abi::encode_rdev(major, minor))
                .ok_or_else(|| bad("device number"))
        };
        // Old archives mark a directory by a slash at the end of the name.
        let kind = if kind.is_file() && path.ends_with(b"/") { EntryType::Directory } else { kind };
        let content = match kind {
            EntryType::Regular | EntryType::Continuous => {
                let offset = self.spool_data(path, size)?;
                Content::File(Data::Spool { offset, len: size })
            }
            EntryType::Link => return self.tree.link(path, &link()?),
            EntryType::Symlink => Content::Symlink(link()?),
            EntryType::Directory => Content::dir(),
            EntryType::Char => Content::Char(device()?),
            EntryType::Block => Content::Block(device()?),
            EntryType::Fifo => Content::Fifo,
            other => {
                let why = format!("entry of unknown type {:?}", char::from(other.as_byte()));
                return Err(Error::source(path, why));
            }
        };
        self.tree.insert(path, meta, content).map(|_| ())
    }

    /// Appends the entry's data to the spool file; returns where it starts.
    fn spool_data(&mut self, path: &[u8], size: u64) -> Result<u64> {
        let offset = self.spooled;
        let total = offset.checked_add(size).filter(|t| *t <= self.tree.limits().bytes);
        self.spooled = total.ok_or_else(|| self.tree.limits().too_many_bytes())?;
        let mut left = size;
        let mut buf = vec![0; 1 << 16];
        while left > 0 {
            let want = usize::try_from(left).map_or(buf.len(), |l| l.min(buf.len()));
            let got = match self.source.read(&mut buf[..want]) {
                Ok(0) => return Err(Error::source(path, "ends in the middle (truncated archive?)")),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::source(path, format!("cannot be read: {e}"))),
            };
            self.spool
                .write_all(&buf[..got])
                .map_err(|e| Error::Io { what: "write the spool file".into(), source: e })?;
            left -= got as u64;
        }
        self.skip_padding(size)?;
        Ok(offset)
    }
}

#[cfg(test)]
mod tests;
