//! Event polling (`epoll(7)`).
//!
//! Key types: [`Epoll`] (an instance), [`Item`] (one watched descriptor). A wake-up of a watched file's queue
//! puts its item at the end of the ready list, whatever the file's state is: that is the edge. Waiting takes
//! items from the front, asks the file what holds now, reports that, and puts level-triggered ones back at
//! the end.
//!
//! Lock order: `scan` (outer instance before inner) → the watched file's state → its wait queue → `ready` →
//! the instance's wait queue. `items` is taken under `scan` or alone. An item holds its file weakly; the file's
//! last close removes it.

use crate::core::sched::waiter;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::timeout::Timeout;
use crate::core::part::Part;
use crate::core::sched::{PollEvents, PollTable, WaitQueue, Wake};
use crate::objects::vfs::file::{OnClose, Splice};
use crate::objects::vfs::{File, FileOps};
use crate::{Errno, Result};

/// Most instances that may watch one another in a chain.
const MAX_CHAIN: usize = 5;

pod_struct! {
    /// `struct epoll_event` (packed on x86-64).
    pub struct EpollEvent {
        /// Events and flags.
        pub events: u32,
        /// The user's datum, low half.
        pub data_low: u32,
        /// High half.
        pub data_high: u32,
    }
}

impl EpollEvent {
    /// Events and flags.
    pub fn events(&self) -> PollEvents {
        PollEvents::from_bits_retain(self.events)
    }
}

/// One watched descriptor.
pub struct Item {
    me: Weak<Item>,
    fd: i32,
    file: Weak<File>,
    file_id: u64,
    epoll: Weak<Epoll>,
    /// Events asked for, with flags; no event bits once a one-shot has fired or the item is removed.
    events: AtomicU32,
    data: SpinLock<[u32; 2]>,
    /// Whether it is in the ready list.
    linked: AtomicBool,
    /// Registration on the file's queues.
    table: SpinLock<Option<PollTable>>,
}

/// Watched descriptors by number and file.
#[derive(Default)]
struct Items {
    map: BTreeMap<(i32, u64), Arc<Item>>,
    /// Set when the instance's last descriptor has gone: nothing is added any more.
    closed: bool,
}

/// An epoll instance.
#[derive(Default)]
pub struct Epoll {
    /// Held while items are polled, changed or removed.
    scan: SpinLock<()>,
    items: SpinLock<Items>,
    ready: SpinLock<VecDeque<Arc<Item>>>,
    /// Threads in epoll_wait (exclusive) and those that poll the instance itself.
    queue: Arc<WaitQueue>,
    /// Instances that watch this one.
    parents: SpinLock<Vec<Weak<Epoll>>>,
}

/// Serialises changes of who watches whom among instances.
#[derive(Default)]
pub(crate) struct Nesting(SpinLock<()>);

/// The domain's.
pub(crate) static NESTING: Part<Nesting> = Part::new();

impl Wake for Item {
    fn wake(&self, events: PollEvents) -> bool {
        let wanted = self.wanted();
        if wanted.is_empty() || !events.is_empty() && !events.intersects(wanted) {
            return false;
        }
        match self.epoll.upgrade() {
            Some(e) => e.make_ready(self),
            None => false,
        }
    }
}

impl OnClose for Item {
    fn closed(self: Arc<Self>) {
        if let Some(e) = self.epoll.upgrade() {
            // EPOLL_CTL_DEL may have been faster.
            let _ = e.remove(self.fd, self.file_id);
        }
    }
}

impl Item {
    /// The events that hold now among those asked for.
    fn poll(&self) -> PollEvents {
        let wanted = self.wanted();
        match self.file.upgrade() {
            Some(f) if !wanted.is_empty() => f.poll(None) & wanted,
            _ => PollEvents::empty(),
        }
    }

    /// What is asked for, with flags.
    fn asked(&self) -> PollEvents {
        PollEvents::from_bits_retain(self.events.load(Ordering::SeqCst))
    }

    fn ask(&self, events: PollEvents) {
        self.events.store(events.bits(), Ordering::SeqCst);
    }

    /// The events that are asked for.
    fn wanted(&self) -> PollEvents {
        self.asked() - PollEvents::EPOLL_FLAGS
    }

    /// The epoll instance this item watches, if it does.
    fn child(&self) -> Option<Arc<Epoll>> {
        self.file.upgrade().and_then(|f| of(&f))
    }
}

/// The instance behind a file, if it is one.
pub fn of(file: &File) -> Option<Arc<Epoll>> {
    let any: Arc<dyn core::any::Any + Send + Sync> = file.ops().clone();
    any.downcast::<Epoll>().ok()
}

impl Epoll {
    /// Puts an item on the ready list and wakes a waiter. True if there was one.
    fn make_ready(&self, item: &Item) -> bool {
        if !item.linked.swap(true, Ordering::SeqCst)
            && let Some(i) = item.me.upgrade()
        {
            self.ready.lock().push_back(i);
        }
        if self.queue.is_empty() {
            return false;
        }
        self.queue.wake_one(PollEvents::READABLE);
        true
    }

    /// EPOLL_CTL_ADD.
    pub fn add(self: &Arc<Self>, fd: i32, file: &Arc<File>, event: EpollEvent) -> Result<()> {
        let child = of(file);
        let asked = event.events();
        let exclusive = asked.contains(PollEvents::EXCLUSIVE);
        let allowed = PollEvents::IN | PollEvents::OUT | PollEvents::ALWAYS | PollEvents::EPOLL_FLAGS;
        if exclusive && (child.is_some() || !(allowed - PollEvents::ONESHOT).contains(asked)) {
            return Err(Errno::EINVAL);
        }
        let nesting = NESTING.get();
        let _guard = child.is_some().then(|| nesting.0.lock());
        if let Some(c) = &child {
            self.check_chain(c)?;
        }
        let item = Arc::new_cyclic(|me| Item {
            me: me.clone(),
            fd,
            file: Arc::downgrade(file),
            file_id: file.id,
            epoll: Arc::downgrade(self),
            events: AtomicU32::new((asked | PollEvents::ALWAYS).bits()),
            data: SpinLock::new([event.data_low, event.data_high]),
            linked: AtomicBool::new(false),
            table: SpinLock::new(None),
        });
        let _scan = self.scan.lock();
        {
            let mut items = self.items.lock();
            if items.closed {
                return Err(Errno::EBADF);
            }
            if items.map.contains_key(&(fd, file.id)) {
                return Err(Errno::EEXIST);
            }
            items.map.insert((fd, file.id), item.clone());
        }
        if let Some(c) = &child {
            c.parents.lock().push(Arc::downgrade(self));
        }
        let hook: Weak<Item> = Arc::downgrade(&item);
        file.on_close(hook);
        let mut table =
            if exclusive { PollTable::exclusive(item.clone()) } else { PollTable::new(item.clone()) };
        let now = file.poll(Some(&mut table)) & item.wanted();
        *item.table.lock() = Some(table);
        if !now.is_empty() {
            self.make_ready(&item);
        }
        Ok(())
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: i32, file: &File, event: EpollEvent) -> Result<()> {
        let _scan = self.scan.lock();
        let item = self.items.lock().map.get(&(fd, file.id)).cloned().ok_or(Errno::ENOENT)?;
        if (item.asked() | event.events()).contains(PollEvents::EXCLUSIVE) {
            return Err(Errno::EINVAL);
        }
        *item.data.lock() = [event.data_low, event.data_high];
        item.ask(event.events() | PollEvents::ALWAYS);
        if !item.poll().is_empty() {
            self.make_ready(&item);
        }
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: i32, file_id: u64) -> Result<()> {
        let _scan = self.scan.lock();
        let item = self.items.lock().map.remove(&(fd, file_id)).ok_or(Errno::ENOENT)?;
        self.detach(&item);
        Ok(())
    }

    /// Undoes everything that ties a removed item to its file. The scan lock is held.
    fn detach(&self, item: &Arc<Item>) {
        item.ask(PollEvents::empty());
        let table = item.table.lock().take();
        drop(table);
        if item.linked.load(Ordering::SeqCst) {
            self.ready.lock().retain(|i| !Arc::ptr_eq(i, item));
        }
        if let Some(c) = item.child() {
            c.parents.lock().retain(|p| p.upgrade().is_some_and(|p| !core::ptr::eq(&*p, self)));
        }
    }

    /// ELOOP if watching `child` would close a loop or make a chain too long.
    fn check_chain(&self, child: &Epoll) -> Result<()> {
        let below = child.depth(Some(self), MAX_CHAIN)?;
        let above = self.height(MAX_CHAIN)?;
        if below + above > MAX_CHAIN { Err(Errno::ELOOP) } else { Ok(()) }
    }

    /// Instances in the longest chain from this one down; ELOOP if `avoid` is met.
    fn depth(&self, avoid: Option<&Epoll>, left: usize) -> Result<usize> {
        if left == 0 || avoid.is_some_and(|a| core::ptr::eq(a, self)) {
            return Err(Errno::ELOOP);
        }
        let children: Vec<_> = self.items.lock().map.values().filter_map(|i| i.child()).collect();
        let mut most = 0;
        for c in children {
            most = most.max(c.depth(avoid, left - 1)?);
        }
        Ok(most + 1)
    }

    /// Instances in the longest chain from this one up.
    fn height(&self, left: usize) -> Result<usize> {
        if left == 0 {
            return Err(Errno::ELOOP);
        }
        let parents: Vec<_> = self.parents.lock().iter().filter_map(Weak::upgrade).collect();
        let mut most = 0;
        for p in parents {
            most = most.max(p.height(left - 1)?);
        }
        Ok(most + 1)
    }

    /// Takes up to `max` events from the ready list.
    fn harvest(&self, max: usize) -> Vec<EpollEvent> {
        let _scan = self.scan.lock();
        // Items put back, or ready again meanwhile, come behind these and wait for the next call.
        let mut rounds = self.ready.lock().len();
        let mut out = Vec::with_capacity(rounds.min(max));
        while rounds > 0 && out.len() < max {
            rounds -= 1;
            let Some(item) = self.ready.lock().pop_front() else { break };
            // Before polling: a wake-up from here on links it again.
            item.linked.store(false, Ordering::SeqCst);
            let now = item.poll();
            if now.is_empty() {
                continue;
            }
            let [data_low, data_high] = *item.data.lock();
            out.push(EpollEvent { events: now.bits(), data_low, data_high });
            let asked = item.asked();
            if asked.contains(PollEvents::ONESHOT) {
                item.ask(asked & PollEvents::EPOLL_FLAGS);
            } else if !asked.contains(PollEvents::ET) && !item.linked.swap(true, Ordering::SeqCst) {
                self.ready.lock().push_back(item);
            }
        }
        out
    }

    /// Whether the ready list holds an item. Another thread that harvests takes items out for the time of a look, and a
    /// thread that finds them at its first look does not wake the next waiter: so not while anybody harvests.
    fn has_ready(&self) -> bool {
        let _scan = self.scan.lock();
        !self.ready.lock().is_empty()
    }

    /// Waits for events. ERESTARTNOHAND on a signal; empty at the timeout.
    pub fn wait(&self, max: usize, timeout: Timeout) -> Result<Vec<EpollEvent>> {
        let out = self.harvest(max);
        if !out.is_empty() || timeout.poll {
            return Ok(out);
        }
        let me = waiter();
        let token = self.queue.add(me.clone(), true);
        let r = loop {
            let out = self.harvest(max);
            if !out.is_empty() {
                break Ok(out);
            }
            if me.interrupted() {
                break Err(Errno::ERESTARTNOHAND);
            }
            if !me.park(timeout.deadline) {
                break Ok(self.harvest(max));
            }
        };
        self.queue.remove(token);
        // One wake-up may announce work for several, or have come to this thread while it already had its events
        // (or gave up): pass it on.
        if self.has_ready() {
            self.queue.wake_one(PollEvents::READABLE);
        }
        r
    }
}

impl FileOps for Epoll {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.queue);
        }
        let _scan = self.scan.lock();
        loop {
            let Some(item) = self.ready.lock().pop_front() else { return PollEvents::empty() };
            item.linked.store(false, Ordering::SeqCst);
            if !item.poll().is_empty() {
                if !item.linked.swap(true, Ordering::SeqCst) {
                    self.ready.lock().push_front(item);
                }
                return PollEvents::READABLE;
            }
        }
    }

    fn release(&self, _file: &File) {
        let items = {
            let mut i = self.items.lock();
            i.closed = true;
            core::mem::take(&mut i.map)
        };
        let _scan = self.scan.lock();
        for item in items.values() {
            self.detach(item);
        }
        self.ready.lock().clear();
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        for i in self.items.lock().map.values() {
            let [low, high] = *i.data.lock();
            out.push_str(&alloc::format!(
                "tfd: {:8} events: {:8x} data: {:16x}\n",
                i.fd,
                i.events.load(Ordering::Relaxed),
                u64::from(high) << 32 | u64::from(low),
            ));
        }
    }
}
