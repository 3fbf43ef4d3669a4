//! PID namespaces (`pid_namespaces(7)`): which numbers processes and threads have where.
//!
//! Key types: [`PidNamespace`], [`Numbers`] (those of one process or thread below the first namespace). The kernel itself
//! knows all by their numbers in the first namespace, in which nothing has [`Numbers`].
//! Lock order: the tables of namespaces are leaves.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use doppel_machine::sync::SpinLock;

use super::{Base, Kind, UserNamespace, namespace};
use crate::core::part::Part;
use crate::core::sched::WaitQueue;
use crate::{Errno, Result};

/// Largest number plus 1.
pub const PID_MAX: i32 = 32768;
/// Numbers from which on to look again after the last one.
const AGAIN: i32 = 300;
/// Most namespaces above one.
const DEPTH: u32 = 32;

/// Which number is whose.
#[derive(Default)]
struct Table {
    last: i32,
    /// By number here: the kernel's.
    kernel: BTreeMap<i32, i32>,
    /// By the kernel's: the number here.
    shown: BTreeMap<i32, i32>,
}

impl Table {
    /// A number that nobody has.
    fn free(&mut self) -> Result<i32> {
        for _ in 0..PID_MAX {
            self.last = if self.last + 1 >= PID_MAX { AGAIN } else { self.last + 1 };
            if !self.kernel.contains_key(&self.last) {
                return Ok(self.last);
            }
        }
        Err(Errno::EAGAIN)
    }
}

/// Numbers of processes of its own.
pub struct PidNamespace {
    base: Base,
    above: Option<Arc<PidNamespace>>,
    level: u32,
    table: SpinLock<Table>,
    /// The kernel's number of its first process, 0 while there is none.
    init: AtomicI32,
    ended: AtomicBool,
    /// Woken when a process in it ends.
    pub ends: WaitQueue,
}

/// The first PID namespace.
pub(crate) struct First(Arc<PidNamespace>);

/// The domain's.
pub(crate) static FIRST: Part<First> = Part::new();

impl Default for First {
    fn default() -> Self {
        Self(Arc::new(PidNamespace::make(Base::first(Kind::Pid), None)))
    }
}

/// The first PID namespace, whose numbers are the kernel's.
pub fn first() -> &'static Arc<PidNamespace> {
    &FIRST.get().0
}

impl PidNamespace {
    fn make(base: Base, above: Option<Arc<Self>>) -> Self {
        Self {
            base,
            level: above.as_ref().map_or(0, |a| a.level + 1),
            above,
            table: SpinLock::default(),
            init: AtomicI32::new(0),
            ended: AtomicBool::new(false),
            ends: WaitQueue::new(),
        }
    }

    /// One below `above`: ENOSPC if it would lie too deep or be one too many.
    pub fn new(above: &Arc<Self>, user: &Arc<UserNamespace>) -> Result<Arc<Self>> {
        if above.level >= DEPTH {
            return Err(Errno::ENOSPC);
        }
        if !user.is_within(above.user()) {
            return Err(Errno::EINVAL);
        }
        Ok(Arc::new(Self::make(Base::new(Kind::Pid, user)?, Some(above.clone()))))
    }

    /// Whether it is the first.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.above.is_none()
    }

    /// The one it was made in.
    pub fn above(&self) -> Option<&Arc<Self>> {
        self.above.as_ref()
    }

    /// How many are above it.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The user namespace it belongs to.
    pub fn user(&self) -> &UserNamespace {
        self.base.owner()
    }

    /// Whether it is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut at = self;
        loop {
            if core::ptr::eq(at, other) {
                return true;
            }
            let Some(up) = &at.above else { return false };
            at = up;
        }
    }

    /// The number here of what the kernel knows by a number; 0 if it is not here.
    pub fn shown(&self, kernel: i32) -> i32 {
        if self.is_first() { kernel } else { self.table.lock().shown.get(&kernel).copied().unwrap_or(0) }
    }

    /// The kernel's number for one here; none if nobody has it.
    pub fn kernel(&self, shown: i32) -> Option<i32> {
        if self.is_first() { Some(shown) } else { self.table.lock().kernel.get(&shown).copied() }
    }

    /// Whether something below the first namespace still has a number of the kernel's.
    pub fn is_taken(&self, kernel: i32) -> bool {
        self.table.lock().shown.contains_key(&kernel)
    }

    /// The kernel's number of its first process.
    pub fn init(&self) -> i32 {
        if self.is_first() { 1 } else { self.init.load(Ordering::SeqCst) }
    }

    /// Its first process ends: there will be no others.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Whether there may be no new processes any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// It and all above it, the deepest first.
    fn chain(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        core::iter::successors(Some(self), |ns| ns.above.as_ref())
    }

    /// What a number of the kernel's is from `top` down to this one, which lies there or below.
    pub fn shown_below(self: &Arc<Self>, top: &Self, kernel: i32) -> Vec<i32> {
        let count = (self.level + 1).saturating_sub(top.level) as usize;
        let mut all: Vec<i32> = self.chain().take(count).map(|ns| ns.shown(kernel)).collect();
        all.reverse();
        all
    }

    /// A process in it has ended.
    pub fn tell_end(self: &Arc<Self>) {
        for ns in self.chain() {
            ns.ends.notify_all();
        }
    }
}

namespace!(PidNamespace, Pid, me => me.above.clone().map(|p| p as Arc<dyn super::Namespace>));

/// The numbers of a process or thread, in its namespace and in those above it. They are free again when all have gone
/// who might name it: itself, its group, its session.
pub struct Numbers {
    /// Its namespace.
    pub namespace: Arc<PidNamespace>,
    kernel: i32,
    /// By level, without the first namespace.
    shown: Vec<i32>,
    released: AtomicBool,
}

impl Numbers {
    /// Numbers for what the kernel knows as `kernel`. `chosen` are those asked for, the deepest first, none above them:
    /// EEXIST if one is taken. ENOMEM once the namespace has ended, EINVAL for a first process that is not 1.
    pub fn new(namespace: &Arc<PidNamespace>, kernel: i32, chosen: &[i32]) -> Result<Arc<Self>> {
        let level = namespace.level as usize;
        let mut made = Self {
            namespace: namespace.clone(),
            kernel,
            shown: alloc::vec![0; level],
            released: AtomicBool::new(false),
        };
        first().table.lock().shown.insert(kernel, kernel);
        for (i, ns) in namespace.chain().take(level).enumerate() {
            let mut table = ns.table.lock();
            let number = match chosen.get(i) {
                Some(n) if table.kernel.contains_key(n) => return Err(Errno::EEXIST),
                Some(n) if *n != 1 && ns.init() == 0 => return Err(Errno::EINVAL),
                Some(n) => *n,
                None => table.free()?,
            };
            if ns.has_ended() {
                return Err(Errno::ENOMEM);
            }
            table.kernel.insert(number, kernel);
            table.shown.insert(kernel, number);
            made.shown[level - 1 - i] = number;
        }
        if made.shown() == 1 {
            namespace.init.store(kernel, Ordering::SeqCst);
        }
        Ok(Arc::new(made))
    }

    /// The number in its own namespace.
    #[inline]
    pub fn shown(&self) -> i32 {
        self.shown.last().copied().unwrap_or(self.kernel)
    }

    /// Whether it is the first process of its namespace.
    pub fn is_init(&self) -> bool {
        self.shown() == 1
    }

    /// Nobody can name it any more: the numbers are free, though somebody may still hold it.
    pub fn release(&self) {
        if self.released.swap(true, Ordering::SeqCst) {
            return;
        }
        for (ns, number) in self.namespace.chain().zip(self.shown.iter().rev()) {
            let mut table = ns.table.lock();
            if *number != 0 {
                table.kernel.remove(number);
                table.shown.remove(&self.kernel);
            }
        }
        first().table.lock().shown.remove(&self.kernel);
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.release();
    }
}
