//! Rings, marks and entries, as the side has them that the other one lies to: whatever that stores, indices stay within
//! their buffers, an entry is decoded to what it encodes, and a ticket is used up once.
#![no_main]

use std::os::fd::AsFd;

use doppel_abi_service::net::{Answer, BUFFER, DatagramHeader, Request, SIZE, SOCKETS, SocketHeader};
use doppel_abi_service::{Answers, Bells, ENTRIES, OBJECTS, Requests, layout};
use doppel_ring::{Consumer, Producer, Reader, Span, Ticket, Tickets, Writer};
use doppel_sys::shared::SharedMap;

/// One side's private state, of either side.
#[derive(Default)]
struct Side {
    producer: Producer,
    consumer: Consumer,
    writer: Writer,
    reader: Reader,
}

fn inside(span: Span) {
    assert!(span.offset + span.len <= BUFFER as usize, "{span:?}");
}

fn decode(entry: &[u64; 8]) {
    if let Ok((request, ticket)) = Request::decode(entry) {
        assert_eq!(Request::decode(&request.encode(ticket)), Ok((request, ticket)));
    }
    if let Ok(answer) = Answer::decode(entry) {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
}

impl Side {
    fn step(&mut self, map: &SharedMap, what: u8, n: u32, tickets: &mut Tickets<u32>) {
        let requests = map.get::<Requests>(layout::REQUESTS as usize).ring();
        let answers = map.get::<Answers>(layout::ANSWERS as usize).ring();
        let socket: &SocketHeader = map.get(SOCKETS as usize);
        match what % 10 {
            0 => {
                let entry = [u64::from(n); 8];
                if self.producer.push(&requests, &entry) == Ok(true) {
                    let _ = self.producer.publish(&requests);
                }
            }
            1 => {
                let mut left = ENTRIES;
                while let Ok(Some(entry)) = self.consumer.pop(&answers) {
                    decode(&entry);
                    // As much as the ring has room for; the other side may have told of more meanwhile.
                    left -= 1;
                    if left == 0 {
                        break;
                    }
                }
                let _ = self.consumer.release(&answers);
            }
            2 => {
                if let Ok(span) = self.writer.span(&socket.up(), n) {
                    inside(span);
                    let _ = self.writer.advance(&socket.up(), span.len.min(n as usize));
                }
            }
            3 => {
                if let Ok(span) = self.reader.span(&socket.down(), n) {
                    inside(span);
                }
                if let Ok(waiting) = self.reader.waiting(&socket.down()) {
                    assert!(waiting <= BUFFER);
                    let _ = self.reader.advance(&socket.down(), waiting.min(n) as usize);
                }
            }
            4 => {
                let mut seen = 0;
                map.get::<Bells>(layout::TO_GUEST as usize).take(|i| {
                    assert!(i < OBJECTS);
                    seen += 1;
                });
                assert!(seen <= OBJECTS);
            }
            5 => map.get::<Bells>(layout::TO_GUEST as usize).mark(n % OBJECTS),
            6 => {
                if let Ok(ticket) = tickets.issue(n) {
                    assert_eq!(tickets.complete(ticket), Some(n));
                    assert_eq!(tickets.complete(ticket), None);
                }
            }
            7 => drop(tickets.complete(Ticket(u64::from(n) << 16 | u64::from(what)))),
            8 => {
                let _ = (self.producer.sleep(&requests), self.consumer.sleep(&answers));
                let _ = (self.writer.sleep(&socket.up()), self.reader.sleep(&socket.down()));
            }
            _ => {
                let head = DatagramHeader::decode(&std::array::from_fn(|i| (n >> (i % 4 * 8)) as u8));
                assert_eq!(DatagramHeader::decode(&head.encode()), head);
                assert!(DatagramHeader::room(head.len.into()) < BUFFER as usize);
            }
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (memory, _doorbell) = doppel_service::make(SIZE).expect("memory for a channel");
    let map = SharedMap::new(memory.as_fd(), 2 << 20).expect("memory for a channel");
    let (mut side, mut tickets) = (Side::default(), Tickets::new(1));
    let mut words = bytes.chunks_exact(8);
    for step in &mut words {
        let n = u32::from_le_bytes([step[4], step[5], step[6], step[7]]);
        if step[0] % 2 == 0 {
            side.step(&map, step[0] / 2, n, &mut tickets);
        } else {
            // The other side: a word of a ring, a socket, a mark, or an entry.
            let at = u64::from(u16::from_le_bytes([step[2], step[3]]));
            let at = match step[1] % 4 {
                0 => layout::REQUESTS + at % 256,
                1 => layout::ANSWERS + at % 2048,
                2 => SOCKETS + at % 320,
                _ => layout::TO_GUEST + at % 4096,
            };
            map.write(at as usize & !3, &n.to_le_bytes());
        }
    }
    decode(&std::array::from_fn(|i| {
        u64::from_le_bytes(std::array::from_fn(|k| bytes.get(8 * i + k).copied().unwrap_or(0)))
    }));
});
