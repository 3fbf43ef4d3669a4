//! PAX extended headers: records of `length key=value\n`, which override fields of the next entry.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// What the records say. Fields that are `None` were not given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pax {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<(i64, u32)>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The file is stored sparse, which is not supported.
    pub(crate) sparse: bool,
}

impl Pax {
    /// Adds the records of one header.
    pub(crate) fn add(&mut self, mut data: &[u8]) -> Result<()> {
        let broken = || Error::source(b"", "broken PAX header");
        while !data.is_empty() {
            let space = data.iter().position(|b| *b == b' ').ok_or_else(broken)?;
            let len = usize::try_from(number(&data[..space]).ok_or_else(broken)?).map_err(|_| broken())?;
            let record = data.get(space + 1..len).and_then(|r| r.strip_suffix(b"\n")).ok_or_else(broken)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(broken)?;
            self.record(&record[..equals], &record[equals + 1..]).ok_or_else(broken)?;
            data = &data[len..];
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.insert(name.to_vec(), value.to_vec());
                }
                self.sparse |= key.starts_with(b"GNU.sparse.");
            }
        }
        Some(())
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds and nanoseconds of a decimal time; digits beyond nanoseconds are cut off.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let mut parts = text.splitn(2, |b| *b == b'.');
    let seconds = i64::try_from(number(parts.next()?)?).ok()?;
    let mut nanos = 0;
    if let Some(fraction) = parts.next() {
        if !fraction.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let digit = |i| fraction.get(i).map_or(0, |b: &u8| u32::from(b - b'0'));
        nanos = (0..9).fold(0, |sum, i| sum * 10 + digit(i));
    }
    Some(match (negative, nanos) {
        (false, _) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanos),
    })
}

#[cfg(test)]
pub(crate) mod tests;
