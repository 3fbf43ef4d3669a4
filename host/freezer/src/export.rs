//! Files as a stream of their extents, holes left out: what `frozen export` writes.
//!
//! A file is its length, then for each extent its place, its length and its bytes, then two words of ones.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};
use crate::open::data;

/// Longest extent.
const PIECE: usize = 1 << 20;

/// Writes the first `len` bytes of a file.
pub(crate) fn write_file(file: &File, len: u64, out: &mut dyn Write) -> Result<()> {
    let what = "export a frozen image";
    let failed = || Error::host(what);
    out.write_all(&len.to_le_bytes()).map_err(failed())?;
    let mut at = 0;
    let mut buf = vec![0; PIECE];
    while let Some(data) = data(file, at, len).map_err(Error::os(what))? {
        let start = data.start;
        let end = data.end.min(start + buf.len() as u64);
        let piece = &mut buf[..(end - start) as usize];
        file.read_exact_at(piece, start).map_err(failed())?;
        for word in [start, piece.len() as u64] {
            out.write_all(&word.to_le_bytes()).map_err(failed())?;
        }
        out.write_all(piece).map_err(failed())?;
        at = end;
    }
    out.write_all(&[0xff; 16]).map_err(failed())
}

/// Reads what [`write_file`] has written into an empty file.
///
/// # Errors
/// It makes no sense, as `bad` says it, or what the host says.
pub(crate) fn read_file(from: &mut dyn Read, file: &File, bad: &dyn Fn(&str) -> Error) -> Result<()> {
    let failed = || Error::host("import a frozen image");
    let cut = |_| bad("the export is cut short");
    let mut word = [0u8; 8];
    let mut next = |from: &mut dyn Read| -> Result<u64> {
        from.read_exact(&mut word).map_err(cut)?;
        Ok(u64::from_le_bytes(word))
    };
    let len = next(from)?;
    file.set_len(len).map_err(failed())?;
    let mut buf = vec![0; PIECE];
    loop {
        let (at, n) = (next(from)?, next(from)?);
        if at == u64::MAX && n == u64::MAX {
            return Ok(());
        }
        let inside = at.checked_add(n).is_some_and(|e| e <= len);
        let (true, Some(piece)) = (inside, buf.get_mut(..usize::try_from(n).unwrap_or(usize::MAX))) else {
            return Err(bad("an extent makes no sense"));
        };
        from.read_exact(piece).map_err(cut)?;
        file.write_all_at(piece, at).map_err(failed())?;
    }
}
