//! What domains print.
//!
//! Logs are read from the keeper's files; what is printed now comes from it as news, once for all who follow a domain,
//! and is given to each as far as they keep up: who does not is told how much was left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use doppel_api::{self as api, Code, DomainState, Output, Problem};
use tokio::sync::mpsc;

use crate::core::Core;
use crate::domains::followers::Piece;
use crate::domains::{Entry, is_live};
use crate::jobs::blocking;
use crate::keeper::log;
use crate::keeper::protocol::{KeeperCommand, Line, Reply, Stream};
use crate::streams::{self, LineStream, Out};
use crate::{locked, time};

/// A line as the interface gives it.
fn output(line: &Line, with_time: bool) -> Output {
    let at = with_time.then(|| line.time.clone());
    let data = line.base64();
    match line.stream {
        Stream::Stdout => Output::Stdout { data, at },
        Stream::Stderr | Stream::Log => Output::Stderr { data, at },
    }
}

/// Which lines are wanted.
#[derive(Clone, Debug)]
struct Filter {
    since: Option<SystemTime>,
    until: Option<SystemTime>,
    stdout: bool,
    stderr: bool,
}

impl Filter {
    const ALL: Self = Self { since: None, until: None, stdout: true, stderr: true };

    fn new(which: &api::LogOptions) -> Result<Self, Problem> {
        let parsed = |field: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => time::parse(text).map(Some).ok_or_else(|| {
                Problem::new(Code::InvalidRequest, format!("{field}: {text:?} is no time (RFC 3339)"))
            }),
        };
        Ok(Self {
            since: parsed("since", &which.since)?,
            until: parsed("until", &which.until)?,
            stdout: which.stdout,
            stderr: which.stderr,
        })
    }

    fn wants(&self, line: &Line) -> bool {
        let stream = if line.stream == Stream::Stdout { self.stdout } else { self.stderr };
        let timely = || {
            let at = time::parse(&line.time);
            self.since.is_none_or(|t| at.is_some_and(|at| at >= t))
                && self.until.is_none_or(|t| at.is_some_and(|at| at <= t))
        };
        stream && ((self.since.is_none() && self.until.is_none()) || timely())
    }
}

impl Core {
    /// What a domain printed, and if asked, what it prints until it ends.
    pub async fn logs(
        self: Arc<Self>,
        entry: Arc<Entry>,
        which: api::LogOptions,
    ) -> Result<LineStream<Output>, Problem> {
        let filter = Filter::new(&which)?;
        let follow = which.follow && is_live(entry.state());
        let live = if follow { Some(self.follow(&entry).await?) } else { None };
        let dir = self.domain_dir(&entry.id);
        Ok(streams::produce(move |out| async move {
            let out = Arc::new(out);
            let (to, wanted, tail) = (out.clone(), filter.clone(), which.tail);
            let past = blocking(move || {
                let mut last = 0;
                let read = log::read(
                    &dir,
                    tail,
                    |line| wanted.wants(line),
                    |line| {
                        last = line.n;
                        to.give_blocking(output(&line, true))
                    },
                );
                read.map_err(crate::jobs::failed("read the log in", &dir))?;
                Ok(last)
            });
            match past.await {
                Ok(last) => {
                    if let Some(live) = live {
                        live.give_from(last, &filter, true, &out).await;
                    }
                }
                // The stream has begun: all that is left is to end it.
                Err(problem) => tracing::warn!("{problem}"),
            }
        }))
    }

    /// What a domain prints until it ends.
    pub async fn attach(
        self: Arc<Self>,
        entry: Arc<Entry>,
        how: api::AttachOptions,
    ) -> Result<LineStream<Output>, Problem> {
        if !is_live(entry.state()) && !matches!(entry.state(), DomainState::Created | DomainState::Restarting)
        {
            return Err(Problem::new(Code::WrongState, format!("domain {} does not run", entry.name())));
        }
        let live = self.follow(&entry).await?;
        Ok(streams::produce(move |out| async move {
            let from = if how.backlog { 0 } else { u64::MAX };
            live.give_from(from, &Filter::ALL, false, &out).await;
        }))
    }

    /// Begins to follow a domain.
    pub(super) async fn follow(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Following, Problem> {
        let before = locked(&entry.row).ended_run;
        let (lines, waiting) = locked(&entry.live).followers.add();
        let _tap = entry.tap.lock().await;
        let recent = match self.ask(entry, KeeperCommand::Follow { id: entry.id.clone() }).await {
            Ok(Reply::Printed(recent)) => recent,
            Ok(_) => Vec::new(),
            // It does not run yet, or no more: what it prints when it does comes as news once it is followed.
            Err(problem) if problem.code == Code::WrongState => Vec::new(),
            Err(problem) => return Err(problem),
        };
        Ok(Following { core: self.clone(), entry: entry.clone(), recent, lines, waiting, before })
    }

    /// Goes on following a domain that has another keeper.
    pub fn follow_again(self: &Arc<Self>, entry: &Arc<Entry>) {
        let Some(last) = locked(&entry.live).followers.hold() else { return };
        let (core, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            {
                let _tap = entry.tap.lock().await;
                // If this keeper dies too, the next one is followed likewise.
                let _ = core.ask_unless_gone(&entry, KeeperCommand::Follow { id: entry.id.clone() }).await;
            }
            let found = core.printed_since(&entry, last).await;
            locked(&entry.live).followers.go_on(&found);
        });
    }

    /// What is in a domain's log behind this line.
    pub async fn printed_since(&self, entry: &Entry, last: u64) -> Vec<Line> {
        let dir = self.domain_dir(&entry.id);
        let found =
            blocking(move || log::since(&dir, last).map_err(crate::jobs::failed("read the log in", &dir)));
        found.await.unwrap_or_else(|problem| {
            tracing::warn!("{problem}");
            Vec::new()
        })
    }

    pub async fn resize(&self, entry: Arc<Entry>, to: api::ResizeTerminal) -> Result<(), Problem> {
        if to.rows == 0 || to.columns == 0 {
            return Err(Problem::new(Code::InvalidRequest, "a terminal has at least one row and one column"));
        }
        self.ask(&entry, KeeperCommand::Resize { id: entry.id.clone(), rows: to.rows, columns: to.columns })
            .await?;
        Ok(())
    }
}

/// A domain's output as it comes.
pub(super) struct Following {
    core: Arc<Core>,
    entry: Arc<Entry>,
    recent: Vec<Line>,
    lines: mpsc::UnboundedReceiver<Piece>,
    waiting: Arc<AtomicU64>,
    /// The last run that had ended before.
    before: u64,
}

impl Following {
    /// Gives everything until the domain ends, of one that has not run before.
    pub async fn give_all(self, out: &Out<Output>) {
        self.give_from(0, &Filter::ALL, false, out).await;
    }

    /// Gives everything after line `last` until the domain ends.
    async fn give_from(mut self, last: u64, filter: &Filter, with_time: bool, out: &Out<Output>) {
        let mut seen = last;
        for line in std::mem::take(&mut self.recent) {
            if line.n > last {
                seen = seen.max(line.n);
                if filter.wants(&line) && !out.give(output(&line, with_time)).await {
                    return;
                }
            }
        }
        // Who wants no backlog has seen nothing yet.
        let seen = if last == u64::MAX { 0 } else { seen };
        let mut ending = self.entry.ending.subscribe();
        let before = self.before;
        loop {
            tokio::select! {
                biased;
                piece = self.lines.recv() => {
                    let Some(piece) = piece else { return };
                    if !self.give(piece, seen, filter, with_time, out).await {
                        return;
                    }
                }
                end = async { ending.wait_for(|e| e.run > before || e.removed).await.map(|e| e.clone()) } => {
                    // Notification come in order: what was printed before the end is here.
                    while let Ok(piece) = self.lines.try_recv() {
                        if !self.give(piece, seen, filter, with_time, out).await {
                            return;
                        }
                    }
                    if let Ok(end) = end && end.run > before {
                        let (exit_code, reason) = (end.exit.exit_code, end.exit.reason);
                        out.give(Output::Exit { exit_code, reason }).await;
                    }
                    return;
                }
                () = out.closed() => return,
            }
        }
    }

    async fn give(
        &self,
        piece: Piece,
        seen: u64,
        filter: &Filter,
        with_time: bool,
        out: &Out<Output>,
    ) -> bool {
        match piece {
            Piece::Line(line) => {
                let size = line.log.as_ref().or(line.data.as_ref()).map_or(0, String::len) as u64;
                self.waiting.fetch_sub(size, Ordering::Relaxed);
                line.n <= seen || !filter.wants(&line) || out.give(output(&line, with_time)).await
            }
            Piece::Lost(bytes) => out.give(Output::Lost { bytes }).await,
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.lines.close();
        let mut live = locked(&self.entry.live);
        if live.followers.any() {
            return;
        }
        drop(live);
        let (core, id) = (self.core.clone(), self.entry.id.clone());
        // At the end of the supervisor there is no runtime any more, nor anybody to tell.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let entry = self.entry.clone();
            runtime.spawn(async move {
                let _tap = entry.tap.lock().await;
                let followed = locked(&entry.live).followers.any();
                if !followed {
                    // A keeper that has gone sends nothing.
                    let _ = core.ask_unless_gone(&entry, KeeperCommand::Unfollow { id }).await;
                }
            });
        }
    }
}
