use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ByteRing;

fn push(r: &mut ByteRing, bytes: &[u8]) -> usize {
    let mut at = 0;
    r.reserve(bytes.len()).unwrap();
    r.push_with(bytes.len(), |b| {
        b.copy_from_slice(&bytes[at..at + b.len()]);
        at += b.len();
        Ok::<_, ()>(b.len())
    })
    .unwrap()
}

fn pop(r: &mut ByteRing, n: usize) -> Vec<u8> {
    let mut v = Vec::new();
    r.pop_with(n, |b| {
        v.extend_from_slice(b);
        Ok::<_, ()>(b.len())
    })
    .unwrap();
    v
}

#[test]
fn behaves_like_a_queue() {
    let mut r = ByteRing::new();
    let mut model = VecDeque::new();
    let mut x = 1u32;
    for _ in 0..20_000 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = (x >> 16) as usize % 700;
        if x & 0x100 != 0 && r.len() < 9000 {
            let bytes: Vec<u8> = (0..n).map(|i| (x as usize + i) as u8).collect();
            assert_eq!(push(&mut r, &bytes), n);
            model.extend(bytes);
        } else {
            let got = pop(&mut r, n);
            let want: Vec<u8> = model.drain(..n.min(model.len())).collect();
            assert_eq!(got, want);
        }
        assert_eq!(r.len(), model.len());
    }
}

#[test]
fn bytes_can_go_back() {
    let mut r = ByteRing::new();
    r.push_front(b"").unwrap();
    r.push_front(b"world").unwrap();
    r.push_front(b"hello ").unwrap();
    assert_eq!(pop(&mut r, 3), b"hel");
    r.push_front(b"HEL").unwrap();
    assert_eq!(pop(&mut r, 99), b"HELlo world");
    let big = alloc::vec![7u8; 600];
    push(&mut r, &big);
    r.push_front(&[1; 600]).unwrap();
    assert_eq!(pop(&mut r, 600), alloc::vec![1u8; 600]);
    assert_eq!(pop(&mut r, 600), big);
}

#[test]
fn short_copies_keep_what_was_done() {
    let mut r = ByteRing::new();
    r.reserve(100).unwrap();
    assert_eq!(r.push_with(100, |b| Ok::<_, ()>(b.len().min(7))), Ok(7));
    assert_eq!(r.push_with(10, |_| Err::<usize, _>(5)), Err(5));
    assert_eq!(r.len(), 7);
    assert_eq!(r.pop_with(7, |_| Err::<usize, _>(6)), Err(6));
    assert_eq!(r.len(), 7);
    assert_eq!(r.peek_with(7, |b| Ok::<_, ()>(b.len())), Ok(7));
    assert_eq!(r.pop_with(9, |b| Ok::<_, ()>(b.len() - 2)), Ok(5));
    assert_eq!(r.len(), 2);
    r.skip(5);
    assert!(r.is_empty());
}
