//! Further programs in running domains.
//!
//! What a program prints is kept here until somebody has read it, and a little of it after that; the keeper sends more as
//! it is read, so that a program whose output nobody takes waits, as at a pipe. Programs outlive their keeper: its successor
//! sends again what may not have come, with its place in the stream, and calls are repeated, which have ids and places too.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use doppel_api::{self as api, Code, DomainState, EventKind, Output, Problem};
use tokio::sync::watch;

use crate::core::Core;
use crate::domains::Entry;
use crate::domains::input::{PIECE, length};
use crate::domains::{names, spec};
use crate::keeper::protocol::{Ask, ExecAsk, ExecSpec, KnownExec, Said, Stream, WINDOW};
use crate::keepers::keeper_client::KeeperClient;
use crate::locked;
use crate::streams::{self, ByteStream, LineStream, next};

/// Bytes of what was read already that are kept for a second reader.
const KEPT: usize = 256 << 10;
/// How long those that have ended are known, and how many at most.
const REMEMBERED: Duration = Duration::from_secs(600);
const MOST: usize = 2000;
/// The keeper is told of so many bytes at a time that they were read.
const OWED: u64 = WINDOW / 8;
/// Exit code of a program whose domain has ended, or that is lost.
const DOMAIN_ENDED: u8 = 137;
/// How many pieces may be on their way to a reader.
pub(crate) const AHEAD: usize = 4;

/// A program.
#[derive(Debug)]
pub(crate) struct Exec {
    pub id: String,
    pub domain: String,
    /// Run of the domain that it is in.
    run: u64,
    /// Of its domain.
    pub keeper: Arc<KeeperClient>,
    config: api::CreateExec,
    /// Its process there; none: the keeper has not answered yet.
    pid: Mutex<Option<i32>>,
    printed: Mutex<Printed>,
    /// Bytes of input that it was given, modulo 2^32; held while it is given more.
    given: Arc<tokio::sync::Mutex<u32>>,
    /// Its exit code and why it ended, when it has; also rings when something was printed.
    state: watch::Sender<Status>,
    ended: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug, Default)]
struct Status {
    printed: u64,
    end: Option<(u8, Option<String>)>,
}

/// A piece of its output.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub stream: Stream,
    pub bytes: Bytes,
}

/// Its output. Pieces are numbered from 0 on.
#[derive(Debug, Default)]
struct Printed {
    /// Number of the first piece kept.
    first: u64,
    pieces: VecDeque<Piece>,
    /// Pieces before this one have been read by somebody.
    read: u64,
    bytes: usize,
    /// Bytes that were read and that the keeper was not told of yet.
    owed: u64,
    /// Bytes that came of standard output and of standard error, modulo 2^32.
    came: [u32; 2],
}

impl Printed {
    /// How many of `len` bytes, which come behind the first `at`, have come before. They are owed at once.
    fn known(&mut self, stream: Stream, at: Option<u32>, len: usize) -> usize {
        let came = &mut self.came[usize::from(stream != Stream::Stdout)];
        let before = at.map_or(0, |at| came.wrapping_sub(at));
        // None is ever missing; were it so, what is there is better than nothing.
        let known = if before > u32::MAX / 2 { 0 } else { usize::try_from(before).unwrap_or(0).min(len) };
        *came = came.wrapping_add(u32::try_from(len - known).unwrap_or_default());
        self.owed += known as u64;
        known
    }

    /// Bytes that the keeper was not told of yet.
    fn waiting(&self) -> u64 {
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
    fn printed(&self, mut piece: Piece, at: Option<u32>) {
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
    fn piece(&self, at: u64) -> Result<Option<Piece>, u64> {
        let printed = locked(&self.printed);
        match at.checked_sub(printed.first) {
            Some(index) => Ok(usize::try_from(index).ok().and_then(|i| printed.pieces.get(i)).cloned()),
            None => Err(printed.first),
        }
    }

    /// Notes that piece number `at` has been read; says how many bytes the keeper is to be told of, if it is time.
    fn read(&self, at: u64) -> Option<u64> {
        let mut printed = locked(&self.printed);
        if at < printed.read {
            return None;
        }
        let index = usize::try_from(at.saturating_sub(printed.first)).unwrap_or(usize::MAX);
        printed.owed += printed.pieces.get(index).map_or(0, |p| p.bytes.len() as u64);
        printed.read = at + 1;
        while printed.bytes > KEPT && printed.first < printed.read {
            let gone = printed.pieces.pop_front().map_or(0, |p| p.bytes.len());
            printed.bytes -= gone;
            printed.first += 1;
        }
        (printed.owed >= OWED).then(|| std::mem::take(&mut printed.owed))
    }

    fn has_ended(&self) -> bool {
        self.state.borrow().end.is_some()
    }

    /// The keeper has said that it runs, and not yet forgotten it.
    fn is_started(&self) -> bool {
        locked(&self.pid).is_some()
    }

    /// The keeper need not know it any more. One that does not hear it learns it from the next greeting.
    fn forget(&self) {
        self.keeper.tell(Ask::ToExec { exec: self.id.clone(), ask: ExecAsk::Release });
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
pub(crate) struct Execs(Mutex<HashMap<String, Arc<Exec>>>);

impl Execs {
    pub fn find(&self, id: &str) -> Result<Arc<Exec>, Problem> {
        let none = || Problem::new(Code::ExecNotFound, format!("no exec {id:?}"));
        locked(&self.0).get(id).cloned().ok_or_else(none)
    }

    /// Those in the domains of a keeper that have not ended.
    pub fn known(&self, keeper: u64) -> Vec<KnownExec> {
        let all = self.all().into_iter().filter(|e| e.keeper.number == keeper && !e.has_ended());
        let known = |e: Arc<Exec>| KnownExec {
            exec: e.id.clone(),
            domain: e.domain.clone(),
            waiting: locked(&e.printed).waiting(),
        };
        all.map(known).collect()
    }

    /// How many run.
    pub fn under_way(&self) -> u64 {
        self.all().iter().filter(|e| locked(&e.ended).is_none()).count() as u64
    }

    fn all(&self) -> Vec<Arc<Exec>> {
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

/// What a program of ours is run with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub argv: Vec<String>,
    pub builtin: bool,
    pub stdin: bool,
    pub discard: bool,
}

/// A program that was asked for and about which the keeper has not answered. Whoever waits may go away meanwhile, and the
/// domain may not run it for long (all its CPUs are taken, or it hangs): then it is taken back, and never runs if it has
/// not begun to.
struct Unanswered<'a> {
    core: &'a Core,
    exec: &'a Exec,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        locked(&self.core.execs.0).remove(&self.exec.id);
        self.exec.forget();
    }
}

/// Refuses a domain in which nothing can run now, and says what to do.
fn check_runs(entry: &Entry) -> Result<(), Problem> {
    let why = match entry.state() {
        DomainState::Running => return Ok(()),
        DomainState::Paused => "is paused, unpause it first",
        DomainState::Hibernated => "is hibernated, wake it first",
        _ => "does not run",
    };
    Err(Problem::new(Code::WrongState, format!("domain {} {why}", entry.name())))
}

/// A refusal to run a command, with the command's name.
fn named(mut problem: Problem, command: &[String]) -> Problem {
    let name = command.first().map(String::as_str).unwrap_or_default();
    match problem.code {
        Code::CommandNotFound => problem.detail = format!("no such file or directory: {name}"),
        Code::CommandNotExecutable => problem.detail = format!("{name}: {}", problem.detail),
        _ => {}
    }
    problem
}

impl Core {
    /// Starts a program as somebody asked for it.
    pub async fn exec(
        self: Arc<Self>,
        entry: Arc<Entry>,
        config: api::CreateExec,
    ) -> Result<api::Exec, Problem> {
        if config.command.is_empty() {
            return Err(spec::wrong("command: name one"));
        }
        if config.working_dir.as_ref().is_some_and(|d| !d.starts_with('/')) {
            return Err(spec::wrong("working_dir: it must be an absolute path"));
        }
        let timeout = config.timeout_seconds;
        if timeout.is_some_and(|t| !(t > 0.0 && t < 1e9)) {
            return Err(spec::wrong("timeout_seconds: a number above 0"));
        }
        let row = entry.row();
        let user = match config.user.clone() {
            Some(user) => self.user_of(&entry, &user).await?,
            None => row.user.clone(),
        };
        let mut env: BTreeMap<String, String> = row.config.env.clone();
        env.extend(config.env.clone());
        let size = config.terminal.map_or((24, 80), |t| (t.rows, t.columns));
        let spec = ExecSpec {
            argv: config.command.clone(),
            env: spec::environment(&env, config.tty, &user.home),
            cwd: config.working_dir.clone().or(row.config.working_dir).unwrap_or_else(|| "/".into()),
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            tty: config.tty.then_some(size),
            stdin: config.stdin,
            builtin: false,
            discard: config.detach,
        };
        let exec = self.launch_exec(&entry, config, spec).await?;
        self.event(EventKind::ExecStart, &entry, &[("exec", exec.id.clone())]);
        if let Some(seconds) = timeout {
            let (core, exec) = (Arc::downgrade(&self), exec.clone());
            tokio::spawn(async move {
                let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                if tokio::time::timeout(time, exec.ended()).await.is_err() && core.strong_count() > 0 {
                    let ask = ExecAsk::Signal { signal: spec::KILL };
                    // One that has just ended is what is wanted.
                    let _ = exec.keeper.ask(Ask::ToExec { exec: exec.id.clone(), ask }).await;
                }
            });
        }
        Ok(exec.describe())
    }

    /// Starts a program of ours, as root.
    pub async fn run_in(&self, entry: &Arc<Entry>, program: Program) -> Result<Arc<Exec>, Problem> {
        let row = entry.row();
        let spec = ExecSpec {
            argv: program.argv.clone(),
            env: spec::environment(&row.config.env, false, "/root"),
            cwd: "/".into(),
            builtin: program.builtin,
            stdin: program.stdin,
            discard: program.discard,
            ..ExecSpec::default()
        };
        let config = api::CreateExec { command: program.argv, ..Default::default() };
        self.launch_exec(entry, config, spec).await
    }

    async fn launch_exec(
        &self,
        entry: &Arc<Entry>,
        config: api::CreateExec,
        spec: ExecSpec,
    ) -> Result<Arc<Exec>, Problem> {
        check_runs(entry)?;
        let keeper = self.keeper_of(entry)?;
        let exec = Arc::new(Exec {
            id: names::id(),
            domain: entry.id.clone(),
            run: locked(&entry.row).run,
            keeper: keeper.clone(),
            config,
            pid: Mutex::new(None),
            printed: Mutex::default(),
            given: Arc::default(),
            state: watch::channel(Status::default()).0,
            ended: Mutex::default(),
        });
        // Before it is asked for: its first words may come before the answer.
        locked(&self.execs.0).insert(exec.id.clone(), exec.clone());
        let unanswered = Unanswered { core: self, exec: &exec };
        let ask = Ask::Exec { id: entry.id.clone(), exec: exec.id.clone(), spec: Box::new(spec) };
        let said = keeper.ask(ask).await;
        std::mem::forget(unanswered);
        match said {
            Ok(Said::ExecStarted { pid }) => {
                *locked(&exec.pid) = Some(pid);
                if exec.has_ended() {
                    exec.forget();
                } else if locked(&entry.row).ended_run >= exec.run {
                    self.exec_ended(&exec.id, DOMAIN_ENDED, Some("the domain has ended".into()));
                }
                Ok(exec)
            }
            other => {
                locked(&self.execs.0).remove(&exec.id);
                exec.forget();
                Err(match other {
                    Err(problem) => named(problem, &exec.config.command),
                    Ok(_) => Problem::new(Code::Internal, "the keeper answered something else"),
                })
            }
        }
    }

    /// A program printed something.
    pub fn exec_printed(&self, id: &str, stream: Stream, at: Option<u32>, bytes: Bytes) {
        // One that was released is nobody's any more.
        if let Ok(exec) = self.execs.find(id) {
            exec.printed(Piece { stream, bytes }, at);
        }
    }

    /// A program has ended.
    pub fn exec_ended(&self, id: &str, code: u8, reason: Option<String>) {
        let Ok(exec) = self.execs.find(id) else { return };
        let news = exec.state.send_if_modified(|s| {
            let news = s.end.is_none();
            s.end.get_or_insert((code, reason));
            news
        });
        // As long as its start is not answered, that is what its end is for.
        if exec.is_started() {
            exec.forget();
        }
        if !news {
            return;
        }
        *locked(&exec.ended) = Some(Instant::now());
        if let Ok(entry) = self.find(&exec.domain) {
            let attributes = [("exec", exec.id.clone()), ("exit_code", code.to_string())];
            self.event(EventKind::ExecDie, &entry, &attributes);
        }
    }

    /// A keeper that has taken domains over has these programs: others are lost.
    pub fn execs_found(&self, keeper: u64, found: &[String]) {
        for exec in self.execs.all() {
            let its = exec.keeper.number == keeper && exec.is_started() && !exec.has_ended();
            if its && !found.contains(&exec.id) {
                self.exec_ended(&exec.id, DOMAIN_ENDED, Some("lost: its keeper ended".into()));
            }
        }
    }

    /// A run of a domain has ended, and with it the programs of which its keeper has not said how they did.
    pub fn execs_over(&self, entry: &Entry, run: u64) {
        for exec in self.execs.all() {
            let its = exec.domain == entry.id && exec.run <= run && exec.is_started() && !exec.has_ended();
            if its {
                self.exec_ended(&exec.id, DOMAIN_ENDED, Some("the domain has ended".into()));
            }
        }
    }

    /// What a program prints, from its start, and its exit.
    pub fn exec_output(self: &Arc<Self>, exec: Arc<Exec>) -> LineStream<Output> {
        let core = self.clone();
        streams::produce_ahead(AHEAD, move |out| async move {
            let mut state = exec.state.subscribe();
            let mut at = 0;
            loop {
                let end = state.borrow_and_update().end.clone();
                loop {
                    let piece = match exec.piece(at) {
                        Ok(Some(piece)) => piece,
                        Ok(None) => break,
                        Err(first) => {
                            // How many bytes these were is no longer known; that they were is.
                            if !out.give(Output::Lost { bytes: 0 }).await {
                                return;
                            }
                            at = first;
                            continue;
                        }
                    };
                    let data = STANDARD.encode(&piece.bytes);
                    let item = match piece.stream {
                        Stream::Stdout => Output::Stdout { data, at: None },
                        _ => Output::Stderr { data, at: None },
                    };
                    if !out.give(item).await {
                        return;
                    }
                    core.taken(&exec, at);
                    at += 1;
                }
                if let Some((exit_code, reason)) = end {
                    out.give(Output::Exit { exit_code, reason }).await;
                    return;
                }
                tokio::select! {
                    changed = state.changed() => if changed.is_err() { return },
                    () = out.closed() => return,
                }
            }
        })
    }

    /// A piece has been read: more may come.
    fn taken(&self, exec: &Exec, at: u64) {
        // A program that has ended sends nothing more.
        if let Some(bytes) = exec.read(at)
            && exec.state.borrow().end.is_none()
        {
            let ask = ExecAsk::Taken { bytes };
            if !exec.keeper.tell(Ask::ToExec { exec: exec.id.clone(), ask }) {
                // The next one is told.
                locked(&exec.printed).owed += bytes;
            }
        }
    }

    /// Piece number `at` of a program's output, when it is there; none behind its end.
    pub async fn exec_next(&self, exec: &Exec, at: u64) -> Option<Piece> {
        let mut state = exec.state.subscribe();
        loop {
            let over = state.borrow_and_update().end.is_some();
            if let Ok(Some(piece)) = exec.piece(at) {
                self.taken(exec, at);
                return Some(piece);
            }
            if over || state.changed().await.is_err() {
                return None;
            }
        }
    }

    async fn to_exec(&self, exec: &Exec, ask: ExecAsk) -> Result<(), Problem> {
        exec.keeper.ask(Ask::ToExec { exec: exec.id.clone(), ask }).await.map(drop)
    }

    pub async fn exec_input(
        &self,
        exec: &Arc<Exec>,
        mut bytes: ByteStream,
        close: bool,
    ) -> Result<(), Problem> {
        while let Some(piece) = next(&mut bytes).await {
            for part in piece?.chunks(PIECE) {
                self.give(exec, part, false).await?;
            }
        }
        if close {
            self.give(exec, &[], true).await?;
        }
        Ok(())
    }

    /// Gives it a piece of input, also if nobody waits for that any more: what was begun may be in its hands already.
    async fn give(&self, exec: &Arc<Exec>, part: &[u8], close: bool) -> Result<(), Problem> {
        let len = length(part);
        let (exec, data) = (exec.clone(), STANDARD.encode(part));
        let given = tokio::spawn(async move {
            let mut at = exec.given.clone().lock_owned().await;
            let over = exec.has_ended();
            let ask = ExecAsk::Input { data, close, at: Some(*at) };
            let said = exec.keeper.ask(Ask::ToExec { exec: exec.id.clone(), ask }).await;
            *at = at.wrapping_add(len);
            match said {
                // It has ended with this, or before it came: as one does that reads no further.
                Err(problem) if !over && problem.code == Code::WrongState => Ok(()),
                said => said.map(drop),
            }
        });
        given.await.unwrap_or_else(|e| Err(Problem::new(Code::Internal, format!("a task failed: {e}"))))
    }

    pub async fn exec_resize(&self, exec: &Exec, to: api::ResizeTerminal) -> Result<(), Problem> {
        self.to_exec(exec, ExecAsk::Resize { rows: to.rows, columns: to.columns }).await
    }

    pub async fn exec_kill(&self, exec: &Exec, how: &api::KillOptions) -> Result<(), Problem> {
        let signal = how.signal.as_deref().map_or(Ok(spec::KILL), spec::signal)?;
        self.to_exec(exec, ExecAsk::Signal { signal }).await
    }

    /// Hangs up a program of ours.
    pub async fn release(&self, exec: &Exec) {
        if !exec.has_ended() {
            // It may have ended just now.
            let _ = self.to_exec(exec, ExecAsk::Release).await;
        }
        locked(&self.execs.0).remove(&exec.id);
    }
}
