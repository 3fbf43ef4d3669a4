//! What answers of name servers say, as far as rules go by names (RFC 1035). Every byte is an allegation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most records of an answer that are looked at, and addresses taken from it.
const RECORDS: u16 = 256;
pub(crate) const MOST: usize = 64;
/// Longest name as text, and most pointers in one.
const LONGEST: usize = 255;
const JUMPS: usize = 16;

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const IN: u16 = 1;

/// A good answer to one question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// What was asked for, in small letters.
    pub name: String,
    /// Its addresses, and for how many seconds they are good.
    pub addresses: Vec<(IpAddr, u32)>,
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

/// The name at an offset, and what follows it.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut end = None;
    let mut jumps = 0;
    loop {
        let len = usize::from(*message.get(at)?);
        match len {
            0 => return Some((text, end.unwrap_or(at + 1))),
            1..=63 => {
                if !text.is_empty() {
                    text.push('.');
                }
                for b in message.get(at + 1..at + 1 + len)? {
                    if !b.is_ascii_graphic() || *b == b'.' {
                        return None;
                    }
                    text.push(b.to_ascii_lowercase().into());
                }
                if text.len() > LONGEST {
                    return None;
                }
                at += 1 + len;
            }
            192..=255 => {
                jumps += 1;
                if jumps > JUMPS {
                    return None;
                }
                end = end.or(Some(at + 2));
                at = usize::from(word(message, at)? & 0x3fff);
            }
            _ => return None,
        }
    }
}

/// One ordinary question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The name, in small letters.
    pub name: String,
    kind: u16,
    /// Where it ends in its message.
    end: usize,
}

/// The question of a message that has one, about names of the Internet.
pub(crate) fn question(message: &[u8]) -> Option<Question> {
    if word(message, 2)? & 0xf800 != 0 || word(message, 4)? != 1 {
        return None;
    }
    let (name, at) = name(message, 12)?;
    // Without pointers: an answer has the question again, but not all that they might lead to.
    if at != 12 + name.len() + if name.is_empty() { 1 } else { 2 } {
        return None;
    }
    let kind = word(message, at)?;
    (word(message, at + 2)? == IN).then_some(Question { name, kind, end: at + 4 })
}

/// The answer to a question about those who have these addresses; nothing if it was about something else of them.
pub(crate) fn reply(message: &[u8], question: &Question, all: &[(Ipv4Addr, Ipv6Addr)]) -> Vec<u8> {
    let of = |(ip4, ip6): &(Ipv4Addr, Ipv6Addr)| match question.kind {
        A => Some(ip4.octets().to_vec()),
        AAAA => Some(ip6.octets().to_vec()),
        _ => None,
    };
    let found: Vec<Vec<u8>> = all.iter().take(MOST).filter_map(of).collect();
    let mut out = message[..question.end].to_vec();
    // An answer, with recursion, without an error; whether it was wanted is said as it was asked.
    out[2] = 0x80 | message[2] & 1;
    out[3] = 0x80;
    out[6..12].copy_from_slice(&[0, u8::try_from(found.len()).unwrap_or(0), 0, 0, 0, 0]);
    for data in found {
        // The name is the question's. Nobody keeps it: the next domain of that name has another address.
        out.extend([0xc0, 12]);
        out.extend([question.kind, IN, 0, 0].map(u16::to_be_bytes).as_flattened());
        out.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
        out.extend(data);
    }
    out
}

/// What a message says about the name it was asked for, and those that stand for it; none if it is no good answer.
pub(crate) fn found(message: &[u8]) -> Option<Found> {
    let flags = word(message, 2)?;
    // An answer, to an ordinary question, without an error.
    if flags & 0xf80f != 0x8000 || word(message, 4)? != 1 {
        return None;
    }
    let (asked, mut at) = name(message, 12)?;
    if word(message, at + 2)? != IN {
        return None;
    }
    at += 4;
    let mut names = vec![asked.clone()];
    let mut addresses = Vec::new();
    for _ in 0..word(message, 6)?.min(RECORDS) {
        let (owner, next) = name(message, at)?;
        let kind = word(message, next)?;
        let class = word(message, next + 2)?;
        let seconds = u32::from(word(message, next + 4)?) << 16 | u32::from(word(message, next + 6)?);
        let len = usize::from(word(message, next + 8)?);
        let data = message.get(next + 10..next + 10 + len)?;
        if class == IN && names.contains(&owner) && addresses.len() < MOST {
            match (kind, len) {
                (A, 4) => {
                    let ip: [u8; 4] = data.try_into().ok()?;
                    addresses.push((Ipv4Addr::from(ip).into(), seconds));
                }
                (AAAA, 16) => {
                    let ip: [u8; 16] = data.try_into().ok()?;
                    addresses.push((Ipv6Addr::from(ip).to_canonical(), seconds));
                }
                (CNAME, _) if names.len() < JUMPS => names.push(name(message, next + 10)?.0),
                _ => {}
            }
        }
        at = next + 10 + len;
    }
    Some(Found { name: asked, addresses })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn labels(name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for label in name.split('.') {
            out.push(u8::try_from(label.len()).unwrap());
            out.extend(label.bytes());
        }
        out.push(0);
        out
    }

    /// A question.
    pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut m = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        m.extend(labels(name));
        m.extend(kind.to_be_bytes());
        m.extend([0, 1]);
        m
    }

    /// An answer with these records: owner, kind, data.
    pub(crate) fn answer(asked: &str, records: &[(&str, u16, Vec<u8>)]) -> Vec<u8> {
        let mut m = vec![1, 2, 0x81, 0x80, 0, 1, 0, u8::try_from(records.len()).unwrap(), 0, 0, 0, 0];
        m.extend(labels(asked));
        m.extend([0, 1, 0, 1]);
        for (owner, kind, data) in records {
            // The name that was asked for is pointed to, as servers do.
            m.extend(if *owner == asked { vec![0xc0, 12] } else { labels(owner) });
            m.extend(kind.to_be_bytes());
            m.extend([0, 1, 0, 0, 1, 0]);
            m.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            m.extend(data);
        }
        m
    }

    #[test]
    fn addresses_of_a_name_and_of_what_stands_for_it() {
        let m = answer(
            "www.Example.org",
            &[
                ("www.Example.org", CNAME, labels("cdn.example.net")),
                ("cdn.example.net", A, vec![192, 0, 2, 1]),
                ("evil.example.com", A, vec![192, 0, 2, 2]),
                ("cdn.example.net", AAAA, Ipv6Addr::LOCALHOST.octets().to_vec()),
                ("cdn.example.net", A, vec![1]),
            ],
        );
        let f = found(&m).unwrap();
        assert_eq!(f.name, "www.example.org");
        assert_eq!(f.addresses, [([192, 0, 2, 1].into(), 256), (Ipv6Addr::LOCALHOST.into(), 256)]);
    }

    #[test]
    fn questions_are_answered_as_they_were_asked() {
        let mut m = question("Web", AAAA);
        // What comes behind the question (EDNS) is not repeated.
        m[11] = 1;
        m.extend([0; 11]);
        let q = super::question(&m).unwrap();
        assert_eq!((q.name.as_str(), q.kind), ("web", AAAA));
        let r = reply(&m, &q, &[(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)]);
        assert_eq!(r[..12], [1, 2, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(found(&r).unwrap().addresses, [(Ipv6Addr::LOCALHOST.into(), 0)]);
        for len in 0..q.end {
            assert_eq!(super::question(&m[..len]), None);
        }
        assert_eq!(super::question(&r), None, "an answer is no question");
        let pointed = [&m[..12], &[0xc0, 20, 0, 1, 0, 1, 0, 0, 3], b"web\0"].concat();
        assert_eq!(super::question(&pointed), None, "what it points to is not in the answer");
    }

    #[test]
    fn an_answer_is_looked_at_up_to_a_limit() {
        let asked = [["a".repeat(60).as_str(); 4].join("."), "b".into()].join(".");
        let many = vec![(asked.as_str(), A, vec![192, 0, 2, 1]); 255];
        let mut m = answer(&asked, &many);
        assert_eq!(found(&m).unwrap().addresses.len(), MOST);
        // More than there are, as far as it is looked.
        m[6] = 0xff;
        m.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 1]);
        assert_eq!(found(&m).unwrap().addresses.len(), MOST);
    }

    #[test]
    fn no_message_is_too_strange() {
        let m = answer("example.org", &[("example.org", A, vec![192, 0, 2, 1])]);
        assert!(found(&m).is_some());
        for len in 0..m.len() {
            assert_eq!(found(&m[..len]), None);
        }
        // A question, an error, two questions.
        for (at, value) in [(2, 0x01), (3, 0x83), (5, 2)] {
            let mut bad = m.clone();
            bad[at] = value;
            assert_eq!(found(&bad), None);
        }
        // A name that points to itself, and every single byte something else.
        let mut round = m.clone();
        round[12..14].copy_from_slice(&[0xc0, 12]);
        assert_eq!(found(&round), None);
        for at in 0..m.len() {
            for value in 0..=u8::MAX {
                let mut bad = m.clone();
                bad[at] = value;
                let _ = found(&bad);
            }
        }
    }
}
