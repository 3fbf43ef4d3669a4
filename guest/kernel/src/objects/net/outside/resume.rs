//! What becomes of sockets outside in a clone.

use core::sync::atomic::Ordering;

use doppel_machine::network as channel;

use super::{NETWORK, event, files};
use crate::objects::net::inet::offer_outside;

/// A domain made from a frozen image, before its threads run. One that wakes may have its channel still, in which all is
/// as it was, unless the service domain is another, which is noticed as ever. Otherwise what was connected outside is not
/// any more, and the channel, if there is one, is another.
pub fn resumed() {
    let n = NETWORK.get();
    // Whoever watched stayed behind.
    n.watched.store(false, Ordering::SeqCst);
    if channel::is_same() {
        event();
        return;
    }
    n.link.lock().restart();
    // What stays is registered again when the service is there (`lose`).
    n.reset_all(channel::is_there());
    if channel::is_there() {
        // It may have had no network before.
        offer_outside();
    }
    files::rewrite();
    event();
}
