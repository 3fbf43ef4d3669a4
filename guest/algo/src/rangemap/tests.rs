//! The range map against a naive model: one cell per address.

use super::{Piece, RangeMap};
use alloc::vec::Vec;
use proptest::prelude::*;

const SPACE: u64 = 64;

/// A kind, and the offset that its first address maps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Val(u8, u64);

impl Piece for Val {
    fn tail(&self, delta: u64) -> Self {
        Self(self.0, self.1 + delta)
    }

    fn continues(&self, len: u64, next: &Self) -> bool {
        self.0 == next.0 && self.1 + len == next.1
    }
}

type Model = Vec<Option<(u8, u64)>>;

fn check(m: &RangeMap<Val>, model: &Model) {
    let mut seen: Model = alloc::vec![None; SPACE as usize];
    let mut last: Option<(u64, Val)> = None;
    for (s, e, v) in m.iter() {
        assert!(s < e);
        if let Some((le, lv)) = &last {
            assert!(*le <= s);
            // Whatever may be joined is joined: the previous value's tail would be this one.
            assert!(*le < s || *lv != *v, "unjoined neighbours at {s}");
        }
        for a in s..e {
            seen[a as usize] = Some((v.0, v.1 + (a - s)));
        }
        last = Some((e, v.tail(e - s)));
    }
    assert_eq!(&seen, model);
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64, u8, u64),
    Remove(u64, u64),
    Recolour(u64, u64, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let range = (0..SPACE - 1).prop_flat_map(|s| (Just(s), s + 1..SPACE));
    prop_oneof![
        (range.clone(), 0u8..3, 0u64..3).prop_map(|((s, e), k, o)| Op::Insert(s, e, k, s + o)),
        range.clone().prop_map(|(s, e)| Op::Remove(s, e)),
        (range, 0u8..3).prop_map(|((s, e), k)| Op::Recolour(s, e, k)),
    ]
}

proptest! {
    #[test]
    fn agrees_with_model(ops in proptest::collection::vec(op(), 1..60), len in 1u64..20, low in 0u64..SPACE, at in 0u64..SPACE) {
        let mut m = RangeMap::new();
        let mut model: Model = alloc::vec![None; SPACE as usize];
        for op in ops {
            match op {
                Op::Insert(s, e, k, o) => {
                    m.insert(s, e, Val(k, o));
                    for a in s..e {
                        model[a as usize] = Some((k, o + (a - s)));
                    }
                }
                Op::Remove(s, e) => {
                    let want: usize = (s..e).filter(|a| model[*a as usize].is_some()).count();
                    let got: u64 = m.remove(s, e).iter().map(|(s, e, _)| e - s).sum();
                    prop_assert_eq!(want as u64, got);
                    (s..e).for_each(|a| model[a as usize] = None);
                }
                Op::Recolour(s, e, k) => {
                    m.update(s, e, |ps, pe, v| {
                        assert!(ps >= s && pe <= e);
                        v.0 = k;
                    });
                    for a in s..e {
                        if let Some(c) = &mut model[a as usize] {
                            c.0 = k;
                        }
                    }
                }
            }
            check(&m, &model);
        }
        prop_assert_eq!(m.get(at).map(|(s, _, v)| (v.0, v.1 + at - s)), model[at as usize]);
        let free = |s: u64| s + len <= SPACE && (s..s + len).all(|a| model[a as usize].is_none());
        let down = (low..SPACE).rev().find(|&s| free(s));
        prop_assert_eq!(m.gap_below(low, SPACE, len), down);
        let up = (low..SPACE).find(|&s| free(s));
        prop_assert_eq!(m.gap_above(low, SPACE, len), up);
        let end = (low + len).min(SPACE);
        if low < end {
            prop_assert_eq!(m.is_free(low, end), (low..end).all(|a| model[a as usize].is_none()));
            prop_assert_eq!(m.is_covered(low, end), (low..end).all(|a| model[a as usize].is_some()));
        }
    }
}

#[test]
fn cuts_and_joins() {
    let mut m = RangeMap::new();
    m.insert(0, 30, Val(1, 0));
    m.update(10, 20, |_, _, v| v.0 = 2);
    assert_eq!(m.len(), 3);
    m.update(10, 20, |_, _, v| v.0 = 1);
    assert_eq!(m.len(), 1);
    assert_eq!(m.gap_below(0, 64, 34), Some(30));
    assert_eq!(m.gap_below(0, 64, 35), None);
}
