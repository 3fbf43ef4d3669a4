//! Who does nothing is looked at less and less often: thousands that are idle cost next to nothing.

/// Regular looks that pass without one. After each in which it has done nothing `TIMES` times as many pass as before, and `TIMES - 1` more;
/// `MOST` at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rests<const TIMES: u32, const MOST: u32> {
    /// Looks in a row that pass without it, and how many of these are to come.
    skips: u32,
    left: u32,
}

impl<const TIMES: u32, const MOST: u32> Rests<TIMES, MOST> {
    /// Whether this look passes without it.
    pub fn skips(&mut self) -> bool {
        let skips = self.left > 0;
        self.left = self.left.saturating_sub(1);
        skips
    }

    /// It was looked at, and had done something or not.
    pub fn looked(&mut self, worked: bool) {
        self.skips = if worked { 0 } else { (self.skips * TIMES + TIMES - 1).min(MOST) };
        self.left = self.skips;
    }
}
