//! Streams of bytes: one writer, one reader. The bytes lie elsewhere; here is only where.
//!
//! The sides move the bytes themselves, because they have better means than copying: a service domain lets its host
//! kernel read and write them in place, from and to a socket.

use super::{Broken, Header, Ordering, ask, take};

/// Where in its buffer a stream begins. Programs' and the host's buffers begin with a page; if those of streams did too,
/// whatever comes after a byte or a few would be copied to a place 1-15 bytes ahead of its source modulo a page, which
/// takes `rep movsb` ten times as long on AMD Zen 3 and 4. A multiple of a cache line.
const FIRST: u32 = 320;

/// Part of a stream's buffer, without a wrap inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the buffer.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// A stream in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    header: &'a Header,
    size: u32,
}

impl<'a> Stream<'a> {
    /// A stream with a buffer of `size` bytes.
    ///
    /// # Panics
    /// If the size is not a power of two.
    #[must_use]
    pub fn new(header: &'a Header, size: u32) -> Self {
        assert!(size.is_power_of_two(), "a stream of {size} bytes");
        Self { header, size }
    }

    /// The first of at most two spans of the `len` bytes from `count` on.
    fn span(&self, count: u32, len: u32) -> Span {
        let offset = count.wrapping_add(FIRST) & (self.size - 1);
        Span { offset: offset as usize, len: len.min(self.size - offset) as usize }
    }
}

/// The writer's private side.
#[derive(Debug, Default)]
pub struct Writer {
    head: u32,
}

impl Writer {
    /// How many bytes were ever written, modulo 2³².
    #[must_use]
    pub fn count(&self) -> u32 {
        self.head
    }

    /// Bytes that fit.
    ///
    /// # Errors
    /// The reader's index is impossible.
    pub fn room(&self, s: &Stream<'_>) -> Result<u32, Broken> {
        let used = self.head.wrapping_sub(s.header.tail.load(Ordering::Acquire));
        s.size.checked_sub(used).ok_or(Broken)
    }

    /// Where to put bytes, `skip` bytes after the next; empty if there is no room. A span ends at a wrap.
    ///
    /// # Errors
    /// The reader's index is impossible.
    pub fn span(&self, s: &Stream<'_>, skip: u32) -> Result<Span, Broken> {
        let room = self.room(s)?;
        let skip = skip.min(room);
        Ok(s.span(self.head.wrapping_add(skip), room - skip))
    }

    /// Shows the reader `n` bytes that were put where [`Self::span`] said. True: it sleeps, notify it.
    #[must_use]
    pub fn advance(&mut self, s: &Stream<'_>, n: usize) -> bool {
        debug_assert!(n <= s.size as usize, "{n} bytes in a stream of {}", s.size);
        self.head = self.head.wrapping_add(n as u32);
        s.header.head.store(self.head, Ordering::Release);
        take(&s.header.consumer_waits)
    }

    /// Asks for a notification when there is room; false if there is.
    ///
    /// # Errors
    /// The reader's index is impossible.
    pub fn sleep(&self, s: &Stream<'_>) -> Result<bool, Broken> {
        ask(&s.header.producer_waits);
        Ok(self.room(s)? == 0 && !self.hung_up(s))
    }

    /// Says that nothing will come any more. True: the reader sleeps, notify it.
    #[must_use]
    pub fn close(&self, s: &Stream<'_>) -> bool {
        s.header.closed.store(1, Ordering::Release);
        take(&s.header.consumer_waits)
    }

    /// Whether nobody reads any more.
    #[must_use]
    pub fn hung_up(&self, s: &Stream<'_>) -> bool {
        s.header.hung_up.load(Ordering::Acquire) != 0
    }
}

/// The reader's private side.
#[derive(Debug, Default)]
pub struct Reader {
    tail: u32,
}

impl Reader {
    /// How many bytes were ever read, modulo 2³².
    #[must_use]
    pub fn count(&self) -> u32 {
        self.tail
    }

    /// Bytes that wait.
    ///
    /// # Errors
    /// The writer's index is impossible.
    pub fn waiting(&self, s: &Stream<'_>) -> Result<u32, Broken> {
        let waiting = s.header.head.load(Ordering::Acquire).wrapping_sub(self.tail);
        if waiting > s.size { Err(Broken) } else { Ok(waiting) }
    }

    /// Where the next bytes are, beginning `skip` bytes after the first that waits; empty if there are none.
    ///
    /// # Errors
    /// The writer's index is impossible.
    pub fn span(&self, s: &Stream<'_>, skip: u32) -> Result<Span, Broken> {
        let waiting = self.waiting(s)?;
        let skip = skip.min(waiting);
        Ok(s.span(self.tail.wrapping_add(skip), waiting - skip))
    }

    /// Gives back `n` bytes that were read where [`Self::span`] said. True: the writer sleeps for room, notify it.
    ///
    /// A writer that sleeps is notified when half of the buffer is free, or it would be woken for every few bytes.
    #[must_use]
    pub fn advance(&mut self, s: &Stream<'_>, n: usize) -> bool {
        debug_assert!(n <= s.size as usize, "{n} bytes in a stream of {}", s.size);
        self.tail = self.tail.wrapping_add(n as u32);
        s.header.tail.store(self.tail, Ordering::Release);
        // A writer that sleeps writes nothing meanwhile, so its index is the last one, whichever is read here.
        let waiting = s.header.head.load(Ordering::Relaxed).wrapping_sub(self.tail);
        waiting <= s.size / 2 && take(&s.header.producer_waits)
    }

    /// There is room that the writer may not have known of, though nothing was read. True: it sleeps, notify it.
    #[must_use]
    pub fn offer(&self, s: &Stream<'_>) -> bool {
        take(&s.header.producer_waits)
    }

    /// Asks for a notification when bytes come or the stream is closed; false if it is so already.
    ///
    /// # Errors
    /// The writer's index is impossible.
    pub fn sleep(&self, s: &Stream<'_>) -> Result<bool, Broken> {
        ask(&s.header.consumer_waits);
        Ok(self.waiting(s)? == 0 && !self.closed(s))
    }

    /// Whether nothing comes after the bytes that wait. Look before [`Self::waiting`], or bytes that came just before
    /// the end are missed.
    #[must_use]
    pub fn closed(&self, s: &Stream<'_>) -> bool {
        s.header.closed.load(Ordering::Acquire) != 0
    }

    /// Says that nothing will be read any more. True: the writer sleeps, notify it.
    #[must_use]
    pub fn hang_up(&self, s: &Stream<'_>) -> bool {
        s.header.hung_up.store(1, Ordering::Release);
        take(&s.header.producer_waits)
    }
}
