//! Fetching blobs: resumed where they broke off, several at once, checked as they come.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::Digest as _;

use crate::blobs::{Blobs, Have, Partial};
use crate::client::Client;
use crate::model::Descriptor;
use crate::{Cancel, Digest, Error, Event, Progress, Result};

/// Transfers at once.
const PARALLEL: usize = 4;
/// Tries in a row without progress.
const TRIES: u32 = 5;
/// A try that brought this much was one.
const WORTH: u64 = 64 << 10;
/// A connection slower than this over `PATIENCE` is as good as dead.
const SLOWEST: u64 = 1 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// What one pull fetches with.
pub(crate) struct Fetch<'a> {
    pub(crate) client: &'a Client,
    pub(crate) blobs: &'a Blobs,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) cancel: &'a Cancel,
    stop: AtomicBool,
}

/// Which blobs have come, for whoever waits for them.
#[derive(Default)]
struct Arrivals {
    state: Mutex<HashMap<Digest, Option<Error>>>,
    changed: Condvar,
}

impl<'a> Fetch<'a> {
    pub(crate) const fn new(
        client: &'a Client,
        blobs: &'a Blobs,
        progress: &'a dyn Progress,
        cancel: &'a Cancel,
    ) -> Self {
        Self { client, blobs, progress, cancel, stop: AtomicBool::new(false) }
    }

    /// Fetches all of `wanted`, several at once, and hands each to `each` in order, as soon as it is there.
    pub(crate) fn all(
        &self,
        wanted: &[Descriptor],
        mut each: impl FnMut(usize, &Descriptor) -> Result<()>,
    ) -> Result<()> {
        let arrivals = Arrivals::default();
        let next = AtomicUsize::new(0);
        // A layer may occur twice.
        let mut todo: Vec<&Descriptor> = Vec::new();
        for descriptor in wanted {
            if !todo.iter().any(|d| d.digest == descriptor.digest) {
                todo.push(descriptor);
            }
        }
        std::thread::scope(|scope| {
            let work = || {
                while let Some(descriptor) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = self.one(descriptor);
                    arrivals.note(&descriptor.digest, result.err());
                }
            };
            for made in 0..PARALLEL.min(todo.len()) {
                match std::thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(_) => {}
                    // One after the other, before they are used.
                    Err(_) if made == 0 => work(),
                    Err(_) => break,
                }
            }
            let done = wanted.iter().enumerate().try_for_each(|(i, descriptor)| {
                arrivals.wait(&descriptor.digest)?;
                self.cancel.check()?;
                each(i, descriptor)
            });
            if done.is_err() {
                // The others would go on for nobody.
                self.stop.store(true, Ordering::Relaxed);
                self.client.abort();
            }
            done
        })
    }

    /// Fetches one blob.
    pub(crate) fn one(&self, wanted: &Descriptor) -> Result<()> {
        let (digest, size) = (&wanted.digest, wanted.size);
        let mut part = match self.blobs.part(digest, size, self.cancel)? {
            Have::All => {
                self.progress.event(Event::Done { blob: digest, existed: true });
                return Ok(());
            }
            Have::Part(part) => part,
        };
        let (mut tries, mut begun, mut fresh) = (0, false, false);
        loop {
            self.check()?;
            let (hash, have) = part.resume(size)?;
            fresh |= have == 0;
            if !begun {
                self.progress.event(Event::Begin { blob: digest, size, have });
                begun = true;
            }
            let mut state = Transfer { hash, at: have, size, best: have };
            let result = if have == size { Ok(()) } else { self.transfer(&mut part, digest, &mut state) };
            match result {
                Ok(()) => {
                    let found = Digest::finish(state.hash);
                    if found == *digest {
                        self.blobs.complete(part, digest)?;
                        self.progress.event(Event::Done { blob: digest, existed: false });
                        return Ok(());
                    }
                    if fresh {
                        part.discard()?;
                        return Err(Error::invalid(
                            format!("blob {digest}"),
                            format!("the registry sent data of digest {found}"),
                        ));
                    }
                    // The part from an earlier try may have been wrong: once more from the start.
                    part.restart()?;
                }
                Err(e) if e.passes() => {
                    tries = if state.best >= have + WORTH { 1 } else { tries + 1 };
                    if tries >= TRIES {
                        return Err(e);
                    }
                    self.progress.event(Event::Retry { blob: digest, why: &e.to_string() });
                    self.pause(Duration::from_millis(200 << tries))?;
                }
                Err(e @ Error::Invalid { .. }) => {
                    part.discard()?;
                    return Err(e);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { self.cancel.check() }
    }

    fn pause(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            std::thread::sleep(Duration::from_millis(50).min(time));
        }
        Ok(())
    }

    /// Reads what is missing. Ends well only when all is there.
    fn transfer(&self, part: &mut Partial, digest: &Digest, state: &mut Transfer) -> Result<()> {
        let what = || format!("blob {digest}");
        let mut stream = self.client.blob(digest, state.at)?;
        if stream.start == 0 && state.at > 0 {
            part.restart()?;
            (state.hash, state.at) = (sha2::Sha256::new(), 0);
        }
        let left = state.size - state.at;
        if let Some(length) = stream.length.filter(|l| *l != left) {
            return Err(Error::invalid(
                what(),
                format!("{left} bytes were to come, but the registry announces {length}"),
            ));
        }
        let mut buf = vec![0; 1 << 17];
        let (mut since, mut from) = (Instant::now(), state.at);
        while state.at < state.size {
            self.check()?;
            let n = match stream.reader.read(&mut buf) {
                Ok(0) => return Err(self.client.broken(&io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.client.broken(&e)),
            };
            if n as u64 > state.size - state.at {
                return Err(Error::invalid(
                    what(),
                    format!("the registry sends more than the {} bytes stated", state.size),
                ));
            }
            part.write(&buf[..n])?;
            state.hash.update(&buf[..n]);
            state.at += n as u64;
            state.best = state.best.max(state.at);
            self.progress.event(Event::Bytes { blob: digest, done: state.at });
            if since.elapsed() > PATIENCE {
                if state.at - from < SLOWEST * PATIENCE.as_secs() {
                    return Err(self.client.broken(&io::ErrorKind::TimedOut.into()));
                }
                (since, from) = (Instant::now(), state.at);
            }
        }
        // One byte more shows a length that was a lie.
        match stream.reader.read(&mut buf[..1]) {
            Ok(1..) => Err(Error::invalid(
                what(),
                format!("the registry sends more than the {} bytes stated", state.size),
            )),
            _ => Ok(()),
        }
    }
}

struct Transfer {
    hash: sha2::Sha256,
    at: u64,
    size: u64,
    /// The furthest this try came.
    best: u64,
}

impl Arrivals {
    fn note(&self, digest: &Digest, error: Option<Error>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).insert(digest.clone(), error);
        self.changed.notify_all();
    }

    fn wait(&self, digest: &Digest) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // An error of any of them is the error of all.
            let failed = state.iter().find(|(_, e)| e.is_some()).map(|(d, _)| d.clone());
            if let Some(error) = failed.and_then(|d| state.insert(d, None).flatten()) {
                return Err(error);
            }
            if state.contains_key(digest) {
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
