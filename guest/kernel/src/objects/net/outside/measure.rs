//! What the host knows of a socket: asked for when a program wants to know, which waits for the answer.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use doppel_abi_service::net::{MEASURES, Measure, Request};
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;

use super::{Network, Pending};
use crate::Errno;
use crate::core::sched::{PollEvents, WaitQueue};
use crate::core::time;
use crate::objects::net::common::wait;

/// How long a program waits: a service domain that has died or hangs is replaced before.
const PATIENCE: u64 = 1_000_000_000;

/// How far a question is.
enum State {
    Asked,
    /// Nobody wants the answer any more.
    Abandoned,
    Answered(Option<Box<Measure>>),
}

/// Questions under way: by place in the channel, each with a number of its own.
#[derive(Default)]
struct Questions {
    all: BTreeMap<u16, (u64, State)>,
    last: u64,
}

/// Questions under way, and who waits for them or for a place.
#[derive(Default)]
pub(super) struct Measures {
    questions: SpinLock<Questions>,
    waiting: WaitQueue,
}

impl Measures {
    /// A place that nobody uses, and the question's number.
    fn begin(&self) -> Option<(u16, u64)> {
        let mut q = self.questions.lock();
        let place = (0..MEASURES).find(|place| !q.all.contains_key(place))?;
        q.last += 1;
        let id = q.last;
        q.all.insert(place, (id, State::Asked));
        Some((place, id))
    }

    /// The answer, if it is there; another service domain does not know of the question.
    fn take(&self, place: u16, id: u64) -> Option<Option<Box<Measure>>> {
        let mut q = self.questions.lock();
        match q.all.get(&place) {
            Some((of, State::Answered(_))) if *of == id => {}
            Some((of, _)) if *of == id => return None,
            _ => return Some(None),
        }
        let (_, state) = q.all.remove(&place)?;
        drop(q);
        self.wake();
        Some(if let State::Answered(said) = state { said } else { None })
    }

    /// Nobody waits any more; the place is free when the answer has come.
    fn abandon(&self, place: u16, id: u64) {
        let mut q = self.questions.lock();
        match q.all.get_mut(&place) {
            Some((of, State::Answered(_))) if *of == id => {
                q.all.remove(&place);
            }
            Some((of, state)) if *of == id => *state = State::Abandoned,
            _ => {}
        }
    }

    /// The service has answered.
    pub(super) fn answered(&self, place: u16, id: u64, result: Result<(), Errno>) {
        let said = result.is_ok().then(|| Box::new(channel::measured(place)));
        let mut q = self.questions.lock();
        match q.all.get_mut(&place) {
            Some((of, State::Abandoned)) if *of == id => {
                q.all.remove(&place);
            }
            Some((of, state)) if *of == id => *state = State::Answered(said),
            _ => {}
        }
        drop(q);
        self.wake();
    }

    /// The service domain is another one: what it was asked is not answered.
    pub(super) fn lose(&self) {
        self.questions.lock().all.clear();
        self.wake();
    }

    fn wake(&self) {
        self.waiting.wake_all(PollEvents::IN);
    }
}

impl Network {
    /// What the host knows of a socket; none if it is none of the host's, or the service does not say.
    pub fn measure(&self, n: u32) -> Option<Box<Measure>> {
        let m = &self.measures;
        let until = Some(time::monotonic_ns().saturating_add(PATIENCE));
        let (place, id) = wait(&m.waiting, false, until, || m.begin().map(Ok)).ok()?;
        self.ask(Pending::Measure(place, id), Request::Measure { socket: n, place });
        let said = wait(&m.waiting, false, until, || m.take(place, id).map(Ok));
        if said.is_err() {
            m.abandon(place, id);
        }
        said.ok().flatten()
    }
}
