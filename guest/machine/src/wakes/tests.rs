use alloc::vec::Vec;
use core::cell::RefCell;

use crate::cpu::kept::{Kept, MOST};

/// What the end of a guard makes.
fn released(kept: &Kept) -> Vec<u64> {
    let made = RefCell::new(Vec::new());
    kept.release(|w| made.borrow_mut().push(w));
    made.into_inner()
}

#[test]
fn nothing_is_kept_unless_held() {
    let kept = Kept::default();
    assert!(!kept.keep(1));
    kept.hold();
    assert!(kept.keep(2));
    assert_eq!(released(&kept), [2]);
    assert!(!kept.keep(3));
}

#[test]
fn the_last_guard_makes_all_in_order() {
    let kept = Kept::default();
    kept.hold();
    assert!(kept.keep(1));
    kept.hold();
    assert!(kept.keep(2));
    assert_eq!(released(&kept), []);
    assert!(kept.keep(3));
    assert_eq!(released(&kept), [1, 2, 3]);
    kept.hold();
    assert_eq!(released(&kept), []);
}

#[test]
fn more_than_fit_are_for_now() {
    let kept = Kept::default();
    kept.hold();
    let fit: Vec<u64> = (0..MOST as u64).collect();
    assert!(fit.iter().all(|w| kept.keep(*w)));
    assert!(!kept.keep(99));
    assert_eq!(released(&kept), fit);
}
