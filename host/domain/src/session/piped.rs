//! A built-in command of a domain that another process runs, as a reader and a writer.

use std::ffi::OsString;
use std::io::{self, Read, Write};

use crate::session::SessionEnd;
use crate::session::remote::{Remote, SessionMessage};
use crate::{Error, ExecConfig, Stream};

/// Most bytes kept of what the command says on standard error.
const WORDS_MAX: usize = 4096;

/// A command whose standard input is written and whose standard output is read by us.
#[derive(Debug)]
pub struct Piped {
    remote: Remote,
    out: Vec<u8>,
    /// How much of it was read.
    at: usize,
    words: Vec<u8>,
    end: Option<SessionEnd>,
}

impl Piped {
    /// Starts a built-in command (docs/sessions.md) in the domain called `name`.
    ///
    /// # Errors
    /// If there is no such domain, or it refuses.
    pub fn builtin(name: &str, argv: &[OsString]) -> Result<Self, Error> {
        let mut config = ExecConfig::new(argv.to_vec());
        (config.builtin, config.spec.stdin) = (true, true);
        let remote = Remote::open(name, &config)?;
        Ok(Self { remote, out: Vec::new(), at: 0, words: Vec::new(), end: None })
    }

    /// Takes what there is to hear; waits for something if nothing is there.
    fn turn(&mut self) -> Result<(), Error> {
        self.remote.flush()?;
        match self.remote.hear()? {
            Some(SessionMessage::Output(Stream::Stdout, bytes)) => {
                self.out.drain(..self.at);
                self.at = 0;
                self.out.extend(bytes);
            }
            Some(SessionMessage::Output(_, bytes)) => {
                let room = WORDS_MAX - self.words.len();
                self.words.extend(&bytes[..bytes.len().min(room)]);
            }
            Some(SessionMessage::End(end)) => self.end = Some(end),
            Some(SessionMessage::Started(_) | SessionMessage::InputRoom) => {}
            None => self.remote.wait()?,
        }
        Ok(())
    }

    /// Says that no more input will come.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn close_input(&mut self) -> Result<(), Error> {
        self.remote.close_input()
    }

    /// Waits for the end; what is still printed is thrown away.
    ///
    /// # Errors
    /// What the command says if it fails.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.end.is_none() {
            self.close_input()?;
        }
        loop {
            match self.end {
                None => self.turn()?,
                Some(SessionEnd::Exited(0)) => return Ok(()),
                Some(SessionEnd::DomainEnded) => return Err(Error::Ended("the domain has ended".into())),
                Some(end) if self.words.is_empty() => {
                    return Err(Error::InDomain(format!("the command failed ({end:?})")));
                }
                Some(_) => {
                    let words = String::from_utf8_lossy(&self.words);
                    return Err(Error::InDomain(words.trim_end().to_owned()));
                }
            }
        }
    }

    /// All it prints, at most `most` bytes.
    ///
    /// # Errors
    /// What the command says if it fails.
    pub fn output(mut self, most: usize) -> Result<Vec<u8>, Error> {
        self.close_input()?;
        let mut all = Vec::new();
        let failed = Error::host("read from the domain");
        (&mut self).take(most as u64).read_to_end(&mut all).map_err(failed)?;
        self.finish().map(|()| all)
    }
}

impl Read for Piped {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() && self.end.is_none() {
            self.turn().map_err(io::Error::other)?;
        }
        let n = buf.len().min(self.out.len() - self.at);
        buf[..n].copy_from_slice(&self.out[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

impl Write for Piped {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            if self.end.is_some() {
                // Why, `finish` tells.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let n = self.remote.write_input(buf).map_err(io::Error::other)?;
            if n > 0 {
                return Ok(n);
            }
            self.turn().map_err(io::Error::other)?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.remote.flush().map_err(io::Error::other)
    }
}
