//! Behaviour of the rings, and hostile peers.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn entry(n: u64) -> Entry {
    core::array::from_fn(|i| n.wrapping_mul(31).wrapping_add(i as u64))
}

fn slots(n: usize) -> Vec<Slot> {
    (0..n).map(|_| Slot::default()).collect()
}

#[test]
fn entries_come_in_order_over_many_wraps() {
    let (header, slots) = (Header::default(), slots(8));
    let ring = Entries::new(&header, &slots);
    let (mut p, mut c) = (Producer::default(), Consumer::default());
    let mut next = 0;
    for n in 0..1000 {
        assert_eq!(p.push(&ring, &entry(n)), Ok(true));
        assert!(!p.publish(&ring), "nobody waits");
        if n % 8 == 7 {
            assert_eq!(p.push(&ring, &entry(n)), Ok(false), "full");
            while let Some(e) = c.pop(&ring).unwrap() {
                assert_eq!(e, entry(next));
                next += 1;
            }
            assert!(!c.release(&ring));
        }
    }
    assert_eq!(next, 1000);
}

#[test]
fn entries_are_seen_when_published() {
    let (header, slots) = (Header::default(), slots(4));
    let ring = Entries::new(&header, &slots);
    let (mut p, mut c) = (Producer::default(), Consumer::default());
    p.push(&ring, &entry(1)).unwrap();
    assert_eq!(c.pop(&ring), Ok(None));
    let _ = p.publish(&ring);
    assert_eq!(c.pop(&ring), Ok(Some(entry(1))));
}

#[test]
fn only_who_asks_is_notified_and_only_once() {
    let (header, slots) = (Header::default(), slots(2));
    let ring = Entries::new(&header, &slots);
    let (mut p, mut c) = (Producer::default(), Consumer::default());
    assert_eq!(c.sleep(&ring), Ok(true));
    for wanted in [true, false] {
        p.push(&ring, &entry(0)).unwrap();
        assert_eq!(p.publish(&ring), wanted);
    }
    assert_eq!(c.sleep(&ring), Ok(false), "there is something");
    assert_eq!(p.sleep(&ring), Ok(true));
    c.pop(&ring).unwrap();
    assert!(c.release(&ring), "the producer waits for room");
    c.pop(&ring).unwrap();
    assert!(!c.release(&ring));
}

#[test]
fn a_writer_is_notified_when_half_of_the_buffer_is_free() {
    let header = Header::default();
    let s = Stream::new(&header, 16);
    let (mut w, mut r) = (Writer::default(), Reader::default());
    let _ = w.advance(&s, 16);
    assert_eq!(w.sleep(&s), Ok(true));
    assert!(!r.advance(&s, 7));
    assert!(r.advance(&s, 1), "eight of sixteen");
    assert!(!r.advance(&s, 8), "only once");
}

#[test]
fn a_stream_ends_after_its_bytes() {
    let header = Header::default();
    let s = Stream::new(&header, 16);
    let (mut w, mut r) = (Writer::default(), Reader::default());
    assert_eq!(r.sleep(&s), Ok(true));
    assert_eq!(w.span(&s, 0), Ok(Span { offset: 0, len: 16 }));
    assert!(w.advance(&s, 10));
    assert!(!w.close(&s));
    assert!(r.closed(&s));
    assert_eq!(r.span(&s, 4), Ok(Span { offset: 4, len: 6 }), "skipping is peeking further on");
    assert!(!r.advance(&s, 10));
    assert_eq!(r.sleep(&s), Ok(false), "at the end nobody sleeps");
    assert_eq!(w.span(&s, 0), Ok(Span { offset: 10, len: 6 }), "up to the wrap");
    assert!(!w.hung_up(&s));
    assert!(!r.hang_up(&s));
    assert!(w.hung_up(&s));
    let _ = w.advance(&s, 16);
    assert_eq!(w.sleep(&s), Ok(false), "nobody waits for room that never comes");
}

#[test]
fn marks_are_taken_once() {
    let marks = Marks::default();
    let d = Dirty(&marks);
    assert!(!d.any());
    for i in [0, 5, 5, 63, 64, Dirty::LIMIT - 1] {
        d.mark(i);
    }
    let mut seen = Vec::new();
    d.take(|i| seen.push(i));
    assert_eq!(seen, [0, 5, 63, 64, Dirty::LIMIT - 1]);
    d.take(|_| panic!("taken already"));
}

#[test]
fn a_mark_made_while_marks_are_taken_is_seen_next_time() {
    let marks = Marks::default();
    let d = Dirty(&marks);
    d.mark(1);
    d.take(|_| d.mark(1));
    let mut seen = 0;
    d.take(|_| seen += 1);
    assert_eq!(seen, 1);
}

#[test]
fn a_ticket_completes_once() {
    let mut t = Tickets::new(7);
    let (a, b) = (t.issue('a').unwrap(), t.issue('b').unwrap());
    assert_eq!(t.complete(a), Some('a'));
    assert_eq!(t.complete(a), None, "twice");
    let c = t.issue('c').unwrap();
    assert_eq!(t.complete(a), None, "the place is another's now");
    assert_eq!(t.complete(Ticket(c.0 ^ 1 << 48)), None, "another epoch's");
    assert_eq!(t.begin(8), ['c', 'b']);
    assert_eq!((t.complete(b), t.complete(c)), (None, None));
}

#[test]
fn tickets_are_bounded() {
    let mut t = Tickets::new(0);
    for n in 0..=u32::from(u16::MAX) {
        t.issue(n).unwrap();
    }
    assert_eq!(t.issue(9), Err(9));
}

#[test]
fn a_client_asks_again_for_room_and_hears_no_more_than_it_wants() {
    let (headers, memory) = ([Header::default(), Header::default()], [slots(4), slots(4)]);
    let (requests, answers) = (Entries::new(&headers[0], &memory[0]), Entries::new(&headers[1], &memory[1]));
    let mut client = ClientEnd::default();
    for n in 0..6 {
        client.ask(&requests, n, |ticket| [ticket.0; ENTRY_WORDS]);
    }
    let (mut heard, mut said) = (Consumer::default(), Producer::default());
    assert_eq!(heard.pop(&requests), Ok(None), "there is no service yet");
    client.begin(3, false);
    assert!(client.flush(&requests));
    for _ in 0..6 {
        // Six requests, and a ring for four.
        let asked = heard.pop(&requests).unwrap().unwrap();
        let _ = heard.release(&requests);
        client.flush(&requests);
        if said.push(&answers, &asked) == Ok(false) {
            break;
        }
        let _ = said.publish(&answers);
    }
    let mut done = Vec::new();
    assert!(client.has_answers(&answers));
    client.hear(&answers, 3, |client, e| done.extend(client.complete(Ticket(e[0]))));
    assert_eq!(done, [0, 1, 2]);
    assert!(client.has_answers(&answers));
    client.hear(&answers, 3, |client, e| done.extend(client.complete(Ticket(e[0]))));
    assert_eq!((done, client.has_answers(&answers)), (vec![0, 1, 2, 3], false));
    // What was under way is void in the next epoch, whose rings are empty.
    let late = heard.pop(&requests).unwrap().unwrap();
    client.begin(4, true);
    assert_eq!(client.complete(Ticket(late[0])), None);
}

#[test]
fn a_number_is_used_once_at_a_time() {
    let mut numbers = Numbers::new(3);
    assert_eq!([(); 4].map(|()| numbers.take()), [Some(0), Some(1), Some(2), None]);
    numbers.give_back(7);
    assert_eq!(numbers.take(), None, "it is none of these");
    numbers.give_back(1);
    assert_eq!(numbers.take(), Some(1));
    numbers.only(&[0, 2]);
    assert_eq!([(); 2].map(|()| numbers.take()), [Some(1), None]);
}

proptest! {
    /// A peer that stores anything anywhere gets nothing but wrong entries: bounded in number, never a panic.
    #[test]
    fn hostile_indices_are_broken_or_bounded(words in prop::collection::vec((0..6usize, any::<u32>()), 0..64)) {
        let (header, slots) = (Header::default(), slots(4));
        let ring = Entries::new(&header, &slots);
        let s = Stream::new(&header, 4096);
        let (mut p, mut c) = (Producer::default(), Consumer::default());
        let (mut w, mut r) = (Writer::default(), Reader::default());
        for (which, value) in words {
            let word = [
                &header.head, &header.tail, &header.consumer_waits,
                &header.producer_waits, &header.closed, &header.hung_up,
            ][which];
            word.store(value, Ordering::Relaxed);
            let mut popped = 0;
            while let Ok(Some(_)) = c.pop(&ring) {
                popped += 1;
                prop_assert!(popped <= 4);
            }
            let _ = (c.release(&ring), c.sleep(&ring));
            let mut pushed = 0;
            while p.push(&ring, &entry(0)) == Ok(true) {
                pushed += 1;
                prop_assert!(pushed <= 4);
            }
            let _ = (p.publish(&ring), p.sleep(&ring));
            for span in [w.span(&s, value), r.span(&s, value)].into_iter().flatten() {
                prop_assert!(span.offset + span.len <= 4096);
            }
            if let Ok(span) = w.span(&s, 0) {
                let _ = (w.advance(&s, span.len), w.sleep(&s), w.close(&s));
            }
            if let Ok(span) = r.span(&s, 0) {
                let _ = (r.advance(&s, span.len), r.sleep(&s), r.hang_up(&s));
            }
        }
    }

    /// Any order of pushes and pops gives what a queue gives, over the wrap of the counts as well.
    #[test]
    fn entries_are_a_queue(steps in prop::collection::vec(any::<bool>(), 0..200), start in any::<u32>()) {
        let (header, slots) = (Header::default(), slots(8));
        header.head.store(start, Ordering::Relaxed);
        header.tail.store(start, Ordering::Relaxed);
        let ring = Entries::new(&header, &slots);
        let (mut p, mut c) = (Producer { head: start, shown: start }, Consumer { tail: start });
        let mut model = VecDeque::new();
        for (n, push) in steps.into_iter().enumerate() {
            if push {
                let fits = p.push(&ring, &entry(n as u64)).unwrap();
                prop_assert_eq!(fits, model.len() < 8);
                let _ = p.publish(&ring);
                if fits {
                    model.push_back(entry(n as u64));
                }
            } else {
                prop_assert_eq!(c.pop(&ring).unwrap(), model.pop_front());
                let _ = c.release(&ring);
            }
        }
    }

    /// Forged tickets complete nothing.
    #[test]
    fn forged_tickets_fit_nothing(forged in any::<u64>()) {
        let mut t = Tickets::new(3);
        let real: Vec<u64> = (0..4).map(|n| t.issue(n).unwrap().0).collect();
        prop_assume!(!real.contains(&forged));
        prop_assert_eq!(t.complete(Ticket(forged)), None);
    }
}
