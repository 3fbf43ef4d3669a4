//! The clones of one `doppel clone` command: a fleet, and when each of them did what.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use doppel_domain::{
    Captured, DomainConfig, Ended, Error, Event, Fleet, Key, Outcome, Output, Pool, Resume, Start, Stream,
};
use doppel_freezer::FrozenImage;
use doppel_storage::Manager;

use crate::options::storage::Storage;
use crate::standalone::freeze::{CloneArgs, Outcomes, warn};
use crate::terminal::lines::Lines;
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::{say, tell};

/// How a clone went.
#[derive(serde::Serialize)]
pub struct CloneEnd {
    name: String,
    index: u32,
    pub exit_code: u8,
    stdout: String,
    stderr: String,
    /// Milliseconds from the command's start until this clone was asked for, started, gave its first byte, ended.
    asked_ms: f64,
    started_ms: f64,
    first_output_ms: Option<f64>,
    ended_ms: f64,
}

/// One clone so far.
pub struct Clone {
    asked: Instant,
    started: Instant,
    held: bool,
    /// What it prints, if that is shown as it comes.
    lines: Option<Lines>,
    /// How it ended, or why it did not start.
    pub end: Option<Result<CloneEnd, String>>,
}

/// All of them.
pub struct Clones {
    pub fleet: Fleet,
    /// When the call was made; all times count from then.
    pub called: Instant,
    indices: HashMap<Key, u32>,
    /// By number.
    pub all: BTreeMap<u32, Clone>,
    /// What they print is shown as it comes, and else kept.
    shown: bool,
    /// Their layers, until all have ended.
    storages: Vec<Storage>,
    service: Option<Arc<Manager>>,
}

impl Clones {
    pub fn new(called: Instant, shown: bool) -> Result<Self, Error> {
        Ok(Self {
            fleet: Fleet::new()?,
            called,
            shown,
            indices: HashMap::new(),
            all: BTreeMap::new(),
            storages: Vec::new(),
            service: None,
        })
    }

    /// Starts as many as are wanted.
    pub fn start(
        &mut self,
        args: &CloneArgs,
        image: &Arc<FrozenImage>,
        config: &DomainConfig,
        store: &Path,
    ) -> Result<(), Box<dyn std::error::Error>> {
        for index in 1..=args.n {
            let resume = Resume { image: image.clone(), index, wake: false, hold: args.warm };
            let mut config = config.clone();
            if let (Some(name), true) = (&mut config.spec.name, args.n > 1) {
                name.push_str(&format!("-{index}"));
            }
            let storage = Storage::of_clone(image, index, &config.spec.resources, store, &mut self.service)?;
            storage.give(&mut config);
            self.storages.push(storage);
            let key = self.fleet.start(Start::Resume(resume, Box::new(config)), Output::Kept);
            self.begin(key, index);
        }
        self.storages.iter().try_for_each(Storage::wait_served)
    }

    fn begin(&mut self, key: Key, index: u32) {
        let now = Instant::now();
        self.indices.insert(key, index);
        self.all.insert(index, Clone { asked: now, started: now, held: false, lines: None, end: None });
    }

    /// Those that are not ready yet.
    pub fn waiting(&self) -> impl Iterator<Item = &Clone> {
        self.all.values().filter(|c| !c.held && c.end.is_none())
    }

    /// Lets all go that are ready.
    pub fn all_go(&mut self, config: &DomainConfig) {
        let keys: Vec<(Key, u32)> = self.indices.iter().map(|(k, i)| (*k, *i)).collect();
        for (key, index) in keys {
            if self.all.get(&index).is_some_and(|c| c.held) {
                self.go(key, index, config);
            }
        }
    }

    fn go(&mut self, key: Key, index: u32, config: &DomainConfig) {
        let now = Instant::now();
        let gone = self.fleet.go(key, config);
        let Some(clone) = self.all.get_mut(&index) else { return };
        (clone.asked, clone.started) = (now, Instant::now());
        if let Err(error) = gone {
            clone.end = Some(Err(error.to_string()));
            // What it says at its end is of no interest.
            self.indices.remove(&key);
            if let Err(error) = self.fleet.kill(key) {
                warn(&error.to_string());
            }
        }
    }

    /// Lets them run until `over`.
    pub fn run_until(&mut self, over: impl Fn(&Self) -> bool) -> Result<(), Box<dyn std::error::Error>> {
        while !over(self) {
            for event in self.fleet.turn(None)? {
                match &event {
                    Event::Started { key, .. } if self.shown => self.show(*key)?,
                    Event::Ended(ended) if self.shown => self.show_rest(ended)?,
                    _ => {}
                }
                self.note(event);
            }
        }
        Ok(())
    }

    /// Has what a clone prints shown from now on; what it has printed before this was heard was kept.
    fn show(&mut self, key: Key) -> io::Result<()> {
        let Some(domain) = self.fleet.get(key) else { return Ok(()) };
        let lines = Lines::new(domain.name());
        print(&lines, domain.captured())?;
        if let Some(clone) = self.get(key) {
            clone.lines = Some(lines.clone());
        }
        self.fleet.redirect(key, Output::To(Box::new(lines)));
        Ok(())
    }

    /// Shows what is left of a clone that has ended: all, if its start was not heard before.
    fn show_rest(&mut self, ended: &Ended) -> io::Result<()> {
        if let Some(lines) = self.get(ended.key).and_then(|clone| clone.lines.take()) {
            return lines.end();
        }
        let lines = Lines::new(ended.name.clone());
        print(&lines, &ended.captured)?;
        lines.end()
    }

    fn note(&mut self, event: Event) {
        let now = Instant::now();
        let (key, failed) = match event {
            Event::Started { key, warnings } => {
                for text in warnings {
                    warn(&text);
                }
                if let Some(clone) = self.get(key) {
                    clone.started = now;
                }
                return;
            }
            Event::Held(key) => {
                if let Some(clone) = self.get(key) {
                    clone.held = true;
                }
                return;
            }
            Event::Frozen { key, result: Err(error) } | Event::FrozeItself { key, result: Err(error) } => {
                (key, error.to_string())
            }
            Event::Failed { key, error } => (key, error.to_string()),
            Event::Ended(ended) => {
                let called = self.called;
                if let Some(index) = self.indices.remove(&ended.key)
                    && let Some(clone) = self.all.get_mut(&index)
                {
                    clone.end = Some(Ok(end_of(*ended, index, clone, called, now)));
                }
                return;
            }
            _ => return,
        };
        if matches!(self.fleet.get(key), Some(domain) if !domain.is_asleep()) {
            // It runs on, it just could not freeze itself.
            tell!("doppel: {failed}");
        } else if let Some(index) = self.indices.remove(&key)
            && let Some(clone) = self.all.get_mut(&index)
        {
            clone.end = Some(Err(failed));
        }
    }

    fn get(&mut self, key: Key) -> Option<&mut Clone> {
        self.all.get_mut(self.indices.get(&key)?)
    }

    /// Calls one clone after the other out of a pool, as a server would; prints how each went.
    pub fn repeat(&mut self, args: &CloneArgs, image: Arc<FrozenImage>, config: &DomainConfig) -> Outcomes {
        if args.spec.name.is_some() {
            return Err("clones of a pool have no names of their own; leave out --name".into());
        }
        let mut pool = Pool::new(image, config.clone(), args.n as usize);
        let mut code = 0;
        for _ in 0..args.repeat {
            pool.fill(&mut self.fleet);
            while !pool.is_full() {
                for event in self.fleet.turn(None)? {
                    pool.note(&event);
                    match event {
                        Event::Failed { error, .. } => return Err(error.into()),
                        Event::Ended(ended) => {
                            return Err(format!("clone {} ended before it was ready", ended.name).into());
                        }
                        _ => {}
                    }
                }
            }
            let (key, index) = pool.take().ok_or("the pool is empty")?;
            self.called = Instant::now();
            self.begin(key, index);
            self.go(key, index, config);
            while self.all.get(&index).is_some_and(|c| c.end.is_none()) {
                for event in self.fleet.turn(None)? {
                    pool.note(&event);
                    self.note(event);
                }
            }
            let end = self.all.remove(&index).and_then(|c| c.end).ok_or("the clone was lost")??;
            say!("{}", serde_json::to_string(&end)?)?;
            code = if code == 0 { end.exit_code } else { code };
        }
        Ok(ExitCode::from(code))
    }
}

fn print(lines: &Lines, kept: &Captured) -> io::Result<()> {
    lines.print(Stream::Stdout, &kept.stdout)?;
    lines.print(Stream::Stderr, &kept.stderr)
}

fn end_of(ended: Ended, index: u32, clone: &Clone, called: Instant, now: Instant) -> CloneEnd {
    let since = |t: Instant| t.saturating_duration_since(called).as_secs_f64() * 1000.0;
    let exit_code = match &ended.outcome {
        Outcome::Exited(code) => *code,
        Outcome::Ended { reason, .. } => {
            tell!("doppel: domain {} ended: {reason}", ended.name);
            TOOL_ERROR
        }
    };
    CloneEnd {
        index,
        exit_code,
        stdout: String::from_utf8_lossy(&ended.captured.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&ended.captured.stderr).into_owned(),
        asked_ms: since(clone.asked),
        started_ms: since(clone.started),
        first_output_ms: ended.first_output.map(since),
        ended_ms: since(now),
        name: ended.name,
    }
}
