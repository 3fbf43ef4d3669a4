//! All clients of one process: who has something to do, and threads that do it.

mod crew;
mod stays;
mod turns;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::SIZE;
use doppel_service::{Channel, Heartbeat, Load};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::client::{Client, Next, Taken, WRITERS};
use crate::descriptors::followed;
use crate::files::{Outcome, perform};
use crate::host::Host;
use crate::nodes::Nodes;
use crate::pins::Pins;
use crate::throttle::Limits;
use crate::volume::{DiskFiles, Volume};
use crew::{Crew, Part};
use turns::{Clock, Each, Place, Seen};
pub(crate) use turns::{Pace, Takes};

/// Names a client of an engine: its place, and how many were there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(usize, u64);

const CONTROL: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
const BELL: Token = Token(usize::MAX - 2);
const EVENTS: usize = 64;
/// Requests after which it is looked who else has something to ask, and how long these may take.
const TURN: u32 = 8;
const TURN_TIME: Duration = Duration::from_micros(50);
/// Requests of one client that are worked on at once while more than half of the threads are free, and otherwise.
const MOST: u32 = 8;
const FEW: u32 = 2;
/// What it says to a thread that cannot be had.
const STACK: usize = 256 << 10;

/// What the supervisor's orders are followed by. An error ends the process; true: nobody orders any more.
pub(crate) trait Orders: Send {
    /// Follows what has been said.
    fn follow(&mut self, engine: &Engine, core: &mut Core) -> io::Result<bool>;
}

/// All clients of one process, and its threads.
pub struct Engine {
    core: Mutex<Core>,
    crew: Crew<Taken>,
    threads: u32,
    /// Its threads may look for work instead of sleeping.
    polls: bool,
    host: Arc<Host>,
    waker: Waker,
    /// Why it ended.
    end: Mutex<Option<io::Result<()>>>,
    over: Condvar,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// What the thread that leads has.
pub(crate) struct Core {
    poll: Poll,
    events: Events,
    clients: Vec<Place>,
    count: u64,
    /// Places of those that take part in turns ([`turns`]).
    active: Vec<usize>,
    /// So many requests are taken before it is looked who else has something to ask, and when that was.
    left: u32,
    looked: Instant,
    /// The most that any of their clocks has shown.
    latest: Each<u64>,
    pace: doppel_service::Pace,
    load: Load,
    heart: Option<Heartbeat>,
    bell: Option<OwnedFd>,
    orders: Option<Box<dyn Orders>>,
    /// When to look for files that are not written any more.
    look: Option<Instant>,
}

impl Engine {
    /// One without clients, of so many threads ([`Self::start`]); before it is confined, as it opens what it works with.
    ///
    /// # Errors
    /// What the host says.
    pub fn new(threads: u32, polls: bool) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let host = Host::new()?;
        host.descriptors.set_registry(poll.registry().try_clone()?);
        let now = Instant::now();
        let core = Core {
            poll,
            events: Events::with_capacity(EVENTS),
            clients: Vec::new(),
            count: 0,
            active: Vec::new(),
            left: 0,
            looked: now,
            latest: Each::default(),
            pace: if polls {
                doppel_service::Pace::new(now)
            } else {
                doppel_service::Pace::without_polls(now)
            },
            load: Load::open()?,
            heart: None,
            bell: None,
            orders: None,
            look: None,
        };
        Ok(Self {
            core: Mutex::new(core),
            crew: Crew::new(),
            threads,
            polls,
            host: Arc::new(host),
            waker,
            end: Mutex::new(None),
            over: Condvar::new(),
        })
    }

    /// Follows these orders, which come by this socket.
    pub(crate) fn set_orders(&self, control: BorrowedFd<'_>, orders: Box<dyn Orders>) -> io::Result<()> {
        let mut core = self.core();
        core.watch(control, CONTROL)?;
        core.orders = Some(orders);
        Ok(())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a domain before it is started: its channel, and what it knows of these volumes' files.
    ///
    /// # Errors
    /// What the host says.
    pub fn attach(
        &self,
        memory: &OwnedFd,
        doorbell: OwnedFd,
        nodes: &OwnedFd,
        volumes: Vec<Volume>,
    ) -> io::Result<ClientId> {
        let channel = Channel::open(memory, doorbell, None, SIZE)?;
        let nodes = Nodes::open(nodes, volumes, self.host.clone(), Pins::default(), Vec::new())?;
        self.core().enter(&self.host, channel, nodes)
    }

    /// Serves it no more.
    pub fn detach(&self, id: ClientId) {
        self.core().detach(id);
    }

    /// What clients share.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Starts its threads.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(self: &Arc<Self>) -> io::Result<Vec<JoinHandle<()>>> {
        let (threads, go) = self.start_held()?;
        go.wait();
        Ok(threads)
    }

    /// The same, but they do nothing before somebody waits at the barrier.
    pub(crate) fn start_held(self: &Arc<Self>) -> io::Result<(Vec<JoinHandle<()>>, Arc<Barrier>)> {
        let barrier = || Arc::new(Barrier::new(self.threads as usize + 1));
        let (begun, go) = (barrier(), barrier());
        let mut threads = Vec::new();
        for n in 0..self.threads {
            let (engine, begun, go) = (self.clone(), begun.clone(), go.clone());
            let work = move || {
                let _ends = EndsProcess;
                begun.wait();
                go.wait();
                engine.serve();
            };
            threads.push(
                std::thread::Builder::new().name(format!("storage-{n}")).stack_size(STACK).spawn(work)?,
            );
        }
        begun.wait();
        Ok((threads, go))
    }

    /// Has its threads end.
    pub fn stop(&self) {
        self.end_with(Ok(()));
    }

    fn end_with(&self, why: io::Result<()>) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.over.notify_all();
        self.crew.end();
        // It is there.
        let _ = self.waker.wake();
    }

    /// Waits until it ends.
    pub(crate) fn ended(&self) -> io::Result<()> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match end.take() {
                Some(why) => return why,
                None => end = self.over.wait(end).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Works as one of its threads, until it ends.
    pub(crate) fn serve(&self) {
        loop {
            if self.crew.join() {
                let _ = self.waker.wake();
            }
            match self.crew.part() {
                Part::End => return,
                Part::Lead(count) => self.lead(count),
                Part::Job((client, request, begun)) => {
                    let outcome = perform(&client, &self.host, &request, true);
                    self.answer(&client, outcome, (begun, Takes::Device));
                    self.stay(&client);
                }
            }
        }
    }

    /// Answers what somebody has done who does not lead.
    fn answer(&self, client: &Client, outcome: Outcome, begun: (Instant, Takes)) {
        let Outcome::Done(answer, traffic) = outcome else { return };
        if client.answer(answer, begun, traffic, true) {
            let _ = self.waker.wake();
        }
    }

    /// Leads until it is relieved.
    fn lead(&self, mut count: u64) {
        loop {
            let next = self.core().next(self);
            let (client, request, begun) = match next {
                Ok(Some(taken)) => taken,
                Ok(None) => return self.end_with(Ok(())),
                Err(error) => return self.end_with(Err(error)),
            };
            self.crew.begin(count);
            let takes = Takes::of(&request);
            let waits = self.crew.free() < 2;
            let outcome = perform(&client, &self.host, &request, waits);
            let waits = matches!(outcome, Outcome::Waits);
            if let Outcome::Done(answer, traffic) = outcome {
                client.answer(answer, (begun, takes), traffic, false);
            }
            let goes_on = self.crew.finish(count);
            if waits {
                client.pace.waits(takes, begun);
                let since = (begun, Takes::Device);
                let Some(goes_on) = goes_on else {
                    return self.answer(&client, perform(&client, &self.host, &request, true), since);
                };
                count = goes_on;
                if client.asks_no_more() && self.crew.hand_over() {
                    self.answer(&client, perform(&client, &self.host, &request, true), since);
                    return self.stay(&client);
                }
                if let Err((client, request, _)) = self.crew.give((client, request, begun)) {
                    self.crew.begin(count);
                    self.answer(&client, perform(&client, &self.host, &request, true), since);
                    match self.crew.finish(count) {
                        Some(goes_on) => count = goes_on,
                        None => return,
                    }
                }
                continue;
            }
            match goes_on {
                Some(goes_on) => count = goes_on,
                // Who leads now may wait for what this has done, and the guest kernel for being woken.
                None => {
                    client.insist();
                    let _ = self.waker.wake();
                    return;
                }
            }
        }
    }

    /// Does everything there is to do on this thread, which is the only one.
    ///
    /// # Errors
    /// What the host says.
    pub fn turn(&self) -> io::Result<()> {
        let mut core = self.core();
        core.poll(Some(Duration::ZERO))?;
        while let Some((client, request, begun)) = core.pick(MOST) {
            let outcome = perform(&client, &self.host, &request, true);
            self.answer(&client, outcome, (begun, Takes::of(&request)));
        }
        Ok(())
    }

    /// Requests of one client that may be worked on at once.
    fn most(&self) -> u32 {
        if self.crew.free() * 2 > self.threads { MOST } else { FEW }
    }
}

/// What a thread that panics leaves behind may be of any shape: a successor begins anew.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Core {
    fn watch(&self, source: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&source.as_raw_fd()), token, Interest::READABLE)
    }

    /// It is watched by this heart, and asked by this bell.
    pub fn set_heart(&mut self, heart: Heartbeat, bell: OwnedFd) -> io::Result<()> {
        use std::os::fd::AsFd;
        self.watch(bell.as_fd(), BELL)?;
        (self.heart, self.bell) = (Some(heart), Some(bell));
        Ok(())
    }

    /// Another step of work.
    pub fn beat(&mut self) {
        self.heart.iter_mut().for_each(Heartbeat::beat);
    }

    /// Serves a domain.
    pub fn enter(&mut self, host: &Host, channel: Channel, nodes: Nodes) -> io::Result<ClientId> {
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        self.watch(channel.doorbell(), Token(place))?;
        self.count += 1;
        if place == self.clients.len() {
            self.clients.push(None);
        }
        nodes.changes().set_place(place);
        self.clients[place] = Some((self.count, Arc::new(Client::new(channel, nodes)), Clock::default()));
        host.share(self.clients.iter().flatten().count());
        Ok(ClientId(place, self.count))
    }

    fn client(&self, id: ClientId) -> Option<&Arc<Client>> {
        let (count, client, _) = self.clients.get(id.0)?.as_ref()?;
        (*count == id.1).then_some(client)
    }

    /// A domain has these limits from here on.
    pub fn limit(&self, id: ClientId, limits: &Limits) {
        self.client(id).into_iter().for_each(|client| client.limit(limits));
    }

    /// A disk of a domain is made of these files from here on.
    pub fn switch_disk(&self, id: ClientId, volume: usize, files: DiskFiles) -> io::Result<()> {
        self.client(id).map_or(Ok(()), |client| client.nodes().switch_disk(volume, files))
    }

    /// Serves it no more.
    pub fn detach(&mut self, id: ClientId) {
        if self.client(id).is_some() {
            self.drop_client(id.0);
        }
    }

    fn drop_client(&mut self, place: usize) {
        self.active.retain(|active| *active != place);
        if let Some((_, client, _)) = self.clients[place].take() {
            // The supervisor has the doorbell too, so that closing ours does not end the watch.
            let doorbell = client.link().channel.doorbell().as_raw_fd();
            let _ = self.poll.registry().deregister(&mut SourceFd(&doorbell));
        }
    }

    /// Waits for a request; none: it is over.
    fn next(&mut self, engine: &Engine) -> io::Result<Option<Taken>> {
        loop {
            if engine.crew.free() > 0
                && let Some(taken) = self.pick(engine.most())
            {
                self.beat();
                return Ok(Some(taken));
            }
            let told = self.wait(engine)?;
            if engine.crew.is_over() {
                return Ok(None);
            }
            if told && let Some(mut orders) = self.orders.take() {
                self.beat();
                let over = orders.follow(engine, self)?;
                self.orders = Some(orders);
                if over {
                    return Ok(None);
                }
            }
        }
    }

    /// The next request, by turns of clients.
    fn pick(&mut self, most: u32) -> Option<Taken> {
        let now = Instant::now();
        if self.left > 0
            && now.saturating_duration_since(self.looked) < TURN_TIME
            && let Some(taken) = self.pick_active(most, now)
        {
            self.left -= 1;
            return Some(taken);
        }
        self.look_who_asks(most, now);
        self.pick_active(most, now)
    }

    /// Finds those that take part from here on, and those that do no more.
    fn look_who_asks(&mut self, most: u32, now: Instant) {
        (self.left, self.looked) = (TURN, now);
        let mut least: Each<Option<u64>> = Each::default();
        let (clients, latest) = (&mut self.clients, &mut self.latest);
        self.active.retain(|&place| {
            let Some((_, client, clock)) = clients.get_mut(place).and_then(Option::as_mut) else {
                return false;
            };
            let seen = clock.look(place, client);
            clock.active = !seen.rests(now) || client.speaks(most);
            for (i, runs) in clock.runs().into_iter().enumerate() {
                let shows = seen.shows[i];
                latest[i] = latest[i].max(shows);
                if clock.active && runs {
                    least[i] = Some(least[i].map_or(shows, |least| least.min(shows)));
                }
            }
            clock.active
        });
        let least = [0, 1].map(|i| least[i].unwrap_or(latest[i]));
        for &place in &self.active {
            if let Some((_, client, clock)) = self.clients.get_mut(place).and_then(Option::as_mut) {
                let seen = clock.look(place, client);
                clock.run(&seen, client.speaks(most), least, now);
            }
        }
        for (place, (_, client, clock)) in
            self.clients.iter_mut().enumerate().filter_map(|(place, c)| Some((place, c.as_mut()?)))
        {
            if !clock.active && client.speaks(most) {
                clock.begin(least);
                self.active.push(place);
            }
        }
    }

    /// The next request of those that take part.
    fn pick_active(&mut self, most: u32, now: Instant) -> Option<Taken> {
        if let [place] = self.active[..] {
            return self.take(place, most, now);
        }
        let mut order: Vec<Seen> = Vec::with_capacity(self.active.len());
        for &place in &self.active {
            if let Some((_, client, clock)) = self.clients.get_mut(place).and_then(Option::as_mut) {
                order.push(clock.look(place, client));
            }
        }
        order.sort_unstable_by_key(Seen::work);
        for seen in &order {
            if order.iter().any(|other| seen.waits_for(other, now)) {
                continue;
            }
            if let Some(taken) = self.take(seen.place, most, now) {
                return Some(taken);
            }
        }
        None
    }

    fn take(&mut self, place: usize, most: u32, now: Instant) -> Option<Taken> {
        let (_, client, _) = self.clients.get(place)?.as_ref()?;
        let client = client.clone();
        match client.take(most, now) {
            Next::Request(request) => return Some((client, request, Instant::now())),
            Next::Nothing => {}
            Next::Broken => {
                doppel_service::say(format_args!("a domain has broken the storage service's protocol"));
                self.drop_client(place);
            }
        }
        None
    }

    /// Waits for something to do. True: the supervisor has said something.
    fn wait(&mut self, engine: &Engine) -> io::Result<bool> {
        let now = Instant::now();
        self.look_for_writers(now);
        let most = engine.most();
        if engine.crew.free() == 0 {
            return self.wait_for_a_thread(engine);
        }
        let busy = self.any(|client| client.speaks(most));
        if busy {
            self.pace.works(now);
        }
        let stay =
            busy || {
                let load = &mut self.load;
                self.pace.polls(now, || load.is_crowded(now))
            } || !self.rest(most);
        let told = self.poll(if stay { Some(Duration::ZERO) } else { self.patience(now) })?;
        if !stay {
            self.pace.slept(now, Instant::now());
            self.stay_awake();
        }
        Ok(told)
    }

    /// All threads wait for the host: nothing is begun before one is free.
    fn wait_for_a_thread(&mut self, engine: &Engine) -> io::Result<bool> {
        if !engine.crew.wants_one() {
            return Ok(false);
        }
        self.heart.iter_mut().for_each(Heartbeat::rest);
        self.any(|client| {
            client.insist();
            false
        });
        self.poll(None)
    }

    fn patience(&self, now: Instant) -> Option<Duration> {
        let released = self.clients.iter().flatten().filter_map(|(_, client, _)| client.release()).min();
        let next = [self.look, released].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(now).max(Duration::from_millis(1)))
    }

    /// Closes files that are not written any more, if it is time.
    fn look_for_writers(&mut self, now: Instant) {
        if self.look.is_some_and(|look| now >= look) {
            let left =
                self.clients.iter().flatten().filter(|(_, client, _)| client.close_writers(now)).count();
            self.look = (left > 0).then(|| now + WRITERS);
        } else if self.look.is_none() && self.any(|client| client.writes.load(Ordering::Relaxed)) {
            self.look = Some(now + WRITERS);
        }
    }

    fn any(&self, what: impl FnMut(&Client) -> bool) -> bool {
        self.clients.iter().flatten().map(|(_, client, _)| &**client).any(what)
    }

    /// Waits so long, and clears doorbells. True: the supervisor has said something.
    fn poll(&mut self, time: Option<Duration>) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, time) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(false),
            polled => polled?,
        }
        let (mut told, mut asked) = (false, false);
        let mut changed = Vec::new();
        for event in &self.events {
            match event.token() {
                CONTROL => told = true,
                WAKER => {}
                BELL => {
                    asked = true;
                    // Nothing to read is as good.
                    self.bell.iter().for_each(|bell| {
                        let _ = rustix::io::read(bell, &mut [0; 8]);
                    });
                }
                token if let Some(place) = followed(token) => changed.push(place),
                Token(place) => {
                    if let Some(Some((_, client, _))) = self.clients.get(place) {
                        client.link().channel.rung();
                    }
                }
            }
        }
        if asked || !changed.is_empty() {
            self.beat();
        }
        for place in changed {
            if let Some(Some((_, client, _))) = self.clients.get(place) {
                client.changes().set_told();
                client.hear_changes();
            }
        }
        Ok(told)
    }

    /// Asks for all doorbells; false if there is something to do.
    fn rest(&mut self, most: u32) -> bool {
        let silent = !self.any(|client| !client.sleeps(most));
        if silent {
            self.heart.iter_mut().for_each(Heartbeat::rest);
        } else {
            self.stay_awake();
        }
        silent
    }

    fn stay_awake(&self) {
        self.any(|client| {
            client.link().channel.stay_awake();
            false
        });
    }
}
