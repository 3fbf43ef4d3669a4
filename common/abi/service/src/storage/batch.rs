//! Changes of names that are asked for together ([`super::Operation::Batch`]): done one after the other, in this order.

use super::{NAME, Operation, numbers, words};

/// Most changes of a batch.
pub const STEPS: usize = 256;

/// One change: this header, then its names, one behind the other, and zeros up to a multiple of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// [`Operation::Unlink`], [`Operation::RmDir`] or [`Operation::Rename`].
    pub operation: Operation,
    /// The request's.
    pub flags: u32,
    /// The request's.
    pub node: u64,
    /// The request's.
    pub other: u64,
    /// Length of the name in `node`.
    pub first: u16,
    /// Length of that in `other`; 0: none.
    pub second: u16,
}

/// A change, its names, and the bytes behind it.
pub type Split<'a> = (Step, [&'a [u8]; 2], &'a [u8]);

impl Step {
    /// Size of the header in bytes.
    pub const BYTES: usize = 32;
    /// Bytes of the longest one.
    pub const LONGEST: usize = Self::BYTES + (2 * NAME).next_multiple_of(8);

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        words([
            u64::from(self.operation as u16) | u64::from(self.flags) << 32,
            self.node,
            self.other,
            u64::from(self.first) | u64::from(self.second) << 16,
        ])
    }

    /// Bytes of it, its names included.
    #[must_use]
    pub fn size(&self) -> usize {
        Self::BYTES + (usize::from(self.first) + usize::from(self.second)).next_multiple_of(8)
    }

    /// The first one in some bytes, its names, and what is behind it; none if that is none.
    #[must_use]
    pub fn split(bytes: &[u8]) -> Option<Split<'_>> {
        let [what, node, other, lengths] = numbers(bytes.first_chunk::<{ Self::BYTES }>()?);
        let operation = Operation::from_number(what as u16)?;
        if !matches!(operation, Operation::Unlink | Operation::RmDir | Operation::Rename) {
            return None;
        }
        let (first, second) = (lengths as u16, (lengths >> 16) as u16);
        let step = Self { operation, flags: (what >> 32) as u32, node, other, first, second };
        let (whole, rest) = bytes.split_at_checked(step.size())?;
        let (name, names) = whole[Self::BYTES..].split_at_checked(first.into())?;
        Some((step, [name, names.get(..second.into())?], rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_what_they_were() {
        let step =
            Step { operation: Operation::Rename, flags: 1 << 30, node: 70, other: 80, first: 3, second: 9 };
        let mut bytes = step.encode().to_vec();
        bytes.extend(b"oldsomewhere");
        bytes.resize(step.size(), 0);
        bytes.extend(b"rest");
        assert_eq!(Step::split(&bytes), Some((step, [&b"old"[..], &b"somewhere"[..]], &b"rest"[..])));
        let unlink = Step { operation: Operation::Unlink, second: 0, ..step };
        let mut bytes = unlink.encode().to_vec();
        bytes.extend(b"old\0\0\0\0\0");
        assert_eq!(Step::split(&bytes), Some((unlink, [&b"old"[..], &b""[..]], &b""[..])));
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(Step::split(&[0; 64]), None);
        let step = Step { operation: Operation::Unlink, flags: 0, node: 0, other: 0, first: 9, second: 0 };
        assert_eq!(Step::split(&step.encode()), None, "its name is missing");
        let make = Step { operation: Operation::Make, first: 0, ..step };
        assert_eq!(Step::split(&make.encode()), None, "not in a batch");
    }
}
