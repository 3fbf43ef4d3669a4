//! Packets between processes over sequenced-packet sockets.

use rustix::io::Errno;

/// What `receive` gets of a sequenced-packet socket, if need be at a second try.
///
/// Who closes such a socket with packets in it that nobody has read gives the other end ECONNRESET, once, and before what was sent
/// to that end (unix(7) does not say so): its last words come after it.
///
/// # Errors
/// What `receive` says, but EINTR.
pub fn receive<T>(mut receive: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut reset = false;
    loop {
        match receive() {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) if !reset => reset = true,
            got => return got,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

    #[test]
    fn last_words_are_heard_of_one_who_did_not_listen() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(&ours, b"an order", SendFlags::empty()).unwrap();
        send(&theirs, b"why", SendFlags::empty()).unwrap();
        drop(theirs);
        let mut bytes = [0; 16];
        let mut hear = || super::receive(|| recv(&ours, &mut bytes, RecvFlags::DONTWAIT)).map(|(n, _)| n);
        assert_eq!((hear(), hear(), hear()), (Ok(3), Ok(0), Ok(0)));
    }
}
