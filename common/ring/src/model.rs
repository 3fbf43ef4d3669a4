//! Interleavings of producers and consumers that sleep: nothing is lost, nothing comes twice.
//!
//! A notification is a counter with a condition variable that waits for ever, so a lost wake-up is a deadlock, which
//! loom reports.

use alloc::vec::Vec;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

/// All interleavings with at most three preemptions, which keeps this within seconds.
fn explore(f: impl Fn() + Sync + Send + 'static) {
    let mut m = loom::model::Builder::new();
    m.preemption_bound = Some(3);
    m.check(f);
}

/// What an eventfd or a futex is: rung, and waited for.
#[derive(Default)]
struct Bell(Mutex<u32>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }

    fn wait(&self) {
        let mut rings = self.0.lock().unwrap();
        while *rings == 0 {
            rings = self.1.wait(rings).unwrap();
        }
        *rings = 0;
    }
}

#[derive(Default)]
struct Shared {
    header: Header,
    slots: Vec<Slot>,
    marks: Marks,
    to_consumer: Bell,
    to_producer: Bell,
}

fn shared(slots: usize) -> Arc<Shared> {
    Arc::new(Shared { slots: (0..slots).map(|_| Slot::default()).collect(), ..Shared::default() })
}

#[test]
fn entries_with_sleep_on_both_sides() {
    explore(|| {
        let s = shared(1);
        let producer = thread::spawn({
            let s = s.clone();
            move || {
                let ring = Entries::new(&s.header, &s.slots);
                let mut p = Producer::default();
                for n in 1..=2 {
                    while !p.push(&ring, &[n; ENTRY_WORDS]).unwrap() {
                        if p.sleep(&ring).unwrap() {
                            s.to_producer.wait();
                        }
                    }
                    if p.publish(&ring) {
                        s.to_consumer.ring();
                    }
                }
            }
        });
        let ring = Entries::new(&s.header, &s.slots);
        let mut c = Consumer::default();
        let mut want = 1;
        while want <= 2 {
            match c.pop(&ring).unwrap() {
                Some(e) => {
                    assert_eq!(e, [want; ENTRY_WORDS]);
                    want += 1;
                    if c.release(&ring) {
                        s.to_producer.ring();
                    }
                }
                None if c.sleep(&ring).unwrap() => s.to_consumer.wait(),
                None => {}
            }
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_stream_with_sleep_on_both_sides_and_an_end() {
    explore(|| {
        let s = shared(0);
        let writer = thread::spawn({
            let s = s.clone();
            move || {
                let stream = Stream::new(&s.header, 1);
                let mut w = Writer::default();
                for _ in 0..2 {
                    while w.span(&stream, 0).unwrap().len == 0 {
                        if w.sleep(&stream).unwrap() {
                            s.to_producer.wait();
                        }
                    }
                    if w.advance(&stream, 1) {
                        s.to_consumer.ring();
                    }
                }
                if w.close(&stream) {
                    s.to_consumer.ring();
                }
            }
        });
        let stream = Stream::new(&s.header, 1);
        let mut r = Reader::default();
        let mut got = 0;
        loop {
            let end = r.closed(&stream);
            let n = r.span(&stream, 0).unwrap().len;
            if n > 0 {
                got += n;
                if r.advance(&stream, n) {
                    s.to_producer.ring();
                }
            } else if end {
                break;
            } else if r.sleep(&stream).unwrap() {
                s.to_consumer.wait();
            }
        }
        assert_eq!(got, 2, "all bytes come before the end");
        writer.join().unwrap();
    });
}

#[test]
fn no_mark_is_lost() {
    explore(|| {
        let s = shared(0);
        let markers: Vec<_> = [1, 2]
            .map(|i| {
                let s = s.clone();
                thread::spawn(move || {
                    Dirty(&s.marks).mark(i);
                    s.to_consumer.ring();
                })
            })
            .into_iter()
            .collect();
        let mut seen = 0;
        while seen != 0b110 {
            s.to_consumer.wait();
            Dirty(&s.marks).take(|i| seen |= 1 << i);
        }
        markers.into_iter().for_each(|m| m.join().unwrap());
    });
}
