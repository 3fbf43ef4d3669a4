//! Requests under way, each to be completed once.
//!
//! A completion names its request by a ticket that the peer sends back. A ticket has the number of a slot, how often
//! that slot was used, and the epoch, so a second completion, one of an earlier request, one of a service domain that
//! is no more, and a number somebody made up all fit nothing.

use alloc::vec::Vec;

/// What a request carries and its completion brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// The requests of one epoch.
#[derive(Debug)]
pub struct Tickets<T> {
    epoch: u16,
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Slot<T> {
    uses: u32,
    request: Option<T>,
}

impl<T> Tickets<T> {
    /// No request yet.
    #[must_use]
    pub const fn new(epoch: u16) -> Self {
        Self { epoch, slots: Vec::new(), free: Vec::new() }
    }

    /// A ticket for a request; gives it back if 65,536 are under way.
    ///
    /// # Errors
    /// The request, for which there is no slot.
    pub fn issue(&mut self, request: T) -> Result<Ticket, T> {
        let at = match self.free.pop() {
            Some(at) => at,
            None => match u16::try_from(self.slots.len()) {
                Ok(at) => {
                    self.slots.push(Slot { uses: 0, request: None });
                    at
                }
                Err(_) => return Err(request),
            },
        };
        let slot = &mut self.slots[usize::from(at)];
        slot.uses = slot.uses.wrapping_add(1);
        slot.request = Some(request);
        Ok(Ticket(u64::from(self.epoch) << 48 | u64::from(slot.uses) << 16 | u64::from(at)))
    }

    /// The request of a ticket, which is used up; `None` if the ticket fits nothing.
    pub fn complete(&mut self, ticket: Ticket) -> Option<T> {
        let at = (ticket.0 & 0xffff) as u16;
        let uses = (ticket.0 >> 16) as u32;
        if ticket.0 >> 48 != u64::from(self.epoch) {
            return None;
        }
        let slot = self.slots.get_mut(usize::from(at)).filter(|p| p.uses == uses)?;
        let request = slot.request.take()?;
        self.free.push(at);
        Some(request)
    }

    /// Begins another epoch; what was under way comes back and will never be completed.
    pub fn begin(&mut self, epoch: u16) -> Vec<T> {
        self.epoch = epoch;
        self.free.clear();
        self.slots.drain(..).filter_map(|p| p.request).collect()
    }
}
