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
/// Bytes at the end of a file that a successor looks at: longer than a line, however much of it is escaped.
const TAIL: u64 = 256 << 10;
/// Name of the current file.
const FILE: &str = "log";

impl Line {
    /// Bytes as a line of now.
    pub fn new(n: u64, stream: Stream, bytes: &[u8]) -> Self {
        let (log, data) = match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(bytes))),
        };
        Self { n, time: time::now(), stream, end: None, log, data }
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
        Ok(Self { size, ..Self::unreadable(dir, limits) })
    }

    /// The journal of a domain whose keeper has died: half a line at its end goes, since its bytes are still the domain's.
    /// Also says up to where the last stream it took something of was taken.
    pub fn resume(dir: &Path, limits: Log) -> io::Result<(Self, Option<(Stream, u32)>)> {
        let mut journal = Self::open(dir, limits)?;
        let (whole, mut lines) = last_lines(&file(dir, 0))?;
        if whole < journal.size {
            OpenOptions::new().write(true).open(dir.join(FILE))?.set_len(whole)?;
            journal.size = whole;
        }
        if lines.is_empty() {
            // It may have died just when the files were changed.
            lines = last_lines(&file(dir, 1))?.1;
        }
        let taken = lines.last().and_then(|line| Some((line.stream, line.end?)));
        journal.last = lines.last().map_or(0, |line| line.n);
        for line in lines {
            journal.remember(line);
        }
        Ok((journal, taken))
    }

    /// The same when it cannot be read.
    pub fn unreadable(dir: &Path, limits: Log) -> Self {
        Self {
            dir: dir.to_owned(),
            limits,
            last: 0,
            size: 0,
            missing: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            total: 0,
        }
    }

    /// Notes a piece of output, which ends with the byte `end` of its stream.
    pub fn add(&mut self, stream: Stream, end: u32, bytes: &[u8]) -> &Line {
        // The time numbers the lines: it goes on over runs without anything to remember.
        self.last = time::nanoseconds().max(self.last + 1);
        let line = Line { end: Some(end), ..Line::new(self.last, stream, bytes) };
        self.total += bytes.len() as u64;
        if let Err(error) = self.write(&line) {
            if self.missing == 0 {
                tracing::warn!("log in {}: {error}; output is left out of it", self.dir.display());
            }
            self.missing += bytes.len() as u64;
        }
        self.remember(line);
        self.ring.back().expect("just added")
    }

    fn remember(&mut self, line: Line) {
        self.ring_bytes += line.size();
        self.ring.push_back(line);
        while self.ring_bytes > RING && self.ring.len() > 1 {
            self.ring_bytes -= self.ring.pop_front().map_or(0, |l| l.size());
        }
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

/// How long a file is without half a line at its end, and its last lines.
fn last_lines(path: &Path) -> io::Result<(u64, Vec<Line>)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((0, Vec::new())),
        Err(e) => return Err(e),
    };
    let from = file.metadata()?.len().saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    text.truncate(whole);
    // The first one is only the end of a line, unless the file begins with it.
    let lines = text.split(|b| *b == b'\n').skip(usize::from(from > 0));
    Ok((from + whole as u64, lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()))
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
            let Line { n, time, stream, end, .. } = line;
            line = Line { time, end, ..Line::new(n, stream, &rest) };
        }
        if !give(line) {
            break;
        }
    }
    Ok(())
}

/// The lines after number `last`, oldest first, as many as a follower is kept waiting for.
pub(crate) fn since(dir: &Path, last: u64) -> io::Result<Vec<Line>> {
    let mut found = Vec::new();
    for older in 0.. {
        let file = match File::open(file(dir, older)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(e),
        };
        let all: Vec<Line> = lines(file).collect();
        let complete = all.first().is_some_and(|line| line.n <= last);
        found.splice(0..0, all.into_iter().filter(|line| line.n > last));
        if complete {
            break;
        }
    }
    Ok(found)
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
        journal.add(Stream::Stdout, 8, b"one\ntwo\n");
        journal.add(Stream::Stderr, 6, b"three\n");
        journal.add(Stream::Stdout, 10, &[0xff, b'\n']);
        assert_eq!(journal.recent().len(), 3);
        assert_eq!(journal.recent()[2].bytes(), [0xff, b'\n']);
        journal.add(Stream::Stdout, 14, b"four");
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
        let mut journal = Journal::open(dir.path(), Log { max_bytes: 330, max_files: 3 }).unwrap();
        assert_eq!(all(dir.path(), Some(5)), "");
        for i in 0..20 {
            journal.add(Stream::Stdout, 0, format!("a{i}\nb{i}\n").as_bytes());
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
            assert!(entry.unwrap().metadata().unwrap().len() <= 330);
        }
    }

    #[test]
    fn a_successor_goes_on_with_the_next_byte() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), Log::default()).unwrap();
        journal.add(Stream::Stderr, 4, b"err\n");
        journal.add(Stream::Stdout, 8, b"one two\n");
        let last = journal.recent().last().unwrap().n;
        // Killed in the middle of a write.
        let mut log = OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap();
        log.write_all(b"{\"n\":12345,\"time\":\"x\",\"str").unwrap();
        let (mut next, taken) = Journal::resume(dir.path(), Log::default()).unwrap();
        assert_eq!(taken, Some((Stream::Stdout, 8)));
        assert_eq!(next.recent().len(), 2);
        assert!(next.add(Stream::Stdout, 14, b"three\n").n > last);
        assert_eq!(all(dir.path(), None), "err\none two\nthree\n");
        // Killed between the renaming of the file and the first line of the new one.
        fs::rename(dir.path().join(FILE), dir.path().join("log.1")).unwrap();
        let (_, taken) = Journal::resume(dir.path(), Log::default()).unwrap();
        assert_eq!(taken, Some((Stream::Stdout, 14)));
        let none = tempfile::tempdir().unwrap();
        assert_eq!(Journal::resume(none.path(), Log::default()).unwrap().1, None);
    }
}
