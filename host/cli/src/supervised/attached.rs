//! The caller's terminal or streams, tied to a domain or an exec: output here, input there, signals and sizes too.
//!
//! The calling thread copies output until the program ends. Input and signals have a thread each, which end with the
//! process; the detach keys (ctrl-p ctrl-q) end the output stream, and the program goes on.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::terminal::out::{self, tell};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_api::{InputOptions, KillOptions, Output, ResizeTerminal};
use doppel_client::{Client, Lines, Stopper};
use doppel_sys::signal::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What input, signals and sizes are for.
#[derive(Clone)]
pub enum Program {
    /// The first program of a domain.
    Domain(String),
    /// An exec.
    Exec(String),
}

impl Program {
    fn input(&self, client: &Client, bytes: &[u8], close: bool) -> doppel_client::Result<()> {
        let how = InputOptions { close };
        match self {
            Self::Domain(name) => client.input(name, bytes, &how),
            Self::Exec(id) => client.exec_input(id, bytes, &how),
        }
    }
    fn resize(&self, client: &Client, size: &ResizeTerminal) -> doppel_client::Result<()> {
        match self {
            Self::Domain(name) => client.resize(name, size),
            Self::Exec(id) => client.exec_resize(id, size),
        }
    }
    fn kill(&self, client: &Client, signal: &str) -> doppel_client::Result<()> {
        let how = KillOptions { signal: Some(signal.to_owned()) };
        match self {
            Self::Domain(name) => client.kill(name, &how),
            Self::Exec(id) => client.exec_kill(id, &how),
        }
    }
}

/// How it is tied.
#[derive(Clone, Debug)]
pub struct Ties {
    /// Pass standard input on.
    pub stdin: bool,
    /// The program has a terminal: ours becomes raw, if it is one.
    pub tty: bool,
    /// Pass signals on.
    pub signals: bool,
    /// Keys that end it; empty: none.
    pub detach: Vec<u8>,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The program did.
    Exit { code: u8, reason: Option<String> },
    /// The detach keys were pressed.
    Detached,
    /// The stream did: the supervisor has ended.
    Cut,
}

/// Signals that are blocked from here on and passed on by [`Tied::run`]; to be made before there are threads.
pub struct Tied {
    signals: Option<SignalFd>,
    ties: Ties,
}

/// Signals that are passed on.
const PASSED: [(Signal, &str); 6] = [
    (Signal::INT, "SIGINT"),
    (Signal::TERM, "SIGTERM"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::HUP, "SIGHUP"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::USR2, "SIGUSR2"),
];

impl Tied {
    /// Prepares.
    pub fn new(ties: Ties) -> io::Result<Self> {
        let mut numbers: Vec<i32> = Vec::new();
        if ties.signals {
            numbers.extend(PASSED.iter().map(|(s, _)| s.as_raw()));
        }
        if ties.tty {
            numbers.push(Signal::WINCH.as_raw());
        }
        let signals = if numbers.is_empty() { None } else { Some(SignalFd::new(&numbers)?) };
        Ok(Self { signals, ties })
    }

    /// Copies until the program has ended or the detach keys were pressed.
    pub fn run(self, program: &Program, lines: Lines<Output>) -> Result<End, Box<dyn std::error::Error>> {
        let raw = if self.ties.tty && self.ties.stdin { Raw::begin()? } else { None };
        let detached = Arc::new(AtomicBool::new(false));
        if self.ties.tty
            && let Some(size) = terminal_size()
        {
            // The program may have ended already.
            let _ = program.resize(&Client::from_env()?, &size);
        }
        if let Some(signals) = self.signals {
            let (client, program) = (Client::from_env()?, program.clone());
            let pass = move || pass_signals(&client, &program, &signals);
            std::thread::Builder::new().name("signals".into()).spawn(pass)?;
        }
        if self.ties.stdin {
            let (client, program, flag) = (Client::from_env()?, program.clone(), detached.clone());
            let keys = if self.ties.tty && raw.is_some() { self.ties.detach } else { Vec::new() };
            let stopper = lines.stopper()?;
            let pass = move || pass_input(&client, &program, &keys, &flag, &stopper);
            std::thread::Builder::new().name("input".into()).spawn(pass)?;
        }
        let end = copy_output(lines);
        drop(raw);
        if detached.load(Ordering::Acquire) {
            return Ok(End::Detached);
        }
        end
    }
}

/// Prints a stream until its program ends.
pub fn copy_output(mut lines: Lines<Output>) -> Result<End, Box<dyn std::error::Error>> {
    let (mut out, mut err) = (out::stdout(), out::stderr());
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            // The supervisor was killed, or we detached.
            Err(doppel_client::Error::Broken(_)) => break,
            Err(e) => return Err(e.into()),
        };
        match line {
            Output::Stdout { data, .. } => {
                out.write_all(&STANDARD.decode(data)?)?;
                if !lines.more_is_here() {
                    out.flush()?;
                }
            }
            Output::Stderr { data, .. } => {
                out.flush()?;
                err.write_all(&STANDARD.decode(data)?)?;
            }
            Output::Lost { bytes } => {
                out.flush()?;
                writeln!(err, "doppel: {bytes} bytes of output were lost")?;
            }
            Output::Started { warnings, .. } => {
                for text in warnings {
                    writeln!(err, "doppel: warning: {text}")?;
                }
            }
            Output::Exit { exit_code, reason } => {
                out.flush()?;
                // The stream's end may say more than that: see `/v1/domains/run`. Without it the end is as good.
                while let Some(Ok(_)) = lines.next() {}
                return Ok(End::Exit { code: exit_code, reason });
            }
        }
    }
    out.flush()?;
    Ok(End::Cut)
}

fn pass_input(client: &Client, program: &Program, keys: &[u8], detached: &AtomicBool, stopper: &Stopper) {
    let mut piece = vec![0; 64 << 10];
    let mut watch = Keys::new(keys);
    let mut stdin = io::stdin().lock();
    loop {
        let n = match stdin.read(&mut piece) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let (bytes, pressed) = watch.pass(&piece[..n]);
        if n == 0 || !bytes.is_empty() {
            match program.input(client, &bytes, n == 0) {
                Ok(()) => {}
                // A program that has ended needs no input.
                Err(doppel_client::Error::Problem(_)) => return,
                Err(e) => {
                    tell!("doppel: no more input is passed on: {e}");
                    return;
                }
            }
        }
        if n == 0 {
            return;
        }
        if pressed {
            detached.store(true, Ordering::Release);
            stopper.stop();
            return;
        }
    }
}

fn pass_signals(client: &Client, program: &Program, signals: &SignalFd) {
    loop {
        if poll(&mut [PollFd::new(signals, PollFlags::IN)], None).is_err() {
            continue;
        }
        while let Ok(Some(number)) = signals.next() {
            if number == Signal::WINCH.as_raw() {
                if let Some(size) = terminal_size() {
                    let _ = program.resize(client, &size);
                }
            } else if let Some((_, name)) = PASSED.iter().find(|(s, _)| s.as_raw() == number)
                && let Err(e) = program.kill(client, name)
            {
                tell!("doppel: {name}: {e}");
            }
        }
    }
}

/// Size of our terminal, if there is one.
pub fn terminal_size() -> Option<ResizeTerminal> {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(out::stdout())).ok()?;
    let some = size.ws_row > 0 && size.ws_col > 0;
    some.then_some(ResizeTerminal { rows: size.ws_row, columns: size.ws_col })
}

/// Our terminal in raw mode; as before when dropped.
struct Raw(Termios);

impl Raw {
    fn begin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Looks for the detach keys in what is typed; holds the first of them back until it is clear what follows.
struct Keys<'k> {
    keys: &'k [u8],
    seen: usize,
}

impl<'k> Keys<'k> {
    fn new(keys: &'k [u8]) -> Self {
        Self { keys, seen: 0 }
    }

    /// What to pass on, and whether the keys are complete.
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        if self.keys.is_empty() {
            return (typed.to_vec(), false);
        }
        let mut out = Vec::with_capacity(typed.len());
        for &byte in typed {
            if byte == self.keys[self.seen] {
                self.seen += 1;
                if self.seen == self.keys.len() {
                    self.seen = 0;
                    return (out, true);
                }
                continue;
            }
            out.extend_from_slice(&self.keys[..self.seen]);
            self.seen = usize::from(byte == self.keys[0]);
            if self.seen == 0 {
                out.push(byte);
            }
        }
        (out, false)
    }
}

/// Reads detach keys as Docker writes them: `ctrl-p,ctrl-q`, or letters.
pub fn detach_keys(text: &str) -> Result<Vec<u8>, String> {
    let key = |part: &str| match part.strip_prefix("ctrl-").map(str::as_bytes) {
        Some([c @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')]) => Ok(c & 0x1f),
        None if part.len() == 1 && part.is_ascii() => Ok(part.as_bytes()[0]),
        _ => Err(format!("{part:?} is no key; a letter, or ctrl- and one of a-z @ [ \\ ] ^ _")),
    };
    text.split(',').filter(|p| !p.is_empty()).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let keys = detach_keys("ctrl-p,ctrl-q").unwrap();
        assert_eq!(keys, [16, 17]);
        assert_eq!(detach_keys("a").unwrap(), b"a");
        assert!(detach_keys("").unwrap().is_empty());
        assert!(detach_keys("ctrl-1").is_err() && detach_keys("ab").is_err());
        let mut watch = Keys::new(&keys);
        assert_eq!(watch.pass(b"ab"), (b"ab".to_vec(), false));
        assert_eq!(watch.pass(&[b'a', 16]), (b"a".to_vec(), false));
        assert_eq!(watch.pass(b"c"), (vec![16, b'c'], false), "the key that was held back comes through");
        assert_eq!(watch.pass(&[16, 16]), (vec![16], false));
        assert_eq!(watch.pass(&[17, b'x']), (vec![], true));
        assert_eq!(Keys::new(&[]).pass(&[16, 17]), (vec![16, 17], false));
    }
}
