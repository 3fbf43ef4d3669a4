use super::*;
use alloc::vec;

fn add(s: &mut Stream<u8>, mark: u8, bytes: &[u8]) -> usize {
    let fill = |v: &mut Vec<u8>, room: usize| {
        let n = room.min(bytes.len());
        v.extend_from_slice(&bytes[..n]);
        Ok::<usize, ()>(n)
    };
    s.append(|m| *m == mark, || mark, fill).unwrap()
}

#[test]
fn short_writes_share_a_chunk_and_marks_keep_apart() {
    let mut s = Stream::default();
    add(&mut s, 1, b"ab");
    add(&mut s, 1, b"cd");
    add(&mut s, 2, b"ef");
    assert_eq!(s.iter().count(), 2);
    assert_eq!(s.len(), 6);
    let mut buf = [0; 8];
    assert_eq!(s.peek(0, &mut buf), 6);
    assert_eq!(&buf[..6], b"abcdef");
    assert_eq!(s.peek(3, &mut buf[..2]), 2);
    assert_eq!(&buf[..2], b"de");
    assert!(!s.consume(3));
    assert!(s.consume(1));
    assert_eq!(s.front().unwrap().mark, 2);
}

#[test]
fn taken_ranges_stay_valid_and_block_appending() {
    let mut s = Stream::default();
    add(&mut s, 0, b"hello");
    let t = s.take(2, |m| *m).unwrap();
    assert_eq!(t.bytes(), b"he");
    add(&mut s, 0, b"!");
    assert_eq!(t.bytes(), b"he");
    let mut buf = [0; 4];
    assert_eq!(s.peek(0, &mut buf), 4);
    assert_eq!(&buf, b"llo!");
    let mut back = t;
    back.skip(1);
    s.unread(Chunk::new(back.bytes().to_vec(), 0));
    assert_eq!(s.len(), 5);
    assert_eq!(s.front().unwrap().bytes(), b"e");
}

#[test]
fn the_emptied_chunk_is_used_again_and_fills_up() {
    let mut s = Stream::default();
    let mut written = 0;
    while written < SMALL {
        written += add(&mut s, 0, &vec![7; 100][..100.min(SMALL - written)]);
    }
    assert_eq!(s.iter().count(), 1);
    assert_eq!(add(&mut s, 0, b"x"), 1);
    assert_eq!(s.iter().count(), 2);
    s.consume(SMALL + 1);
    assert!(s.is_empty() && s.spare.is_some());
    add(&mut s, 0, b"y");
    assert!(s.spare.is_none());
    assert_eq!(s.clear(), 1);
    assert_eq!(s.len(), 0);
}

#[test]
fn large_chunks_are_split_on_demand() {
    let mut s = Stream::default();
    s.push(Chunk::new(vec![1; 10000], 0));
    let mut got = 0;
    while let Some(c) = s.take(4096, |m| *m) {
        got += c.len();
    }
    assert_eq!(got, 10000);
    assert!(s.is_empty());
}
