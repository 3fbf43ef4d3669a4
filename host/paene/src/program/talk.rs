//! Messages between the attendant, its helpers and programs that are about to run: a word, a number, perhaps descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Most descriptors of a message.
const MOST: usize = 4;
/// Longest message: a session's request.
const LONGEST: usize = 132 << 10;

/// What is said.
#[derive(Debug)]
pub(crate) enum Message {
    /// The program's process, as the attendant sees it.
    Process(i32),
    /// It has a terminal: this is the other end.
    Terminal(OwnedFd),
    /// It runs.
    Started,
    /// It could not be started, because of this errno while doing what [`Stage`] says.
    Failed(Stage, i32),
    /// It has ended, with this wait status.
    Ended(i32),
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Getting into the container and becoming its user.
    Enter,
    /// Going to the working directory.
    Directory,
    /// Executing the program.
    Execute,
}

impl Stage {
    const ALL: [Self; 3] = [Self::Enter, Self::Directory, Self::Execute];
}

/// A pair of ends that keep messages apart.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends bytes and descriptors as one message.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message; no bytes at the end.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let receive = || rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let got = doppel_sys::packet::receive(receive)?;
    bytes.truncate(got.bytes);
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Ok((bytes, fds.collect()))
}

impl Message {
    /// Says it.
    pub fn say(&self, to: &OwnedFd) -> io::Result<()> {
        let (kind, stage, number, fd) = match self {
            Self::Process(pid) => (0, 0, *pid, None),
            Self::Terminal(fd) => (1, 0, 0, Some(fd.as_fd())),
            Self::Started => (2, 0, 0, None),
            Self::Failed(stage, errno) => (3, *stage as u8, *errno, None),
            Self::Ended(status) => (4, 0, *status, None),
        };
        let [a, b, c, d] = number.to_le_bytes();
        send(to, &[kind, stage, a, b, c, d], fd.as_slice())
    }

    /// Hears one; none at the end.
    pub fn hear(from: &OwnedFd) -> io::Result<Option<Self>> {
        let (bytes, mut fds) = receive(from)?;
        let &[kind, stage, a, b, c, d] = bytes.as_slice() else {
            return if bytes.is_empty() { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
        };
        let number = i32::from_le_bytes([a, b, c, d]);
        let stage = Stage::ALL.get(usize::from(stage)).copied();
        Ok(Some(match (kind, fds.pop(), stage) {
            (0, None, _) => Self::Process(number),
            (1, Some(fd), _) => Self::Terminal(fd),
            (2, None, _) => Self::Started,
            (3, None, Some(stage)) => Self::Failed(stage, number),
            (4, None, _) => Self::Ended(number),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_as_they_were_said() {
        let (ours, theirs) = pair().unwrap();
        Message::Process(7).say(&ours).unwrap();
        Message::Terminal(ours.try_clone().unwrap()).say(&ours).unwrap();
        Message::Failed(Stage::Directory, 20).say(&ours).unwrap();
        Message::Ended(0x100).say(&ours).unwrap();
        drop(ours);
        assert!(matches!(Message::hear(&theirs), Ok(Some(Message::Process(7)))));
        assert!(matches!(Message::hear(&theirs), Ok(Some(Message::Terminal(_)))));
        assert!(matches!(Message::hear(&theirs), Ok(Some(Message::Failed(Stage::Directory, 20)))));
        assert!(matches!(Message::hear(&theirs), Ok(Some(Message::Ended(0x100)))));
        assert!(matches!(Message::hear(&theirs), Ok(None)));
    }
}
