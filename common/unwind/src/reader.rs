//! Numbers as DWARF writes them.

/// Reads from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A LEB128 number: its bits, how many bits were read, and its last byte. Bits above 64 are dropped.
    fn leb(&mut self) -> Option<(u64, u32, u8)> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let b = self.u8()?;
            if shift < 64 {
                value |= u64::from(b & 0x7f) << shift;
            }
            shift += 7;
            if b & 0x80 == 0 {
                return Some((value, shift, b));
            }
        }
    }

    /// An unsigned LEB128 number; bits above 64 are dropped.
    pub fn uleb(&mut self) -> Option<u64> {
        self.leb().map(|(value, ..)| value)
    }

    /// A signed LEB128 number.
    pub fn sleb(&mut self) -> Option<i64> {
        let (value, bits, last) = self.leb()?;
        let sign = if bits < 64 && last & 0x40 != 0 { u64::MAX << bits } else { 0 };
        Some((value | sign).cast_signed())
    }

    /// The bytes before the next NUL.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let n = self.0.iter().position(|b| *b == 0)?;
        let s = self.bytes(n)?;
        self.u8()?;
        Some(s)
    }
}
