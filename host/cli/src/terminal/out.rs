//! What this command prints: the only way to standard output and standard error, which the lints hold.
//!
//! A reader that has seen enough is no failure: [`ReaderGone`] travels up as an error like any other, so that terminals
//! are restored and files closed, and `main` ends the process by SIGPIPE, as a shell expects. SIGPIPE itself stays
//! ignored: it must not end the keeper of a domain whose client hung up.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Nobody reads our standard output any more.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output")
    }
}

impl Error for ReaderGone {}

fn told(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => io::Error::new(error.kind(), format!("cannot write to standard output: {error}")),
    }
}

/// Whether an error is, or comes from, that nobody reads our output.
pub fn is_reader_gone(error: &(dyn Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<ReaderGone>() || inner.is_some_and(|inner| is_reader_gone(inner)) {
            return true;
        }
        at = error.source();
    }
    false
}

/// Standard output.
pub struct Out(StdoutLock<'static>);

/// Standard output, locked.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn stdout() -> Out {
    Out(io::stdout().lock())
}

impl Out {
    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(told)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(told)
    }
}

impl AsFd for Out {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Standard error, locked.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn stderr() -> StderrLock<'static> {
    io::stderr().lock()
}

/// Prints on standard output.
pub fn print(text: fmt::Arguments<'_>) -> io::Result<()> {
    stdout().write_fmt(text)
}

/// Exit code of an error of the tool itself, as opposed to those of the program it runs.
pub const TOOL_ERROR: u8 = 125;

/// Whether whoever is at the terminal wants it; without one nobody is asked.
pub fn confirmed(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(true);
    }
    print(format_args!("{question} Go on? [y/N] "))?;
    stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Says something on standard error, in one piece. If nobody hears it, there is nobody to tell.
pub fn tell_line(text: fmt::Arguments<'_>) {
    let _ = stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints a line on standard output; gives the host's error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::terminal::out::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Says a line on standard error.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::terminal::out::tell_line(format_args!($($text)*))
    };
}

pub(crate) use {say, tell};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_is_found_in_any_error() {
        let gone = || told(io::ErrorKind::BrokenPipe.into());
        assert!(is_reader_gone(&gone()));
        let boxed: Box<dyn Error> = gone().into();
        assert!(is_reader_gone(boxed.as_ref()));
        let json: io::Error = serde_json::Error::io(gone()).into();
        assert!(is_reader_gone(&json));
        let deep = doppel_oci::Error::Io { what: "write".into(), source: gone() };
        assert!(is_reader_gone(&deep));
        // Somebody else's pipe.
        assert!(!is_reader_gone(&io::Error::from(io::ErrorKind::BrokenPipe)));
        assert!(!is_reader_gone(&told(io::ErrorKind::StorageFull.into())));
    }
}
