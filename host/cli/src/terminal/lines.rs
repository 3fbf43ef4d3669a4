//! What one of several domains prints: line by line behind its name, as it comes.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use doppel_domain::{Sink, Stream};

use crate::terminal::out;

/// A line that is longer is printed in pieces of this size, each as a line.
const LONGEST: usize = 64 << 10;

/// The lines of a domain.
#[derive(Clone, Debug)]
pub struct Lines(Arc<Mutex<Begun>>);

#[derive(Debug)]
struct Begun {
    name: String,
    /// What there is of the next line of standard output, and of standard error.
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Lines {
    /// Of a domain of this name.
    pub fn new(name: String) -> Self {
        Self(Arc::new(Mutex::new(Begun { name, out: Vec::new(), err: Vec::new() })))
    }

    /// Prints the lines that end in `bytes`; the last one waits for its end.
    pub fn print(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = begun.complete(stream, bytes);
        put(stream, &lines)
    }

    /// Prints what has no end.
    pub fn end(&self) -> io::Result<()> {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in [Stream::Stdout, Stream::Stderr] {
            let lines = begun.rest(stream);
            put(stream, &lines)?;
        }
        Ok(())
    }
}

impl Sink for Lines {
    /// A reader that is slow holds up all of the command's domains, as far as they print.
    fn put(&mut self, stream: Stream, _: u32, bytes: &[u8]) -> io::Result<usize> {
        self.print(stream, bytes).map(|()| bytes.len())
    }
}

impl Begun {
    fn of(&mut self, stream: Stream) -> (&str, &mut Vec<u8>) {
        (&self.name, if stream == Stream::Stdout { &mut self.out } else { &mut self.err })
    }

    fn complete(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        let (name, begun) = self.of(stream);
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                push(&mut lines, name, begun);
            }
            while begun.len() > LONGEST {
                let mut first = begun.drain(..LONGEST).collect();
                push(&mut lines, name, &mut first);
            }
        }
        lines
    }

    fn rest(&mut self, stream: Stream) -> Vec<u8> {
        let mut lines = Vec::new();
        let (name, begun) = self.of(stream);
        if !begun.is_empty() {
            push(&mut lines, name, begun);
        }
        lines
    }
}

/// Moves a line, with its end or without, behind others; a terminal's end of line becomes a plain one.
fn push(lines: &mut Vec<u8>, name: &str, line: &mut Vec<u8>) {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(text);
    lines.push(b'\n');
    line.clear();
}

fn put(stream: Stream, lines: &[u8]) -> io::Result<()> {
    if stream != Stream::Stdout {
        return out::stderr().write_all(lines);
    }
    let mut to = out::stdout();
    to.write_all(lines)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Begun {
        Begun { name: "d1".into(), out: Vec::new(), err: Vec::new() }
    }

    #[test]
    fn a_line_is_printed_when_it_ends() {
        let mut begun = begun();
        assert_eq!(begun.complete(Stream::Stdout, b"one\ntw"), b"d1: one\n");
        assert_eq!(begun.complete(Stream::Stderr, b"else"), b"");
        assert_eq!(begun.complete(Stream::Log, b"where\r\n\n"), b"d1: elsewhere\nd1: \n");
        assert_eq!(begun.complete(Stream::Stdout, b"o"), b"");
        assert_eq!((begun.rest(Stream::Stdout), begun.rest(Stream::Stderr)), (b"d1: two\n".to_vec(), vec![]));
        assert_eq!(begun.rest(Stream::Stdout), b"");
    }

    #[test]
    fn a_line_without_end_is_printed_in_pieces() {
        let mut begun = begun();
        let long = vec![b'x'; 3 * LONGEST - 1];
        let lines = begun.complete(Stream::Stdout, &long);
        assert_eq!(lines.iter().filter(|b| **b == b'\n').count(), 2);
        assert_eq!(begun.out.len(), LONGEST - 1);
        assert_eq!(begun.complete(Stream::Stdout, b"\n").len(), "d1: ".len() + LONGEST);
    }
}
