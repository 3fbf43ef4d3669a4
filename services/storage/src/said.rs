//! What a service's process says to its manager, over the socket that its orders come from.

use std::io;
use std::os::fd::BorrowedFd;

const WORDS: usize = 3;
const HEAD: usize = WORDS * 8;
const PIN: u64 = 1;
const UNPIN: u64 = 2;
const BEGUN: u64 = 3;
const REFUSED: u64 = 4;
const ENDS: u64 = 5;
const SWITCHED: u64 = 6;
/// Most bytes of a reason.
const WHY: usize = 512;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Keep the descriptor that comes with this, of a domain's node.
    Pin { key: u64, node: u64 },
    /// It is not needed any more.
    Unpin { key: u64, node: u64 },
    /// The disk that is this volume of a domain is made of its new files.
    Switched { key: u64, volume: u64 },
    /// It is confined, and serves.
    Begun,
    /// It cannot serve this domain; it serves the others.
    Refused { key: u64, why: String },
    /// It ends.
    Ends { why: String },
}

impl Said {
    /// Longest of them in bytes.
    pub const LONGEST: usize = HEAD + WHY;

    fn encode(&self) -> Vec<u8> {
        let (words, why) = match self {
            Self::Pin { key, node } => ([PIN, *key, *node], ""),
            Self::Unpin { key, node } => ([UNPIN, *key, *node], ""),
            Self::Switched { key, volume } => ([SWITCHED, *key, *volume], ""),
            Self::Begun => ([BEGUN, 0, 0], ""),
            Self::Refused { key, why } => ([REFUSED, *key, 0], why.as_str()),
            Self::Ends { why } => ([ENDS, 0, 0], why.as_str()),
        };
        let why = &why.as_bytes()[..why.len().min(WHY)];
        words.iter().flat_map(|word| word.to_le_bytes()).chain(why.iter().copied()).collect()
    }

    /// What was said; none if that is nothing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, why) = bytes.split_at_checked(HEAD)?;
        let (words, _) = head.as_chunks();
        let [tag, key, node] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        // It goes to a log, and to whoever asked for the domain.
        let text = || String::from_utf8_lossy(why).replace(char::is_control, " ");
        match tag {
            PIN => Some(Self::Pin { key, node }),
            UNPIN => Some(Self::Unpin { key, node }),
            SWITCHED => Some(Self::Switched { key, volume: node }),
            BEGUN => Some(Self::Begun),
            REFUSED => Some(Self::Refused { key, why: text() }),
            ENDS => Some(Self::Ends { why: text() }),
            _ => None,
        }
    }
}

/// Says it. It is heard also if who says it is killed then.
pub(crate) fn tell(to: BorrowedFd<'_>, said: &Said, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    doppel_service::send_packet(to, &said.encode(), files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let why = "no room".to_owned();
        for said in [
            Said::Pin { key: 1, node: u64::MAX },
            Said::Unpin { key: u64::MAX, node: 2 },
            Said::Switched { key: 1, volume: 2 },
            Said::Begun,
            Said::Refused { key: 7, why: why.clone() },
            Said::Ends { why },
        ] {
            assert_eq!(Said::decode(&said.encode()), Some(said));
        }
        assert_eq!(Said::decode(&[9; HEAD]), None);
        assert_eq!(Said::decode(&[1; HEAD - 1]), None);
    }

    #[test]
    fn a_reason_is_bounded_and_text() {
        let long = Said::Ends { why: "\u{7}é".repeat(WHY) }.encode();
        assert_eq!(long.len(), Said::LONGEST);
        let Some(Said::Ends { why }) = Said::decode(&long) else { panic!("{long:?}") };
        assert!(why.starts_with(" é") && !why.contains(char::is_control));
    }
}
