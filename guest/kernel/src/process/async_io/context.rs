//! Instances of kernel AIO (`io_setup(2)`), each at the address of its ring, as programs name them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::user::{UserPtr, bytes_of};

use super::armed::{Armed, OnReady};
use super::held::HeldFile;
use super::result::failed;
use super::ring::{IoEvent, MAX_EVENTS, Ring};
use crate::core::log::log;
use crate::core::part::Part;
use crate::core::sched::{Deadline, Mutex, PollEvents, WaitQueue, wait_until};
use crate::memory::Mm;
use crate::objects::ipc::eventfd::EventFd;
use crate::objects::ipc::timeout::Timeout;
use crate::{Errno, Result, kernel};

/// Most events that are copied to the program at once.
const AT_ONCE: usize = 64;

/// How many events all instances of the domain have room for.
#[derive(Default)]
pub struct Total(AtomicU64);

/// The domain's.
pub static TOTAL: Part<Total> = Part::new();

impl Total {
    /// See `/proc/sys/fs/aio-nr`.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What tells a program which request an event is of, and by what else it is told.
pub struct Ticket {
    /// What the program gave with it.
    pub data: u64,
    /// Its address.
    pub object: u64,
    /// An event counter that is to be told, too.
    pub counter: Option<HeldFile>,
}

/// A request that waits for a file to become ready (IOCB_CMD_POLL).
pub struct PollRequest {
    context: Arc<Context>,
    ticket: Ticket,
}

impl OnReady for PollRequest {
    fn ready(&self, _file: &HeldFile, events: PollEvents) {
        self.context.polls.lock().retain(|p| !core::ptr::eq(&raw const p.request, self));
        self.context.complete(&self.ticket, i64::from(events.bits()));
    }
}

/// An instance.
pub struct Context {
    ring: Ring,
    /// Where the program sees the ring; by this it names the instance.
    at: u64,
    /// What it asked for.
    asked: u32,
    /// Requests that have no event yet.
    flying: AtomicU32,
    polls: SpinLock<Vec<Arc<Armed<PollRequest>>>>,
    queue: WaitQueue,
    /// Held by whoever takes events.
    taking: Mutex<()>,
    destroyed: AtomicBool,
}

impl Context {
    /// An instance for so many requests at once.
    pub fn new(mm: &Mm, events: u32) -> Result<Arc<Self>> {
        if TOTAL.0.fetch_add(events.into(), Ordering::Relaxed) + u64::from(events) > MAX_EVENTS {
            TOTAL.0.fetch_sub(events.into(), Ordering::Relaxed);
            return Err(Errno::EAGAIN);
        }
        let made = Ring::new(kernel().next_id() as u32, events)
            .and_then(|ring| ring.memory.map(mm, "[aio]").map(|at| (ring, at)));
        let (ring, at) = made.inspect_err(|_| {
            TOTAL.0.fetch_sub(events.into(), Ordering::Relaxed);
        })?;
        Ok(Arc::new(Self {
            ring,
            at,
            asked: events,
            flying: AtomicU32::new(0),
            polls: SpinLock::default(),
            queue: WaitQueue::new(),
            taking: Mutex::default(),
            destroyed: AtomicBool::new(false),
        }))
    }

    /// Its address.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Most requests of one call.
    pub fn room(&self) -> u32 {
        self.ring.room()
    }

    /// Takes a place in the ring for a request; EAGAIN if all are taken.
    pub fn reserve(&self) -> Result<()> {
        let flying = self.flying.fetch_add(1, Ordering::SeqCst);
        if flying.saturating_add(self.ring.waiting()) < self.ring.room() {
            return Ok(());
        }
        self.release();
        Err(Errno::EAGAIN)
    }

    /// Gives back the place of a request that has not begun.
    pub fn release(&self) {
        self.flying.fetch_sub(1, Ordering::SeqCst);
    }

    /// A request is done.
    pub fn complete(&self, ticket: &Ticket, result: i64) {
        let event = IoEvent { data: ticket.data, object: ticket.object, result, second: 0 };
        // Its memory was reserved. Should a clone have no memory for a page of its own, the event is lost, as the domain is.
        if let Err(error) = self.ring.post(&event) {
            log(&format!("an event of asynchronous I/O is lost: {}", error.words()));
        }
        self.release();
        self.queue.wake_all(PollEvents::READABLE);
        if let Some(counter) = ticket.counter.as_ref().and_then(|f| f.downcast::<EventFd>()) {
            counter.signal(1);
        }
    }

    /// Begins to wait for a file.
    pub fn poll(self: &Arc<Self>, make: impl FnOnce(PollRequest) -> Arc<Armed<PollRequest>>, ticket: Ticket) {
        let armed = make(PollRequest { context: self.clone(), ticket });
        self.polls.lock().push(armed.clone());
        armed.begin();
    }

    /// Ends the wait of a request at this address: its event says so. EINVAL if there is none.
    pub fn cancel(&self, object: u64) -> Result<()> {
        let found = {
            let mut polls = self.polls.lock();
            let i = polls.iter().position(|p| p.request.ticket.object == object).ok_or(Errno::EINVAL)?;
            polls.remove(i)
        };
        if !found.cancel() {
            return Err(Errno::EINVAL);
        }
        self.complete(&found.request.ticket, failed(Errno::ECANCELED));
        Ok(())
    }

    /// Copies events to the program, at most `most` of them; gives how many.
    fn give(&self, to: UserPtr, most: usize) -> Result<usize> {
        let _alone = self.taking.lock();
        let (events, head) = self.ring.peek(most.min(AT_ONCE));
        let mut at = to;
        for event in &events {
            at.write_bytes(bytes_of(event))?;
            at = at.add(size_of::<IoEvent>() as u64);
        }
        if !events.is_empty() {
            self.ring.taken(head)?;
        }
        Ok(events.len())
    }

    /// Waits for events and copies them to the program: at least `least` of them, at most `most`.
    pub fn wait(&self, least: usize, most: usize, to: UserPtr, timeout: Timeout) -> Result<u64> {
        let mut done = 0;
        loop {
            while done < most {
                match self.give(to.add((done * size_of::<IoEvent>()) as u64), most - done) {
                    Ok(0) => break,
                    Ok(n) => done += n,
                    Err(e) if done == 0 => return Err(e),
                    Err(_) => return Ok(done as u64),
                }
            }
            if done >= least || timeout.poll {
                return Ok(done as u64);
            }
            match self.wait_for_one(timeout.deadline) {
                Ok(()) => {}
                Err(Errno::ETIMEDOUT) => return Ok(done as u64),
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done as u64),
            }
        }
    }

    fn wait_for_one(&self, deadline: Deadline) -> Result<()> {
        wait_until(&self.queue, deadline, || {
            if self.destroyed.load(Ordering::SeqCst) {
                return Some(Err(Errno::EINVAL));
            }
            (self.ring.waiting() > 0).then_some(Ok(()))
        })?
    }

    /// Ends all waits; whoever waits for events is told that the instance is gone.
    fn destroy(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
        let polls = core::mem::take(&mut *self.polls.lock());
        for poll in polls {
            poll.cancel();
        }
        self.queue.notify_all();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        TOTAL.0.fetch_sub(self.asked.into(), Ordering::Relaxed);
    }
}

/// The instances of all processes, by process id. They go with a process' memory: at exec and at its end; a child has none.
#[derive(Default)]
pub struct Contexts(SpinLock<Vec<(i32, Arc<Context>)>>);

/// The domain's.
pub static CONTEXTS: Part<Contexts> = Part::new();

impl Contexts {
    /// Adds one of a process.
    pub fn add(&self, pid: i32, context: Arc<Context>) {
        self.0.lock().push((pid, context));
    }

    /// The one of a process at this address; EINVAL if there is none.
    pub fn find(&self, pid: i32, at: u64) -> Result<Arc<Context>> {
        let all = self.0.lock();
        let found = all.iter().find(|(p, c)| *p == pid && c.at == at);
        found.map(|(_, c)| c.clone()).ok_or(Errno::EINVAL)
    }

    /// Destroys the one of a process at this address, and takes its ring out of memory; EINVAL if there is none.
    pub fn destroy(&self, pid: i32, at: u64, mm: &Mm) -> Result<()> {
        let context = {
            let mut all = self.0.lock();
            let i = all.iter().position(|(p, c)| *p == pid && c.at == at).ok_or(Errno::EINVAL)?;
            all.remove(i).1
        };
        context.destroy();
        // The program may have taken it out itself.
        let _ = mm.unmap(at, at + context.ring.memory.size());
        Ok(())
    }

    /// Destroys all of a process.
    pub fn clear(&self, pid: i32) {
        let gone: Vec<_> = self.0.lock().extract_if(.., |(p, _)| *p == pid).collect();
        for (_, context) in gone {
            context.destroy();
        }
    }
}
