//! Reads a tar archive (ustar, GNU and PAX) into a [`Tree`], as a whole root or as a layer over what is there.
//!
//! The archive is hostile: nothing is extracted, file data goes to an unnamed spool file, and every size is
//! bounded before it is believed. The `tar` crate decodes single headers; the loop is ours because it must
//! bound the extension headers, which may claim any size.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};

use doppel_abi_image as abi;
use tar::{EntryType, Header};

use crate::input::compressed::plain;
use crate::input::pax::Pax;
use crate::tree::{Content, Data, Layer, Limits, Meta, Tree};
use crate::{Error, Result};

const RECORD: usize = 512;
/// Most bytes of the long names and PAX headers of one entry.
const EXTENSION_MAX: u64 = 1 << 20;

/// Where the entries of an archive go.
trait Target {
    /// Whether the archive is a layer: it may be empty, and may end without a marker (its digest says that it is whole).
    const LAYER: bool;
    fn limits(&self) -> Limits;
    fn put(&mut self, path: &[u8], meta: Meta, content: Content) -> Result<()>;
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()>;
}

impl Target for Tree {
    const LAYER: bool = false;
    fn limits(&self) -> Limits {
        Self::limits(self)
    }
    fn put(&mut self, path: &[u8], meta: Meta, content: Content) -> Result<()> {
        self.insert(path, meta, content).map(|_| ())
    }
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        Self::link(self, path, target)
    }
}

impl Target for Layer<'_> {
    const LAYER: bool = true;
    fn limits(&self) -> Limits {
        Self::limits(self)
    }
    fn put(&mut self, path: &[u8], meta: Meta, content: Content) -> Result<()> {
        Self::put(self, path, meta, content)
    }
    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        Self::link(self, path, target)
    }
}

/// Reads the archive `source` (plain, gzip or zstd, told by its first bytes). File data is appended to `spool`.
pub fn from_tar(source: impl Read, spool: &File, limits: Limits) -> Result<Tree> {
    let source = BufReader::with_capacity(1 << 18, plain(source).map_err(broken)?);
    let mut tree = Tree::new(limits);
    Reader { source, spool, spooled: &mut 0, extensions: 0, tree: &mut tree }.run()?;
    Ok(tree)
}

/// Applies the layer `source`, which must not be compressed any more, over `tree`. File data is appended to `spool`,
/// which has `spooled` bytes.
pub(crate) fn apply_layer(source: impl Read, spool: &File, spooled: &mut u64, tree: &mut Tree) -> Result<()> {
    let source = BufReader::with_capacity(1 << 18, source);
    Reader { source, spool, spooled, extensions: 0, tree: &mut Layer::new(tree) }.run()
}

fn broken(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::source(b"", "ends in the middle (truncated?)"),
        _ => Error::source(b"", format!("cannot be read: {e}")),
    }
}

struct Reader<'a, R, T> {
    source: R,
    spool: &'a File,
    spooled: &'a mut u64,
    /// Bytes of extension headers since the last entry.
    extensions: u64,
    tree: &'a mut T,
}

impl<R: Read, T: Target> Reader<'_, R, T> {
    fn run(mut self) -> Result<()> {
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
        if entries == 0 && !T::LAYER {
            return Err(Error::source(b"", "holds no files"));
        }
        Ok(())
    }

    /// The next header; `None` at the end marker.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut block = [0; RECORD];
        let mut first = 0;
        while T::LAYER && first == 0 {
            first = match self.source.read(&mut block[..1]) {
                Ok(0) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                other => other.map_err(broken)?,
            };
        }
        match self.source.read_exact(&mut block[first..]) {
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

    /// Skips what fills the last block of data; umoci leaves it out at the end of a layer.
    fn skip_padding(&mut self, size: u64) -> Result<()> {
        let padding = (size.next_multiple_of(RECORD as u64) - size) as usize;
        match self.source.read_exact(&mut [0; RECORD][..padding]) {
            Err(e) if T::LAYER && e.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other.map_err(broken),
        }
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
        self.tree.put(path, meta, content)
    }

    /// Appends the entry's data to the spool file; returns where it starts.
    fn spool_data(&mut self, path: &[u8], size: u64) -> Result<u64> {
        let offset = *self.spooled;
        let total = offset.checked_add(size).filter(|t| *t <= self.tree.limits().bytes);
        *self.spooled = total.ok_or_else(|| self.tree.limits().too_many_bytes())?;
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
