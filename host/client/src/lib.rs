//! A small blocking client of the supervisor's HTTP interface.
//!
//! [`Client`] knows where the supervisor is (`DOPPEL_HOST`: `unix:///path`, `http://` on loopback, `https://host:port`
//! with `DOPPEL_TOKEN`) and keeps a connection for the next call. [`calls`] are the typed ones; [`Lines`] is a stream.
//! Blocking, because its user is a command that does one thing and should start in a millisecond: no runtime, no
//! thread.
//!
//! Boundary: what the supervisor answers is bounded (heads; whole bodies) but else believed: it is domain 0.
#![forbid(unsafe_code)]

mod calls;
mod stream;
mod wire;

use std::fmt;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use doppel_api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use calls::{query, segment};
pub use stream::{Lines, Stopper};
pub use wire::{Body, Upload};

use wire::{Connection, Target};

/// Most bytes of an answer that is read whole.
const MAX_ANSWER: u64 = 256 << 20;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// There is no supervisor.
    Unreachable {
        /// Where it was looked for.
        place: String,
        /// What the host says.
        error: io::Error,
    },
    /// It is there, and cannot be talked to: certificates, TLS or not.
    Unsafe {
        /// Where it is.
        place: String,
        /// Why, in words.
        why: String,
    },
    /// It refused.
    Problem(Box<Problem>),
    /// The connection broke, or what came is no answer.
    Broken(String),
}

impl Error {
    /// The problem's code, if the supervisor refused.
    #[must_use]
    pub fn code(&self) -> Option<doppel_api::Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { place, error } => {
                write!(f, "no supervisor at {place} ({error}); is doppeld running?")
            }
            Self::Unsafe { place, why } => write!(f, "the supervisor at {place}: {why}"),
            Self::Problem(problem) => f.write_str(&problem.detail),
            Self::Broken(why) => write!(f, "the supervisor's answer: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// What a call gives.
pub type Result<T> = std::result::Result<T, Error>;

/// A client.
#[derive(Debug)]
pub struct Client {
    target: Target,
    token: Option<String>,
    idle: Mutex<Option<Connection>>,
}

impl Client {
    /// One for the supervisor that the environment names, or the one of this host.
    ///
    /// # Errors
    /// If `DOPPEL_HOST` is no address.
    pub fn from_env() -> Result<Self> {
        let host = std::env::var(doppel_api::HOST_VARIABLE).ok().filter(|h| !h.is_empty());
        let token = std::env::var(doppel_api::TOKEN_VARIABLE).ok().filter(|t| !t.is_empty());
        Self::new(host.as_deref().unwrap_or(doppel_api::DEFAULT_SOCKET), token)
    }

    /// One for a supervisor at an address.
    ///
    /// # Errors
    /// If it is no address, or not a safe one for the token.
    pub fn new(host: &str, token: Option<String>) -> Result<Self> {
        if token.as_ref().is_some_and(|t| !t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Error::Broken(format!("{} is no token", doppel_api::TOKEN_VARIABLE)));
        }
        Ok(Self { target: Target::parse(host)?, token, idle: Mutex::default() })
    }

    /// Where the supervisor is.
    #[must_use]
    pub fn place(&self) -> String {
        self.target.to_string()
    }

    /// Whether it is reached over the network, and so may be on another host.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.target, Target::Tcp { .. })
    }

    fn send(&self, method: &str, path: &str, body: Upload<'_>) -> Result<(u16, Connection)> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What is sent into one that was closed is lost, and bytes are not sent twice.
        let idle = idle.filter(Connection::is_quiet);
        let retry = matches!(body, Upload::None | Upload::Json(_));
        if let Some(mut connection) = idle {
            match connection.exchange(method, path, self.token.as_deref(), &self.target, body) {
                // It may have been closed since: only then nothing of the answer came, and it was not carried out.
                Err(wire::Failed::Stale(again)) if retry => {
                    return self.fresh(method, path, again);
                }
                Err(e) => return Err(e.into()),
                Ok(status) => return Ok((status, connection)),
            }
        }
        self.fresh(method, path, body)
    }

    fn fresh(&self, method: &str, path: &str, body: Upload<'_>) -> Result<(u16, Connection)> {
        let mut connection =
            Connection::open(&self.target).map_err(|error| match wire::tls_in_words(&error) {
                Some(why) => Error::Unsafe { place: self.target.to_string(), why },
                None => Error::Unreachable { place: self.target.to_string(), error },
            })?;
        let status = connection.exchange(method, path, self.token.as_deref(), &self.target, body)?;
        Ok((status, connection))
    }

    fn whole(&self, mut connection: Connection) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        connection.body().take(MAX_ANSWER).read_to_end(&mut bytes)?;
        if connection.reusable() {
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        }
        Ok(bytes)
    }

    fn checked(&self, method: &str, path: &str, body: Upload<'_>) -> Result<Connection> {
        let (status, connection) = self.send(method, path, body)?;
        if status < 400 {
            return Ok(connection);
        }
        let bytes = self.whole(connection)?;
        Err(match serde_json::from_slice(&bytes) {
            Ok(problem) => Error::Problem(problem),
            Err(_) => Error::Broken(format!("status {status}: {}", String::from_utf8_lossy(&bytes))),
        })
    }

    /// A call whose answer is JSON.
    ///
    /// # Errors
    /// [`Error`].
    pub fn json<T: DeserializeOwned>(&self, method: &str, path: &str, body: Upload<'_>) -> Result<T> {
        let bytes = self.whole(self.checked(method, path, body)?)?;
        serde_json::from_slice(&bytes).map_err(|e| Error::Broken(format!("{method} {path}: {e}")))
    }

    /// A call whose answer says nothing, or does not matter.
    ///
    /// # Errors
    /// [`Error`].
    pub fn done(&self, method: &str, path: &str, body: Upload<'_>) -> Result<()> {
        self.whole(self.checked(method, path, body)?).map(|_| ())
    }

    /// A call whose answer is text.
    ///
    /// # Errors
    /// [`Error`].
    pub fn text(&self, path: &str) -> Result<String> {
        let bytes = self.whole(self.checked("GET", path, Upload::None)?)?;
        String::from_utf8(bytes).map_err(|e| Error::Broken(e.to_string()))
    }

    /// A call whose answer is lines of JSON. It has a connection of its own.
    ///
    /// # Errors
    /// [`Error`].
    pub fn lines<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>> {
        Ok(Lines::new(self.checked("GET", path, Upload::None)?))
    }

    /// The same of one that takes a value as JSON.
    ///
    /// # Errors
    /// [`Error`].
    pub fn post_lines<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<Lines<T>> {
        Ok(Lines::new(self.checked("POST", path, Upload::json(body)?)?))
    }

    /// A call whose answer is bytes. It has a connection of its own.
    ///
    /// # Errors
    /// [`Error`].
    pub fn bytes(&self, path: &str) -> Result<Body> {
        Ok(self.checked("GET", path, Upload::None)?.into_body())
    }

    /// Sends a value as JSON.
    ///
    /// # Errors
    /// [`Error`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.json("POST", path, Upload::json(body)?)
    }
}
