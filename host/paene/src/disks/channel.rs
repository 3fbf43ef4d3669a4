//! The guest kernel's end of the channel to the storage service (`common/abi/service`, docs/services.md), for threads that each
//! have a slot, ask in it, and wait.
//!
//! Of those that wait one looks, and the others wait for it. Whoever follows a service that died is asked again for what was under way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use doppel_abi_service::storage::{Answer, Attributes, FILE_EVENTS, FileEvents, Request, SIZE, flags, shown};
use doppel_abi_service::{Answers, ChannelHeader, Requests, layout, sleeps};
use doppel_ring::{Consumer, Producer, Ticket};
use doppel_sys::shared::{SharedMap, offset};
use rustix::event::Timespec;
use rustix::thread::futex;

/// How long who looks sleeps at most: nobody else looks whether the service is another one.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The end.
pub(super) struct Channel {
    pub map: SharedMap,
    doorbell: OwnedFd,
    rings: Mutex<Rings>,
    /// Who waits in each slot.
    waiting: Vec<Condvar>,
}

#[derive(Default)]
struct Rings {
    epoch: u32,
    requests: Producer,
    answers: Consumer,
    tickets: u64,
    /// What is under way, by slot, and whether it is in the ring.
    asked: Vec<Option<(Request, bool)>>,
    done: Vec<Option<Answer>>,
    /// Somebody sleeps on the service's word.
    looks: bool,
}

impl Channel {
    /// One with so many slots.
    pub fn new(memory: &OwnedFd, doorbell: OwnedFd, slots: u16) -> io::Result<Self> {
        let slots = usize::from(slots);
        let rings = Rings { asked: vec![None; slots], done: vec![None; slots], ..Rings::default() };
        Ok(Self {
            map: SharedMap::new(memory.as_fd(), offset(SIZE))?,
            doorbell,
            rings: Mutex::new(rings),
            waiting: (0..slots).map(|_| Condvar::new()).collect(),
        })
    }

    fn header(&self) -> &ChannelHeader {
        self.map.get(offset(layout::HEADER))
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        // Whoever panicked has ended the process.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the service do something in this slot, which nobody else uses; the errno if it does not.
    pub fn call(&self, slot: u16, request: Request) -> Result<Answer, u16> {
        let place = usize::from(slot);
        let mut rings = self.lock();
        rings.tickets += 1;
        let request = Request { slot, ticket: Ticket(rings.tickets), ..request };
        rings.asked[place] = Some((request, false));
        loop {
            self.hear(&mut rings);
            if let Some(answer) = rings.done[place].take() {
                self.pass_on(&rings);
                drop(rings);
                return if answer.error == 0 { Ok(answer) } else { Err(answer.error) };
            }
            if rings.looks {
                rings = self.waiting[place].wait(rings).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            rings = self.look(rings);
        }
    }

    /// The attributes that the last answer in a slot came with.
    pub fn shown(&self, slot: u16) -> Attributes {
        let mut bytes = [0; Attributes::BYTES];
        self.map.read(offset(shown(slot)), &mut bytes);
        Attributes::decode(&bytes)
    }

    /// Sleeps until the service has news.
    fn look<'a>(&'a self, mut rings: MutexGuard<'a, Rings>) -> MutexGuard<'a, Rings> {
        let header = self.header();
        let bell = header.bell.load(Ordering::SeqCst);
        header.watched.store(1, Ordering::SeqCst);
        header.guest_sleeps.store(sleeps::IDLE, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let answers = self.map.get::<Answers>(offset(layout::ANSWERS)).ring();
        let there = rings.epoch != 0 && rings.answers.waiting(&answers).is_ok_and(|n| n > 0);
        if header.epoch.load(Ordering::SeqCst) == rings.epoch && !there {
            rings.looks = true;
            drop(rings);
            // Any outcome is followed by another look.
            let _ = futex::wait(&header.bell, futex::Flags::empty(), bell, Some(&LOOK));
            rings = self.lock();
            rings.looks = false;
        }
        header.guest_sleeps.store(sleeps::NOT, Ordering::SeqCst);
        rings
    }

    /// Has somebody else look who waits.
    fn pass_on(&self, rings: &Rings) {
        if !rings.looks
            && let Some(place) = rings.asked.iter().position(Option::is_some)
        {
            self.waiting[place].notify_one();
        }
    }

    /// Asks for what is to be asked, and takes what was answered.
    fn hear(&self, rings: &mut Rings) {
        self.begin(rings);
        if rings.epoch == 0 {
            return;
        }
        self.push(rings);
        let ring = self.map.get::<Answers>(offset(layout::ANSWERS)).ring();
        // A broken ring says nothing any more; the service that broke it is replaced.
        while let Ok(Some(entry)) = rings.answers.pop(&ring) {
            let Ok(answer) = Answer::decode(&entry) else { continue };
            let place = usize::from(answer.slot);
            let asked = rings.asked.get(place).copied().flatten();
            if asked.is_some_and(|(request, _)| request.ticket == answer.ticket) {
                rings.asked[place] = None;
                rings.done[place] = Some(answer);
                self.waiting[place].notify_one();
            }
        }
        if rings.answers.release(&ring) {
            self.ring();
        }
    }

    fn push(&self, rings: &mut Rings) {
        let ring = self.map.get::<Requests>(offset(layout::REQUESTS)).ring();
        let Rings { asked, requests, .. } = rings;
        let mut some = false;
        for (request, pushed) in asked.iter_mut().flatten().filter(|(_, pushed)| !pushed) {
            // There are fewer slots than entries.
            *pushed = requests.push(&ring, &request.encode()) == Ok(true);
            some |= *pushed;
        }
        if some {
            let _ = requests.publish(&ring);
            self.ring();
        }
    }

    /// Begins the service's epoch, if it is another one.
    fn begin(&self, rings: &mut Rings) {
        let header = self.header();
        let epoch = header.epoch.load(Ordering::SeqCst);
        if epoch == rings.epoch {
            return;
        }
        let again = rings.epoch != 0;
        rings.epoch = epoch;
        (rings.requests, rings.answers) = (Producer::default(), Consumer::default());
        self.map.get::<FileEvents>(offset(FILE_EVENTS)).header.reset();
        self.map.get::<Requests>(offset(layout::REQUESTS)).header.reset();
        self.map.get::<Answers>(offset(layout::ANSWERS)).header.reset();
        header.guest_epoch.store(epoch, Ordering::SeqCst);
        for (request, pushed) in rings.asked.iter_mut().flatten() {
            request.flags |= if again && *pushed { flags::AGAIN } else { 0 };
            *pushed = false;
        }
        self.notify();
    }

    /// Has the service look, if it sleeps.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        let sleeps = &self.header().service_sleeps;
        if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::AcqRel) != 0 {
            self.notify();
        }
    }

    fn notify(&self) {
        // A counter at its maximum has rung already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }
}
