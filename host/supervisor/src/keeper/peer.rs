//! The supervisor's connection: lines in, lines and bytes out, never waited for.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::exec::Mark;
use super::protocol::{Call, LONGEST, Message, Notification};

/// Output that is not read up to here is dropped beyond it. Answers and ends never are.
const BACKLOG: usize = 16 << 20;
/// Most bytes taken from the socket at a time.
const CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    received: Vec<u8>,
    /// What is to be sent, and how much of it was.
    waiting: Vec<u8>,
    sent: usize,
    /// Bytes that were ever sent.
    all_sent: u64,
    /// What is safe when so many bytes have been sent: the other end reads them also if we die.
    marks: VecDeque<(u64, Mark)>,
    /// Output that was dropped, by domain.
    lost: Vec<(String, u64)>,
}

impl Peer {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            received: Vec::new(),
            waiting: Vec::new(),
            sent: 0,
            all_sent: 0,
            marks: VecDeque::new(),
            lost: Vec::new(),
        })
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether there is something to send.
    pub fn has_more(&self) -> bool {
        self.sent < self.waiting.len()
    }

    /// What has come; false with it if the connection is at its end.
    pub fn read(&mut self) -> (Vec<Call>, bool) {
        let mut buf = vec![0; CHUNK];
        let alive = match self.stream.read(&mut buf) {
            Ok(0) => false,
            Ok(n) => {
                self.received.extend_from_slice(&buf[..n]);
                true
            }
            Err(e) => matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        let mut calls = Vec::new();
        let mut begin = 0;
        while let Some(len) = self.received[begin..].iter().position(|b| *b == b'\n') {
            match serde_json::from_slice(&self.received[begin..begin + len]) {
                Ok(call) => calls.push(call),
                Err(error) => {
                    tracing::error!("a call cannot be read: {error}");
                    return (calls, false);
                }
            }
            begin += len + 1;
        }
        self.received.drain(..begin);
        (calls, alive && self.received.len() <= LONGEST)
    }

    /// Puts a word into the queue.
    pub fn say(&mut self, word: &Message) {
        self.say_lost();
        self.push(word);
    }

    fn push(&mut self, word: &Message) {
        // Words are plain data: they always serialize.
        if serde_json::to_writer(&mut self.waiting, word).is_ok() {
            self.waiting.push(b'\n');
        }
    }

    /// Puts output into the queue, if there is room: news, and the bytes that belong to them.
    pub fn print(&mut self, news: Notification, bytes: &[u8], mark: Option<Mark>) {
        if let Notification::Printed { id, line } = &news
            && self.waiting.len() - self.sent > BACKLOG
        {
            let bytes = line.bytes().len() as u64;
            match self.lost.iter_mut().find(|(i, _)| i == id) {
                Some((_, lost)) => *lost += bytes,
                None => self.lost.push((id.clone(), bytes)),
            }
            return;
        }
        self.say(&Message::Notification(news));
        self.waiting.extend_from_slice(bytes);
        let end = self.all_sent + (self.waiting.len() - self.sent) as u64;
        self.marks.extend(mark.map(|mark| (end, mark)));
    }

    /// What of the output has been sent.
    pub fn safe(&mut self) -> Vec<Mark> {
        let count = self.marks.iter().take_while(|(end, _)| *end <= self.all_sent).count();
        self.marks.drain(..count).map(|(_, mark)| mark).collect()
    }

    fn say_lost(&mut self) {
        for (id, bytes) in std::mem::take(&mut self.lost) {
            self.push(&Message::Notification(Notification::Lost { id, bytes }));
        }
    }

    /// Sends what can be sent; false if the connection is broken.
    pub fn flush(&mut self) -> bool {
        while self.has_more() {
            match self.stream.write(&self.waiting[self.sent..]) {
                Ok(0) => return false,
                Ok(n) => {
                    self.sent += n;
                    self.all_sent += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if !self.has_more() {
            self.waiting.clear();
            self.waiting.shrink_to(CHUNK);
            self.sent = 0;
        } else if self.sent > BACKLOG / 4 {
            self.waiting.drain(..self.sent);
            self.sent = 0;
        }
        true
    }
}
