//! Who follows what a domain prints: each is given it as far as they keep up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::keeper::protocol::Line;

/// Most bytes kept for a follower.
const BEHIND: u64 = 4 << 20;

/// Who follows a domain.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    all: Vec<Follower>,
    /// Number of the last line given.
    last: u64,
    /// What has come since there is another keeper, while what came before is looked for in the log, and how many look
    /// for it.
    held: Vec<Line>,
    seekers: u32,
}

#[derive(Debug)]
struct Follower {
    lines: mpsc::UnboundedSender<Piece>,
    /// Bytes on their way.
    waiting: Arc<AtomicU64>,
    lost: u64,
}

#[derive(Debug)]
pub(crate) enum Piece {
    Line(Line),
    Lost(u64),
}

impl Followers {
    /// One more.
    pub fn add(&mut self) -> (mpsc::UnboundedReceiver<Piece>, Arc<AtomicU64>) {
        let (lines, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicU64::new(0));
        self.all.push(Follower { lines, waiting: waiting.clone(), lost: 0 });
        (receiver, waiting)
    }

    /// Whether there are any; those that have gone are forgotten.
    pub fn any(&mut self) -> bool {
        self.all.retain(|f| !f.lines.is_closed());
        !self.all.is_empty()
    }

    /// There is another keeper: what its predecessor has written into the log and could not say any more is to come
    /// before what is said now. Number of the last line that came; none if nobody follows.
    pub fn hold(&mut self) -> Option<u64> {
        if !self.any() {
            return None;
        }
        self.seekers += 1;
        Some(self.last)
    }

    /// Here is what was found, and what was held follows. If that keeper has died too, whoever looks on behalf of the next
    /// one finds more.
    pub fn go_on(&mut self, found: &[Line]) {
        self.seekers -= 1;
        if self.seekers > 0 {
            return;
        }
        let held = std::mem::take(&mut self.held);
        for line in found.iter().chain(&held) {
            self.give(line);
        }
    }

    /// Gives them what was printed.
    pub fn give(&mut self, line: &Line) {
        if self.seekers > 0 {
            self.held.push(line.clone());
            return;
        }
        // It was found in the log before it was said.
        if line.n <= self.last {
            return;
        }
        self.last = line.n;
        let size = line.log.as_ref().or(line.data.as_ref()).map_or(0, String::len) as u64;
        self.all.retain_mut(|f| {
            if f.waiting.load(Ordering::Relaxed) + size > BEHIND {
                f.lost += line.bytes().len() as u64;
                return !f.lines.is_closed();
            }
            f.waiting.fetch_add(size, Ordering::Relaxed);
            let lost = std::mem::take(&mut f.lost);
            (lost == 0 || f.lines.send(Piece::Lost(lost)).is_ok())
                && f.lines.send(Piece::Line(line.clone())).is_ok()
        });
    }

    /// Tells them that the keeper left something out.
    pub fn lost(&mut self, bytes: u64) {
        for follower in &mut self.all {
            follower.lost += bytes;
        }
    }
}
