//! Further programs in running domains: started, fed, watched and ended ([`crate::domains::execs`] has what is known of each).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use doppel_api::{self as api, Code, DomainState, EventKind, Output, Problem};
use doppel_spec::ExecConfig;
use tokio::sync::watch;

use crate::core::Core;
use crate::domains::execs::{AHEAD, DOMAIN_ENDED, Exec, Piece, Status};
use crate::domains::{Entry, PIECE, length};
use crate::domains::{names, spec};
use crate::keeper::protocol::{ExecCommand, KeeperCommand, Reply, Stream};
use crate::locked;
use crate::streams::{self, ByteStream, LineStream, next};

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
        let timeout = config.timeout_seconds;
        let row = entry.row();
        let user = match config.user.clone() {
            Some(user) => self.user_of(&entry, &user).await?,
            None => row.user.clone(),
        };
        let mut env: BTreeMap<String, String> = row.config.env.clone();
        env.extend(config.env.clone());
        let cwd = config.working_dir.clone().or(row.config.working_dir).unwrap_or_else(|| "/".into());
        let program = doppel_spec::Program {
            cwd,
            env: spec::environment(&env, config.tty, &user.home),
            ..user.program(config.command.clone())
        };
        let exec = self.launch_exec(&entry, ExecConfig { program, builtin: false, spec: config }).await?;
        self.event(EventKind::ExecStart, &entry, &[("exec", exec.id.clone())]);
        if let Some(seconds) = timeout {
            let (core, exec) = (Arc::downgrade(&self), exec.clone());
            tokio::spawn(async move {
                let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                if tokio::time::timeout(time, exec.ended()).await.is_err() && core.strong_count() > 0 {
                    let ask = ExecCommand::Signal { signal: spec::KILL };
                    // One that has just ended is what is wanted.
                    let _ =
                        exec.keeper.ask(KeeperCommand::ToExec { exec: exec.id.clone(), command: ask }).await;
                }
            });
        }
        Ok(exec.describe())
    }

    /// Starts a program of ours, as root.
    pub async fn run_in(&self, entry: &Arc<Entry>, program: Program) -> Result<Arc<Exec>, Problem> {
        let row = entry.row();
        let Program { argv, builtin, stdin, discard: detach } = program;
        let spec = api::CreateExec { command: argv.clone(), stdin, detach, ..Default::default() };
        let mut program = doppel_spec::Program::new(argv);
        program.env = spec::environment(&row.config.env, false, "/root");
        self.launch_exec(entry, ExecConfig { program, builtin, spec }).await
    }

    async fn launch_exec(
        &self,
        entry: &Arc<Entry>,
        config: ExecConfig<String>,
    ) -> Result<Arc<Exec>, Problem> {
        check_runs(entry)?;
        let keeper = self.keeper_of(entry)?;
        let exec = Arc::new(Exec {
            id: names::id(),
            domain: entry.id.clone(),
            run: locked(&entry.row).run,
            keeper: keeper.clone(),
            config: config.spec.clone(),
            pid: Mutex::new(None),
            printed: Mutex::default(),
            given: Arc::default(),
            state: watch::channel(Status::default()).0,
            ended: Mutex::default(),
        });
        // Before it is asked for: its first words may come before the answer.
        locked(&self.execs.0).insert(exec.id.clone(), exec.clone());
        let unanswered = Unanswered { core: self, exec: &exec };
        let ask = KeeperCommand::Exec { id: entry.id.clone(), exec: exec.id.clone(), spec: Box::new(config) };
        let said = keeper.ask(ask).await;
        std::mem::forget(unanswered);
        match said {
            Ok(Reply::ExecStarted { pid }) => {
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
        exec.read(at);
        // A program that has ended sends nothing more.
        if !exec.has_ended() {
            exec.tell_owed();
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

    async fn to_exec(&self, exec: &Exec, ask: ExecCommand) -> Result<(), Problem> {
        exec.keeper.ask(KeeperCommand::ToExec { exec: exec.id.clone(), command: ask }).await.map(drop)
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
            let ask = ExecCommand::Input { data, close, at: Some(*at) };
            let said = exec.keeper.ask(KeeperCommand::ToExec { exec: exec.id.clone(), command: ask }).await;
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
        self.to_exec(exec, ExecCommand::Resize { rows: to.rows, columns: to.columns }).await
    }

    pub async fn exec_kill(&self, exec: &Exec, how: &api::KillOptions) -> Result<(), Problem> {
        let signal = how.signal.as_deref().map_or(Ok(spec::KILL), spec::signal)?;
        self.to_exec(exec, ExecCommand::Signal { signal }).await
    }

    /// Hangs up a program of ours.
    pub async fn release(&self, exec: &Exec) {
        if !exec.has_ended() {
            // It may have ended just now.
            let _ = self.to_exec(exec, ExecCommand::Release).await;
        }
        locked(&self.execs.0).remove(&exec.id);
    }
}
