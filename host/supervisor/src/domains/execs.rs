//! Further programs in running domains.
//!
//! What a program prints is kept here until somebody has read it, and a little of it after that; the keeper sends more as
//! it is read, so that a program whose output nobody takes waits, as at a pipe. Programs outlive their keeper: its successor
//! sends again what may not have come, with its place in the stream, and calls are repeated, which have ids and places too.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use doppel_api::{self as api, Code, Problem};
use tokio::sync::watch;

use crate::keeper::protocol::{ExecCommand, KeeperCommand, KnownExec, Stream, WINDOW};
use crate::keepers::keeper_client::KeeperClient;
use crate::locked;

/// Bytes of what was read already that are kept for a second reader.
const KEPT: usize = 256 << 10;
/// How long those that have ended are known, and how many at most.
const REMEMBERED: Duration = Duration::from_secs(600);
const MOST: usize = 2000;
/// The keeper is told of so many bytes at a time that they were read.
pub(crate) const OWED: u64 = WINDOW / 8;
/// Exit code of a program whose domain has ended, or that is lost.
pub(crate) const DOMAIN_ENDED: u8 = 137;
/// How many pieces may be on their way to a reader.
pub(crate) const AHEAD: usize = 4;

/// A program.
#[derive(Debug)]
pub(crate) struct Exec {
    pub id: String,
    pub domain: String,
    /// Run of the domain that it is in.
    pub run: u64,
    /// Of its domain.
    pub keeper: Arc<KeeperClient>,
    pub config: api::CreateExec,
    /// Its process there; none: the keeper has not answered yet.
    pub pid: Mutex<Option<i32>>,
    pub printed: Mutex<Printed>,
    /// Bytes of input that it was given, modulo 2^32; held while it is given more.
    pub given: Arc<tokio::sync::Mutex<u32>>,
    /// Its exit code and why it ended, when it has; also rings when something was printed.
    pub state: watch::Sender<Status>,
    pub ended: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub printed: u64,
    pub end: Option<(u8, Option<String>)>,
}

/// A piece of its output.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub stream: Stream,
    pub bytes: Bytes,
}

/// Its output. Pieces are numbered from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    /// Number of the first piece kept.
    pub first: u64,
    pub pieces: VecDeque<Piece>,
    /// Pieces before this one have been read by somebody.
    pub read: u64,
    pub bytes: usize,
    /// Bytes that were read and that the keeper was not told of yet.
    pub owed: u64,
    /// Bytes that came of standard output and of standard error, modulo 2^32.
    pub came: [u32; 2],
}

impl Printed {
    /// How many of `len` bytes, which come behind the first `at`, have come before. They are owed at once.
    pub fn known(&mut self, stream: Stream, at: Option<u32>, len: usize) -> usize {
        let came = &mut self.came[usize::from(stream != Stream::Stdout)];
        let before = at.map_or(0, |at| came.wrapping_sub(at));
        // None is ever missing; were it so, what is there is better than nothing.
        let known = if before > u32::MAX / 2 { 0 } else { usize::try_from(before).unwrap_or(0).min(len) };
        *came = came.wrapping_add(u32::try_from(len - known).unwrap_or_default());
        self.owed += known as u64;
        known
    }

    /// What is owed, if it is time to tell the keeper.
    fn due(&mut self) -> Option<u64> {
        (self.owed >= OWED).then(|| std::mem::take(&mut self.owed))
    }

    /// Bytes that the keeper was not told of yet.
    pub fn waiting(&self) -> u64 {
        let skip = usize::try_from(self.read.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.owed + self.pieces.iter().skip(skip).map(|p| p.bytes.len() as u64).sum::<u64>()
    }
}

impl Exec {
    /// As the interface gives it.
    pub fn describe(&self) -> api::Exec {
        let end = self.state.borrow().end.clone();
        api::Exec {
            id: self.id.clone(),
            domain: self.domain.clone(),
            pid: locked(&self.pid).unwrap_or(0),
            config: self.config.clone(),
            running: end.is_none(),
            exit_code: end.map(|(code, _)| code),
        }
    }

    /// It printed something.
    pub fn printed(&self, mut piece: Piece, at: Option<u32>) {
        if self.has_ended() {
            // Told again, and known.
            return;
        }
        let mut printed = locked(&self.printed);
        let known = printed.known(piece.stream, at, piece.bytes.len());
        if known == piece.bytes.len() {
            return;
        }
        piece.bytes = piece.bytes.slice(known..);
        printed.bytes += piece.bytes.len();
        printed.pieces.push_back(piece);
        drop(printed);
        self.state.send_modify(|s| s.printed += 1);
    }

    /// Piece number `at`, or the number of the first one there is.
    pub fn piece(&self, at: u64) -> Result<Option<Piece>, u64> {
        let printed = locked(&self.printed);
        match at.checked_sub(printed.first) {
            Some(index) => Ok(usize::try_from(index).ok().and_then(|i| printed.pieces.get(i)).cloned()),
            None => Err(printed.first),
        }
    }

    /// Notes that piece number `at` has been read.
    pub fn read(&self, at: u64) {
        let mut printed = locked(&self.printed);
        if at < printed.read {
            return;
        }
        let index = usize::try_from(at.saturating_sub(printed.first)).unwrap_or(usize::MAX);
        printed.owed += printed.pieces.get(index).map_or(0, |p| p.bytes.len() as u64);
        printed.read = at + 1;
        while printed.bytes > KEPT && printed.first < printed.read {
            let gone = printed.pieces.pop_front().map_or(0, |p| p.bytes.len());
            printed.bytes -= gone;
            printed.first += 1;
        }
    }

    /// Tells the keeper what is owed, if it is time: more may come. A keeper that has just come was told at its greeting that
    /// this waits: if that is all that may wait, nothing more comes of which it could hear.
    pub fn tell_owed(&self) {
        // A keeper that comes between the two is told what is owed before what it has not heard is put back here.
        for _ in 0..2 {
            let due = locked(&self.printed).due();
            let Some(bytes) = due else { return };
            let command = ExecCommand::Taken { bytes };
            if self.keeper.tell(KeeperCommand::ToExec { exec: self.id.clone(), command }) {
                return;
            }
            locked(&self.printed).owed += bytes;
        }
    }

    pub fn has_ended(&self) -> bool {
        self.state.borrow().end.is_some()
    }

    /// The keeper has said that it runs, and not yet forgotten it.
    pub fn is_started(&self) -> bool {
        locked(&self.pid).is_some()
    }

    /// The keeper need not know it any more. One that does not hear it learns it from the next greeting.
    pub fn forget(&self) {
        self.keeper.tell(KeeperCommand::ToExec { exec: self.id.clone(), command: ExecCommand::Release });
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> (u8, Option<String>) {
        let mut state = self.state.subscribe();
        match state.wait_for(|s| s.end.is_some()).await {
            Ok(state) => state.end.clone().unwrap_or_default(),
            // The sender lives as long as this.
            Err(_) => (0, None),
        }
    }
}

/// All programs.
#[derive(Debug, Default)]
pub(crate) struct Execs(pub Mutex<HashMap<String, Arc<Exec>>>);

impl Execs {
    pub fn find(&self, id: &str) -> Result<Arc<Exec>, Problem> {
        let none = || Problem::new(Code::ExecNotFound, format!("no exec {id:?}"));
        locked(&self.0).get(id).cloned().ok_or_else(none)
    }

    /// A keeper has come and can be told something.
    pub fn keeper_came(&self, keeper: u64) {
        self.of(keeper).for_each(|exec| exec.tell_owed());
    }

    fn of(&self, keeper: u64) -> impl Iterator<Item = Arc<Exec>> + use<> {
        self.all().into_iter().filter(move |e| e.keeper.number == keeper && !e.has_ended())
    }

    /// Those in the domains of a keeper that have not ended.
    pub fn known(&self, keeper: u64) -> Vec<KnownExec> {
        let all = self.of(keeper);
        let known = |e: Arc<Exec>| KnownExec {
            exec: e.id.clone(),
            domain: e.domain.clone(),
            waiting: locked(&e.printed).waiting(),
        };
        all.map(known).collect()
    }

    /// The domains in which some have not ended.
    pub fn domains(&self) -> HashSet<String> {
        locked(&self.0).values().filter(|e| !e.has_ended()).map(|e| e.domain.clone()).collect()
    }

    /// How many run.
    pub fn under_way(&self) -> u64 {
        self.all().iter().filter(|e| locked(&e.ended).is_none()).count() as u64
    }

    pub fn all(&self) -> Vec<Arc<Exec>> {
        locked(&self.0).values().cloned().collect()
    }

    /// Forgets those that ended long ago, and the oldest of too many.
    pub fn forget_old(&self) {
        let mut all = locked(&self.0);
        all.retain(|_, exec| locked(&exec.ended).is_none_or(|at| at.elapsed() < REMEMBERED));
        if all.len() > MOST {
            let mut ended: Vec<(Instant, String)> =
                all.values().filter_map(|e| Some(((*locked(&e.ended))?, e.id.clone()))).collect();
            ended.sort();
            let extra = all.len() - MOST;
            for (_, id) in ended.into_iter().take(extra) {
                all.remove(&id);
            }
        }
    }
}
