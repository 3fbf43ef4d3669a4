//! Which of many objects want a look: a bitmap in two levels, marked by one side, taken by the other.
//!
//! As with Denali's batched interrupts, any number of marks of one object before it is looked at are one.

use super::{AtomicU64, Ordering};

/// The shared words of up to 64 × 64 marks.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Marks {
    /// Bit w: word w may have marks.
    summary: AtomicU64,
    words: [AtomicU64; 64],
}

impl Default for Marks {
    fn default() -> Self {
        Self { summary: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

/// Objects marked by one side for the other.
#[derive(Clone, Copy, Debug)]
pub struct Dirty<'a>(pub &'a Marks);

impl Dirty<'_> {
    /// Most objects.
    pub const LIMIT: u32 = 64 * 64;

    /// Marks object `i`, after what is to be seen of it was stored.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn mark(&self, i: u32) {
        let (w, bit) = (i / 64, 1 << (i % 64));
        self.0.words[w as usize].fetch_or(bit, Ordering::SeqCst);
        // Whoever takes the summary's bit looks at the word after that, and so sees our mark.
        if self.0.summary.load(Ordering::SeqCst) & 1 << w == 0 {
            self.0.summary.fetch_or(1 << w, Ordering::SeqCst);
        }
    }

    /// Takes all marks. `look` sees each object at most once, whatever the peer does meanwhile.
    pub fn take(&self, mut look: impl FnMut(u32)) {
        let mut words = self.0.summary.swap(0, Ordering::SeqCst);
        while words != 0 {
            let w = words.trailing_zeros();
            words &= words - 1;
            let mut marks = self.0.words[w as usize].swap(0, Ordering::SeqCst);
            while marks != 0 {
                look(w * 64 + marks.trailing_zeros());
                marks &= marks - 1;
            }
        }
    }

    /// Whether there may be marks.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.summary.load(Ordering::SeqCst) != 0
    }
}
