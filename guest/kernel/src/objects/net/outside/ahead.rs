//! Memory for what comes from the network, to be charged to this domain.
//!
//! Whoever touches a page of the channel first pays for it. So this kernel has pages of a *down* buffer there before the service
//! needs them: the first when a socket is made, then as many ahead of the reader as it had use for. What is not there the service
//! puts there within a quota of its own: nothing depends on this but who pays.

use crate::memory::commit::COMMIT;
use crate::objects::net::outside::NETWORK;
use core::sync::atomic::Ordering;

use doppel_abi_machine::group_limit;
use doppel_abi_service::OBJECTS;
use doppel_abi_service::net::ACCEPTED;
use doppel_abi_service::net::pages::{FIRST, PAGE, PAGES, bytes, pages, runs};
use doppel_machine::{boot, network as channel};

/// The part of the domain's memory limit that pages ahead may take, and what they must leave free of it.
const PART: u64 = 4;
const FREE: u64 = 8;
/// What they may take in a domain without a limit.
const MOST: u64 = 64 << 20;

/// Pages of a socket's buffer.
pub(super) struct Ahead {
    number: u32,
    /// How many there are to be from the reader's on.
    window: u32,
    /// Those this kernel has touched, a bit each.
    touched: u64,
    /// Bytes that are charged to the domain's commit limit for them.
    charged: u64,
}

/// Of how many sockets that this kernel numbers, and as many others, the first pages are charged to nothing: they stay when a
/// socket ends, and fit a quarter of what the control group's limit has beyond the domain's ([`group_limit`]).
fn first_sockets(limit: u64) -> u32 {
    let each = 2 * u64::from(FIRST) * PAGE as u64;
    if limit == 0 { OBJECTS } else { ((group_limit(limit) - limit) / 4 / each).min(OBJECTS.into()) as u32 }
}

/// Charges bytes, if they are not too many.
fn charge(bytes: u64) -> bool {
    let limit = boot::memory_limit();
    let most = if limit == 0 { MOST } else { limit / PART };
    let network = NETWORK.get();
    let fits = network.ahead.fetch_add(bytes, Ordering::Relaxed) + bytes <= most
        && COMMIT.charge_leaving(bytes, FREE).is_ok();
    if !fits {
        network.ahead.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

fn uncharge(bytes: u64) {
    if bytes != 0 {
        NETWORK.ahead.fetch_sub(bytes, Ordering::Relaxed);
        COMMIT.uncharge(bytes);
    }
}

impl Ahead {
    /// Of a socket whose buffer is empty: its first pages are touched.
    pub fn new(number: u32) -> Self {
        let mut new = Self { number, window: FIRST, touched: 0, charged: 0 };
        let nth = number.checked_sub(ACCEPTED).unwrap_or(number);
        if nth < first_sockets(boot::memory_limit()) {
            new.touch(pages(0, FIRST as usize * PAGE));
        } else {
            new.reach(0, 0);
        }
        new
    }

    /// The reader is at an offset of the buffer now, and so many bytes waited when it looked. True: there is more room than there
    /// was, of which the service may not know.
    pub fn reach(&mut self, offset: usize, waiting: u32) -> bool {
        if self.window < PAGES && waiting as usize >= self.window as usize * PAGE / 2 {
            self.window *= 2;
        }
        loop {
            // Whole ones, from that of the offset on.
            let wanted = pages(offset / PAGE * PAGE, self.window as usize * PAGE) & !self.touched;
            if wanted == 0 {
                return false;
            }
            if charge(bytes(wanted)) {
                self.charged += bytes(wanted);
                return self.touch(wanted);
            }
            if self.window == FIRST {
                return false;
            }
            self.window /= 2;
        }
    }

    /// Touches pages, run by run: whether all are there.
    fn touch(&mut self, these: u64) -> bool {
        self.touched |= these;
        runs(these).fold(true, |all, (first, count)| channel::touch(self.number, first, count) && all)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The service gives the pages back.
        uncharge(self.charged);
    }
}
