//! Entries come back as they were put, and nothing else is taken for one.

use proptest::prelude::*;

use super::*;

fn end() -> impl Strategy<Value = End> {
    any::<([u8; 16], u16)>().prop_map(|(ip, port)| End { ip, port })
}

fn request() -> impl Strategy<Value = Request> {
    let socket = 0..OBJECTS;
    prop_oneof![
        (socket.clone(), end(), end()).prop_map(|(socket, from, to)| Request::Connect { socket, from, to }),
        (socket.clone(), end(), any::<u16>()).prop_map(|(socket, at, backlog)| Request::Listen {
            socket,
            at,
            backlog
        }),
        (socket.clone(), end()).prop_map(|(socket, at)| Request::Datagrams { socket, at }),
        (socket.clone(), 0..SocketOption::ALL.len(), any::<u32>())
            .prop_map(|(socket, o, value)| Request::Set { socket, option: SocketOption::ALL[o], value }),
        (socket.clone(), end()).prop_map(|(socket, to)| Request::Peer { socket, to }),
        (socket.clone(), end()).prop_map(|(socket, at)| Request::Echo { socket, at }),
        (socket.clone(), 0..MEASURES).prop_map(|(socket, place)| Request::Measure { socket, place }),
        (socket, any::<bool>()).prop_map(|(socket, reset)| Request::Close { socket, reset }),
    ]
}

proptest! {
    #[test]
    fn requests_come_back(r in request(), ticket in any::<u64>()) {
        prop_assert_eq!(Request::decode(&r.encode(Ticket(ticket))), Ok((r, Ticket(ticket))));
    }

    #[test]
    fn answers_come_back(ticket in any::<u64>(), error in any::<u16>(), port in any::<u16>(), e in end(), listener in 0..OBJECTS, socket in ACCEPTED..OBJECTS) {
        for a in [
            Answer::Done { ticket: Ticket(ticket), error, local: e },
            Answer::Accepted { listener, socket, peer: e, port },
        ] {
            prop_assert_eq!(Answer::decode(&a.encode()), Ok(a));
        }
    }

    /// What decodes names sockets that exist, and encodes to an entry that means the same.
    #[test]
    fn any_words_are_refused_or_sound(words in any::<[u64; 8]>(), kind in 0..10u64, socket in 0..2 * OBJECTS) {
        for first in [words[0], kind | words[0] & 0xffff_0000 | u64::from(socket) << 32] {
            let mut e = words;
            e[0] = first;
            if let Ok((r, t)) = Request::decode(&e) {
                prop_assert_eq!(Request::decode(&r.encode(t)), Ok((r, t)));
            }
            if let Ok(a) = Answer::decode(&e) {
                prop_assert_eq!(Answer::decode(&a.encode()), Ok(a));
            }
        }
    }

    #[test]
    fn datagram_headers_come_back(peer in end(), len in any::<u16>(), port in any::<u16>()) {
        let h = DatagramHeader { peer, len, hops: 33, class: 16, port };
        prop_assert_eq!(DatagramHeader::decode(&h.encode()), h);
        prop_assert!(DatagramHeader::room(len.into()).is_multiple_of(8) && !h.is_record());
        let r = DatagramHeader::record(peer, len, port);
        prop_assert!(DatagramHeader::decode(&r.encode()) == r && r.is_record());
    }

    #[test]
    fn what_is_told_comes_back(mtu in any::<u32>(), len in 0..=256u16, byte in any::<u8>(), offender in any::<[u8; 16]>(), info in any::<u32>()) {
        let m = Measure { mtu, len, info: [byte; Measure::INFO] };
        prop_assert_eq!(Measure::decode(&m.encode()), m);
        let e = ErrorRecord { errno: mtu, origin: byte, kind: 3, code: 4, info, offender };
        let bytes = [&e.encode()[..], b"sent"].concat();
        prop_assert_eq!(ErrorRecord::decode(&bytes), Some((e, &b"sent"[..])));
        prop_assert_eq!(ErrorRecord::decode(&bytes[..31]), None);
    }

    #[test]
    fn any_measure_is_bounded(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        let m = Measure::decode(&bytes.try_into().unwrap());
        prop_assert!(usize::from(m.len) <= Measure::INFO);
    }
}
