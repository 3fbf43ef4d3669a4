//! What is elsewhere, against a naive model: one cell a page.

use super::{Elsewhere, Run};
use alloc::vec::Vec;
use proptest::prelude::*;

const SPACE: u64 = 400;

/// Runs with gaps between them, some of no length, at places of their own.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    proptest::collection::vec((0u64..40, 1u64..150, 0u64..1000), 0..6).prop_map(|parts| {
        let mut page = 0;
        let mut runs = Vec::new();
        for (gap, pages, place) in parts {
            page += gap;
            runs.push(Run { page, pages, place });
            page += pages;
        }
        runs
    })
}

fn model(runs: &[Run]) -> Vec<Option<u64>> {
    let mut cells = alloc::vec![None; 1200];
    for r in runs {
        for i in 0..r.pages {
            cells[(r.page + i) as usize] = Some(r.place + i);
        }
    }
    cells
}

fn check(e: &Elsewhere, model: &[Option<u64>]) {
    assert_eq!(e.left(), model.iter().flatten().count() as u64);
    let mut page = 0;
    let end = model.len() as u64;
    while page < end {
        let (place, n) = e.find(page, end);
        assert!(n > 0 && page + n <= end);
        for i in 0..n {
            assert_eq!(model[(page + i) as usize], place.map(|p| p + i), "page {}", page + i);
        }
        page += n;
    }
    let mut listed = alloc::vec![None; model.len()];
    for r in e.iter() {
        for i in 0..r.pages {
            listed[(r.page + i) as usize] = Some(r.place + i);
        }
    }
    assert_eq!(listed, model);
}

proptest! {
    #[test]
    fn as_the_model(runs in runs(), taken in proptest::collection::vec((0..SPACE, 1u64..200), 0..20)) {
        let e = Elsewhere::new(runs.iter().copied()).expect("in order");
        let mut model = model(&runs);
        check(&e, &model);
        for (page, n) in taken {
            let gone: u64 = model[page as usize..(page + n) as usize].iter_mut()
                .map(|c| u64::from(c.take().is_some())).sum();
            prop_assert_eq!(e.take(page, page + n), gone);
            check(&e, &model);
        }
    }

    #[test]
    fn runs_end_where_asked(runs in runs(), page in 0..SPACE, n in 1u64..100) {
        let e = Elsewhere::new(runs).expect("in order");
        prop_assert!((1..=n).contains(&e.find(page, page + n).1));
    }
}

#[test]
fn disorder_is_refused() {
    let run = |page, pages| Run { page, pages, place: 0 };
    assert!(Elsewhere::new([run(0, 4), run(3, 1)]).is_none());
    assert!(Elsewhere::new([run(4, 4), run(0, 1)]).is_none());
    assert!(Elsewhere::new([run(4, 0)]).is_none());
    assert!(Elsewhere::new([run(4, u64::MAX)]).is_none());
    assert!(Elsewhere::new([run(4, 1), run(5, 1)]).is_some());
    assert_eq!(Elsewhere::new([]).expect("nothing").find(3, 9), (None, 6));
}
