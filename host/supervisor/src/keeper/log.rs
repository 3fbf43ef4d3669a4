//! Log files of a domain's output, and the bounded ring of what came last.
//!
//! `domains/ID/log` has a [`Line`] of JSON for every piece of output; when it has grown to its limit it becomes
//! `log.1`, that one `log.2`, as many as are kept. No file stays open between writes: ten thousand domains are quiet
//! most of the time. A file that cannot be written (the disk is full) does not stop the domain: what is missing in
//! the log is said in it as soon as it can be.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::protocol::{LONGEST, Line, Log, Stream};
use crate::time;

/// Most bytes kept in memory of what came last.
const RING: usize = 16 << 10;
/// Name of the current file.
const FILE: &str = "log";

impl Line {
    /// Bytes as a line of now.
    pub fn new(n: u64, stream: Stream, bytes: &[u8]) -> Self {
        let (log, data) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { n, time: time::now(), stream, log, data }
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match (&self.log, &self.data) {
            (Some(text), _) => text.as_bytes().to_vec(),
            // Only a damaged log has other than base64 here.
            (None, Some(data)) => STANDARD.decode(data).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }

    /// Its bytes in base64.
    pub fn base64(&self) -> String {
        match (&self.log, &self.data) {
            (Some(text), _) => STANDARD.encode(text),
            (None, data) => data.clone().unwrap_or_default(),
        }
    }

    fn size(&self) -> usize {
        self.log.as_ref().or(self.data.as_ref()).map_or(0, String::len)
    }
}

/// Takes a domain's output.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    limits: Log,
    last: u64,
    size: u64,
    /// Bytes that could not be written.
    missing: u64,
    ring: VecDeque<Line>,
    ring_bytes: usize,
    /// Bytes there were in all.
    pub total: u64,
}

impl Journal {
    /// The journal of a domain whose files are in `dir`; goes on where an earlier run of it ended.
    pub fn open(dir: &Path, limits: Log) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let size = fs::metadata(dir.join(FILE)).map_or(0, |m| m.len());
        Ok(Self {
            dir: dir.to_owned(),
            limits,
            last: 0,
            size,
            missing: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            total: 0,
        })
    }

    /// Notes a piece of output.
    pub fn add(&mut self, stream: Stream, bytes: &[u8]) -> &Line {
        // The time numbers the lines: it goes on over runs without anything to remember.
        self.last = time::nanoseconds().max(self.last + 1);
        let line = Line::new(self.last, stream, bytes);
        self.total += bytes.len() as u64;
        if let Err(error) = self.write(&line) {
            if self.missing == 0 {
                tracing::warn!("log in {}: {error}; output is left out of it", self.dir.display());
            }
            self.missing += bytes.len() as u64;
        }
        self.ring_bytes += line.size();
        self.ring.push_back(line);
        while self.ring_bytes > RING && self.ring.len() > 1 {
            self.ring_bytes -= self.ring.pop_front().map_or(0, |l| l.size());
        }
        self.ring.back().expect("just added")
    }

    /// What came last.
    pub fn recent(&self) -> Vec<Line> {
        self.ring.iter().cloned().collect()
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut out = Vec::new();
        if self.missing > 0 {
            let said =
                format!("doppel: {} bytes are missing here: the log could not be written\n", self.missing);
            append(&mut out, &Line::new(line.n - 1, Stream::Log, said.as_bytes()))?;
        }
        append(&mut out, line)?;
        if self.size > 0 && self.size + out.len() as u64 > self.limits.max_bytes {
            self.rotate()?;
        }
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.dir.join(FILE))?;
        if let Err(error) = file.write_all(&out) {
            // Half a line would spoil the next one.
            let _ = file.set_len(self.size);
            return Err(error);
        }
        self.size += out.len() as u64;
        self.missing = 0;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.limits.max_files <= 1 {
            OpenOptions::new().write(true).truncate(true).open(self.dir.join(FILE))?;
        }
        for older in (1..self.limits.max_files).rev() {
            match fs::rename(file(&self.dir, older - 1), file(&self.dir, older)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        self.size = 0;
        Ok(())
    }
}

fn append(out: &mut Vec<u8>, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.push(b'\n');
    Ok(())
}

fn file(dir: &Path, older: u32) -> PathBuf {
    if older == 0 { dir.join(FILE) } else { dir.join(format!("{FILE}.{older}")) }
}

/// Lines of the log in `dir`, oldest first, as far as they satisfy `wanted`; with `tail`, only those that hold the
/// last so many lines of text.
pub(crate) fn read(
    dir: &Path,
    tail: Option<usize>,
    mut wanted: impl FnMut(&Line) -> bool,
    mut give: impl FnMut(Line) -> bool,
) -> io::Result<()> {
    // Opened first, all of them: a rotation meanwhile does not matter then.
    let mut files = Vec::new();
    for older in 0.. {
        match File::open(file(dir, older)) {
            Ok(f) => files.push(f),
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(e),
        }
    }
    let Some(tail) = tail else {
        for file in files.into_iter().rev() {
            for line in lines(file) {
                if wanted(&line) && !give(line) {
                    return Ok(());
                }
            }
        }
        return Ok(());
    };
    // From the newest file back until there is enough.
    let mut kept: VecDeque<(Line, usize)> = VecDeque::new();
    let mut held = 0;
    for file in files {
        let mut part: VecDeque<(Line, usize)> = VecDeque::new();
        let (mut count, most) = (0, tail.saturating_sub(held));
        for line in lines(file).filter(|l| wanted(l)) {
            let n = newlines(&line);
            count += n;
            part.push_back((line, n));
            while part.front().is_some_and(|(_, n)| count - n >= most.max(1) && part.len() > 1) {
                count -= part.pop_front().map_or(0, |(_, n)| n);
            }
        }
        held += count;
        part.append(&mut kept);
        kept = part;
        if held >= tail {
            break;
        }
    }
    if tail == 0 {
        return Ok(());
    }
    // The first piece may begin with more lines than are wanted.
    let mut extra = held.saturating_sub(tail);
    for (mut line, n) in kept {
        if extra > 0 {
            let cut = extra.min(n);
            extra -= cut;
            let Some(rest) = after_newlines(&line.bytes(), cut) else { continue };
            let Line { n, time, stream, .. } = line;
            line = Line { time, ..Line::new(n, stream, &rest) };
        }
        if !give(line) {
            break;
        }
    }
    Ok(())
}

fn newlines(line: &Line) -> usize {
    line.bytes().iter().filter(|b| **b == b'\n').count()
}

/// What follows the first `n` lines; none if nothing does.
fn after_newlines(bytes: &[u8], n: usize) -> Option<Vec<u8>> {
    let at = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(n.checked_sub(1)?)?.0;
    Some(bytes[at + 1..].to_vec()).filter(|rest| !rest.is_empty())
}

fn lines(file: File) -> impl Iterator<Item = Line> {
    let mut reader = BufReader::with_capacity(64 << 10, file);
    std::iter::from_fn(move || {
        loop {
            let mut text = Vec::new();
            let n = reader.by_ref().take(LONGEST as u64).read_until(b'\n', &mut text).ok()?;
            if n == 0 {
                return None;
            }
            if !text.ends_with(b"\n") {
                // It is being written; whoever follows gets it otherwise.
                reader.seek(SeekFrom::End(0)).ok()?;
                return None;
            }
            // A damaged line is left out; what follows may still be good.
            if let Ok(line) = serde_json::from_slice(&text) {
                return Some(line);
            }
        }
    })
}

/// Bytes of all files of a domain.
pub(crate) fn disk_usage(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(dir: &Path, tail: Option<usize>) -> String {
        let mut text = Vec::new();
        read(
            dir,
            tail,
            |_| true,
            |line| {
                text.extend(line.bytes());
                true
            },
        )
        .unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), Log::default()).unwrap();
        journal.add(Stream::Stdout, b"one\ntwo\n");
        journal.add(Stream::Stderr, b"three\n");
        journal.add(Stream::Stdout, &[0xff, b'\n']);
        assert_eq!(journal.recent().len(), 3);
        assert_eq!(journal.recent()[2].bytes(), [0xff, b'\n']);
        journal.add(Stream::Stdout, b"four");
        let mut n = 0;
        read(
            dir.path(),
            None,
            |l| l.stream == Stream::Stdout,
            |_| {
                n += 1;
                true
            },
        )
        .unwrap();
        assert_eq!(n, 3);
    }

    #[test]
    fn tails() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), Log { max_bytes: 300, max_files: 3 }).unwrap();
        assert_eq!(all(dir.path(), Some(5)), "");
        for i in 0..20 {
            journal.add(Stream::Stdout, format!("a{i}\nb{i}\n").as_bytes());
        }
        for (tail, expected) in [
            (1, "b19\n"),
            (2, "a19\nb19\n"),
            (3, "b18\na19\nb19\n"),
            (5, "b17\na18\nb18\na19\nb19\n"),
            (0, ""),
        ] {
            assert_eq!(all(dir.path(), Some(tail)), expected, "{tail}");
        }
        // Older files are gone.
        let text = all(dir.path(), None);
        assert!(text.ends_with("a19\nb19\n") && !text.contains("a0\n"));
        assert_eq!(all(dir.path(), Some(1000)), text);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        for entry in fs::read_dir(dir.path()).unwrap() {
            assert!(entry.unwrap().metadata().unwrap().len() <= 300);
        }
    }
}
