//! Tar archives, header by header: ustar with PAX extensions written; ustar, PAX and GNU long names read.
//!
//! Archives are hostile: every number is bounded, extensions are limited to [`EXTENSION_MAX`], names are only handed out
//! as they are, to be taken apart by [`components`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod unpack;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// Archives are made of blocks of this size.
pub const BLOCK: usize = 512;
/// Longest extension header: long names, PAX records.
pub const EXTENSION_MAX: u64 = 1 << 20;
/// The end of an archive.
pub const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, whose bytes follow the header.
    File,
    /// Another name of an entry before it.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes that follow; 0 but for files.
    pub size: u64,
    /// Last change, nanoseconds since 1970.
    pub mtime: i64,
    /// What a link points to.
    pub link: Vec<u8>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// An entry without anything special.
    #[must_use]
    pub fn new(path: Vec<u8>, kind: Kind) -> Self {
        Self {
            path,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: 0,
            link: Vec::new(),
            device: (0, 0),
            xattrs: Vec::new(),
        }
    }
}

/// What is wrong with an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// A header's checksum is wrong: it is no archive, or a damaged one.
    Checksum,
    /// A number cannot be read.
    Number,
    /// An extension header is too long or makes no sense.
    Extension,
    /// An entry of a kind that is not known here.
    Kind(u8),
    /// A name that leads outside, or none.
    Name,
}

impl core::fmt::Display for Bad {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Checksum => f.write_str("this is no tar archive, or a damaged one"),
            Self::Number => f.write_str("a number in the archive cannot be read"),
            Self::Extension => f.write_str("an extension header of the archive is broken or too long"),
            Self::Kind(k) => write!(f, "the archive has an entry of an unknown kind ({:?})", char::from(*k)),
            Self::Name => f.write_str("a name in the archive leads outside"),
        }
    }
}

/// Bytes that fill the last block of a file of `size` bytes.
#[must_use]
pub fn padding(size: u64) -> usize {
    ((BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64) as usize
}

/// The components of a name, the leading slash and "." left out; `Bad` if one is "..", or contains a NUL.
///
/// # Errors
/// [`Bad::Name`].
pub fn components(name: &[u8]) -> Result<Vec<&[u8]>, Bad> {
    let parts: Vec<&[u8]> =
        name.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) || name.contains(&0) { Err(Bad::Name) } else { Ok(parts) }
}

/// Writes `value` as octal digits into a field, with its NUL; false if it does not fit.
fn octal(field: &mut [u8], value: u64) -> bool {
    let digits = field.len() - 1;
    if value >> (3 * digits).min(63) != 0 {
        return false;
    }
    for (i, place) in field[..digits].iter_mut().rev().enumerate() {
        *place = b'0' + (value >> (3 * i) & 7) as u8;
    }
    true
}

/// One header block; fields that do not fit are cut or zero, and told by PAX records.
fn block(entry: &Entry, path: &[u8], kind: u8, size: u64) -> [u8; BLOCK] {
    let mut b = [0; BLOCK];
    let n = path.len().min(100);
    b[..n].copy_from_slice(&path[..n]);
    octal(&mut b[100..108], (entry.mode & 0o7777).into());
    octal(&mut b[108..116], entry.uid.into());
    octal(&mut b[116..124], entry.gid.into());
    octal(&mut b[124..136], size);
    octal(&mut b[136..148], u64::try_from(entry.mtime.div_euclid(1_000_000_000)).unwrap_or(0));
    b[148..156].fill(b' ');
    b[156] = kind;
    let n = entry.link.len().min(100);
    b[157..157 + n].copy_from_slice(&entry.link[..n]);
    b[257..265].copy_from_slice(b"ustar\x0000");
    octal(&mut b[329..337], entry.device.0.into());
    octal(&mut b[337..345], entry.device.1.into());
    let sum: u64 = b.iter().map(|&x| u64::from(x)).sum();
    octal(&mut b[148..155], sum);
    b
}

/// Appends a PAX record: its own length, the key, the value.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // " ", "=", "\n"; the length counts itself.
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while format!("{len}").len() + rest != len {
        len = format!("{len}").len() + rest;
    }
    out.extend(format!("{len} ").into_bytes());
    out.extend(key);
    out.push(b'=');
    out.extend(value);
    out.push(b'\n');
}

/// The headers of an entry; its bytes and their [`padding`] follow.
#[must_use]
pub fn header(entry: &Entry) -> Vec<u8> {
    let mut path = entry.path.clone();
    if entry.kind == Kind::Directory && path.last() != Some(&b'/') {
        path.push(b'/');
    }
    let mut pax = Vec::new();
    if path.len() > 100 {
        record(&mut pax, b"path", &path);
    }
    if entry.link.len() > 100 {
        record(&mut pax, b"linkpath", &entry.link);
    }
    if entry.size >> 33 != 0 {
        record(&mut pax, b"size", format!("{}", entry.size).as_bytes());
    }
    for (key, id) in [(&b"uid"[..], entry.uid), (b"gid", entry.gid)] {
        if id >> 21 != 0 {
            record(&mut pax, key, format!("{id}").as_bytes());
        }
    }
    let (seconds, nanos) = (entry.mtime.div_euclid(1_000_000_000), entry.mtime.rem_euclid(1_000_000_000));
    if nanos != 0 || !(0..1 << 33).contains(&seconds) {
        // The nanoseconds count forward from the seconds, which PAX means otherwise for times before 1970.
        let text = if seconds < 0 { format!("{seconds}") } else { format!("{seconds}.{nanos:09}") };
        record(&mut pax, b"mtime", text.as_bytes());
    }
    for (name, value) in &entry.xattrs {
        let mut key = b"SCHILY.xattr.".to_vec();
        key.extend(name);
        record(&mut pax, &key, value);
    }
    let mut out = Vec::new();
    if !pax.is_empty() {
        out.extend(block(&Entry::new(Vec::new(), Kind::File), b"PaxHeader", b'x', pax.len() as u64));
        let fill = padding(pax.len() as u64);
        out.extend(pax);
        out.resize(out.len() + fill, 0);
    }
    let kind = match entry.kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    };
    out.extend(block(entry, &path, kind, entry.size));
    out
}

/// What follows a header block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another header block.
    Header,
    /// So many bytes and their padding, for [`Reader::extension`], then another header block.
    Extension(u64),
    /// This entry's bytes and their padding, then another header block.
    Entry(Entry),
    /// Nothing: the archive has ended.
    End,
}

/// Reads headers.
#[derive(Debug, Default)]
pub struct Reader {
    /// The kind of the extension that was announced.
    awaited: u8,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    zeros: bool,
}

/// A field up to its NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&b| b == 0).next().unwrap_or_default()
}

/// A number in octal digits, or binary as GNU writes large ones.
fn number(field: &[u8]) -> Result<u64, Bad> {
    if let [0x80, bytes @ ..] = field {
        let more = |value: u64, byte: &u8| (value >> 56 == 0).then(|| value << 8 | u64::from(*byte));
        return bytes.iter().try_fold(0, more).ok_or(Bad::Number);
    }
    let digits = text(field).trim_ascii();
    let mut value = 0u64;
    for d in digits {
        if !(b'0'..=b'7').contains(d) || value >> 60 != 0 {
            return Err(Bad::Number);
        }
        value = value << 3 | u64::from(d - b'0');
    }
    Ok(value)
}

fn small(value: u64) -> Result<u32, Bad> {
    u32::try_from(value).map_err(|_| Bad::Number)
}

fn decimal(value: &[u8]) -> Result<u64, Bad> {
    core::str::from_utf8(value).ok().and_then(|t| t.parse().ok()).ok_or(Bad::Number)
}

/// A PAX time as nanoseconds.
fn time(value: &[u8]) -> Result<i64, Bad> {
    let value = core::str::from_utf8(value).map_err(|_| Bad::Number)?;
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let seconds: i64 = whole.parse().map_err(|_| Bad::Number)?;
    let mut nanos = 0i64;
    for i in 0..9 {
        let digit = part.as_bytes().get(i).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err(Bad::Number);
        }
        nanos = nanos * 10 + i64::from(digit - b'0');
    }
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    seconds.checked_mul(1_000_000_000).and_then(|s| s.checked_add(sign * nanos)).ok_or(Bad::Number)
}

impl Reader {
    /// Takes a header block.
    ///
    /// # Errors
    /// What is wrong with it; nothing behind it can be read then.
    pub fn block(&mut self, b: &[u8; BLOCK]) -> Result<Next, Bad> {
        if b.iter().all(|&x| x == 0) {
            return Ok(if core::mem::replace(&mut self.zeros, true) { Next::End } else { Next::Header });
        }
        self.zeros = false;
        let sum: u64 = b[..148].iter().chain(&b[156..]).map(|&x| u64::from(x)).sum::<u64>() + 8 * 32;
        if number(&b[148..156])? != sum {
            return Err(Bad::Checksum);
        }
        let size = number(&b[124..136])?;
        let kind = match b[156] {
            k @ (b'x' | b'g' | b'L' | b'K') => {
                if size > EXTENSION_MAX {
                    return Err(Bad::Extension);
                }
                self.awaited = k;
                return Ok(Next::Extension(size));
            }
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            k => return Err(Bad::Kind(k)),
        };
        let seconds = i64::try_from(number(&b[136..148])?).map_err(|_| Bad::Number)?;
        let path = self.path.take().unwrap_or_else(|| {
            let prefix = if &b[257..263] == b"ustar\0" { text(&b[345..500]) } else { b"" };
            let mut path = prefix.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(text(&b[..100]));
            path
        });
        let kind = if kind == Kind::File && path.ends_with(b"/") { Kind::Directory } else { kind };
        let said = self.size.take().unwrap_or(size);
        let device = match kind {
            Kind::CharDevice | Kind::BlockDevice => {
                (small(number(&b[329..337])?)?, small(number(&b[337..345])?)?)
            }
            _ => (0, 0),
        };
        let mtime = match self.mtime.take() {
            Some(t) => t,
            None => seconds.checked_mul(1_000_000_000).ok_or(Bad::Number)?,
        };
        Ok(Next::Entry(Entry {
            path,
            kind,
            mode: small(number(&b[100..108])? & 0o7777)?,
            uid: self.uid.take().map_or_else(|| number(&b[108..116]).and_then(small), Ok)?,
            gid: self.gid.take().map_or_else(|| number(&b[116..124]).and_then(small), Ok)?,
            // Others have no bytes, whatever they say.
            size: if kind == Kind::File { said } else { 0 },
            mtime,
            link: self.link.take().unwrap_or_else(|| text(&b[157..257]).to_vec()),
            device,
            xattrs: core::mem::take(&mut self.xattrs),
        }))
    }

    /// Takes the bytes of an extension that was announced.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn extension(&mut self, data: &[u8]) -> Result<(), Bad> {
        match self.awaited {
            b'L' => self.path = Some(text(data).to_vec()),
            b'K' => self.link = Some(text(data).to_vec()),
            b'x' => return self.records(data),
            // Global records say nothing that matters here.
            _ => {}
        }
        Ok(())
    }

    fn records(&mut self, mut data: &[u8]) -> Result<(), Bad> {
        while !data.is_empty() {
            let space = data.iter().take(20).position(|&b| b == b' ').ok_or(Bad::Extension)?;
            let len = decimal(&data[..space]).ok().and_then(|n| usize::try_from(n).ok());
            let len = len.filter(|&n| n > space + 1 && n <= data.len()).ok_or(Bad::Extension)?;
            let line = data[space + 1..len].strip_suffix(b"\n").ok_or(Bad::Extension)?;
            data = &data[len..];
            let equals = line.iter().position(|&b| b == b'=').ok_or(Bad::Extension)?;
            let (key, value) = (&line[..equals], &line[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value)?),
                b"uid" => self.uid = Some(small(decimal(value)?)?),
                b"gid" => self.gid = Some(small(decimal(value)?)?),
                b"mtime" => self.mtime = Some(time(value)?),
                _ => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        self.xattrs.push((name.to_vec(), value.to_vec()));
                    } else if key.starts_with(b"GNU.sparse.") {
                        return Err(Bad::Kind(b'S'));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A buffer for an extension of `size` bytes, which [`Reader::block`] has bounded.
#[must_use]
pub fn extension_buffer(size: u64) -> Vec<u8> {
    vec![0; size.min(EXTENSION_MAX) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Entry, Bad> {
        let mut reader = Reader::default();
        loop {
            let (b, rest) = bytes.split_first_chunk::<BLOCK>().expect("a whole header");
            bytes = rest;
            match reader.block(b)? {
                Next::Header => {}
                Next::Extension(n) => {
                    let n = n as usize;
                    reader.extension(&bytes[..n])?;
                    bytes = &bytes[n + padding(n as u64)..];
                }
                Next::Entry(e) => return Ok(e),
                Next::End => panic!("no entry"),
            }
        }
    }

    #[test]
    fn there_and_back() {
        let plain = Entry {
            mode: 0o4755,
            uid: 7,
            gid: 8,
            size: 12,
            mtime: 1_700_000_000_000_000_000,
            ..Entry::new(b"a/b".to_vec(), Kind::File)
        };
        assert_eq!(header(&plain).len(), BLOCK);
        let long = Entry {
            path: vec![b'x'; 300],
            size: 1 << 40,
            mtime: 1_700_000_000_123_456_789,
            uid: 1 << 30,
            xattrs: vec![(b"user.a".to_vec(), b"b\0\n=c".to_vec())],
            ..plain.clone()
        };
        let link = Entry { link: vec![0xff; 200], ..Entry::new(b"l".to_vec(), Kind::Symlink) };
        let device = Entry { device: (8, 1), ..Entry::new(b"d".to_vec(), Kind::BlockDevice) };
        for e in [plain, long, link, device] {
            assert_eq!(read(&header(&e)), Ok(e));
        }
        let dir = Entry::new(b"dir".to_vec(), Kind::Directory);
        assert_eq!(read(&header(&dir)).map(|e| (e.path, e.kind)), Ok((b"dir/".to_vec(), Kind::Directory)));
    }

    #[test]
    fn record_lengths_count_themselves() {
        for n in [1, 5, 6, 7, 86, 87, 88, 89, 985, 986, 987, 988] {
            let mut out = Vec::new();
            record(&mut out, b"path", &vec![b'a'; n]);
            let space = out.iter().position(|&b| b == b' ').expect("a space");
            assert_eq!(decimal(&out[..space]), Ok(out.len() as u64));
        }
    }

    #[test]
    fn names() {
        assert_eq!(components(b"/a//./b/"), Ok(vec![&b"a"[..], b"b"]));
        assert_eq!(components(b"./"), Ok(vec![]));
        assert_eq!(components(b"a/../b"), Err(Bad::Name));
        assert_eq!(components(b".."), Err(Bad::Name));
        assert_eq!(components(b"..a/b.."), Ok(vec![&b"..a"[..], b"b.."]));
    }

    #[test]
    fn hostile() {
        let entry = Entry::new(b"a".to_vec(), Kind::File);
        let mut b: [u8; BLOCK] = header(&entry).try_into().expect("one block");
        b[0] ^= 1;
        assert_eq!(Reader::default().block(&b), Err(Bad::Checksum));
        let huge = block(&entry, b"x", b'x', EXTENSION_MAX + 1);
        assert_eq!(Reader::default().block(&huge), Err(Bad::Extension));
        let sparse = block(&entry, b"x", b'S', 0);
        assert_eq!(Reader::default().block(&sparse), Err(Bad::Kind(b'S')));
        for bad in [
            &b"5 a=b\n"[..],
            b"99 a=b\n",
            b"x a=b\n",
            b"6 a=b",
            b"7 a=bc",
            b"0 ",
            b"6 ab\n\n",
            b"18446744073709551616 a",
        ] {
            let mut r = Reader { awaited: b'x', ..Reader::default() };
            assert_eq!(r.extension(bad), Err(Bad::Extension), "{bad:?}");
        }
        for bad in [&b"12 size=abc\n"[..], b"15 mtime=1.x00\n", b"18 uid=4294967296\n"] {
            let mut r = Reader { awaited: b'x', ..Reader::default() };
            assert_eq!(r.extension(bad), Err(Bad::Number), "{bad:?}");
        }
    }

    #[test]
    fn binary_numbers_of_all_fields() {
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 1, 2, 3]), Ok(0x1_0203), "eight bytes, as of a user id");
        assert_eq!(number(&[0x80, 1, 2, 3, 4, 5, 6, 7]), Ok(0x1_0203_0405_0607));
        assert_eq!(number(&[0x80, 0, 0, 0, 0xff, 2, 3, 4, 5, 6, 7, 8]), Ok(0xff02_0304_0506_0708));
        assert_eq!(number(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Bad::Number), "more than 64 bits");
        assert_eq!(number(b"0000755\0"), Ok(0o755));
    }
}
