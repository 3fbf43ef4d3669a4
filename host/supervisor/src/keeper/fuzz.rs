//! A way in for the fuzz target `protocol`.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::peer::Peer;
use super::protocol::{Call, LONGEST, Message};

/// Bytes as what a keeper hears from its supervisor, in pieces, and as what that hears from it: taken or refused, and what was
/// taken can be said again.
///
/// # Panics
/// If it is not so.
pub fn lines(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(2 * LONGEST)];
    let (mut supervisor, keeper) = UnixStream::pair().expect("sockets");
    let mut peer = Peer::new(keeper).expect("a socket");
    for piece in bytes.chunks(4096) {
        supervisor.write_all(piece).expect("room for a page");
        let (calls, alive) = peer.read();
        for call in calls {
            let line = serde_json::to_vec(&call).expect("plain data");
            serde_json::from_slice::<Call>(&line).expect("what is said can be heard");
        }
        if !alive {
            break;
        }
    }
    if let Ok(word) = serde_json::from_slice::<Message>(bytes) {
        let line = serde_json::to_vec(&word).expect("plain data");
        serde_json::from_slice::<Message>(&line).expect("what is said can be heard");
    }
}
