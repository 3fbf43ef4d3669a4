use super::*;

#[test]
fn notification_before_the_wait_ends_it() {
    let w = ParkWord::default();
    assert_eq!(w.notify(), Duty::Nothing);
    assert!(!w.leave());
    assert!(w.leave());
    assert!(w.waits());
}

#[test]
fn only_the_first_notifier_queues() {
    let w = ParkWord::default();
    assert!(w.leave());
    assert_eq!(w.notify(), Duty::Queue);
    assert_eq!(w.notify(), Duty::Nothing);
    assert!(w.resume());
    assert!(!w.resume());
    assert!(w.leave());
}

#[test]
fn a_spinner_is_not_queued() {
    let w = ParkWord::default();
    assert!(w.spin());
    assert!(!w.notified());
    assert_eq!(w.notify(), Duty::Nothing);
    assert!(w.notified());
    assert!(!w.give_up());
    assert!(w.spin());
    assert!(w.give_up());
    assert_eq!(w.notify(), Duty::Queue);
}

#[test]
fn a_sleeper_on_its_vcpu_is_woken_there() {
    let w = ParkWord::default();
    assert!(w.spin() && w.sleep());
    assert_eq!(w.notify(), Duty::WakeVcpu);
    assert!(!w.give_up());
    assert!(w.spin() && w.sleep() && w.give_up());
    assert_eq!(w.notify(), Duty::Queue);
    w.resume();
    assert!(w.spin());
    assert_eq!(w.notify(), Duty::Nothing);
    assert!(!w.sleep());
}

#[test]
fn slots_are_unique_and_bounded() {
    let s = VcpuSet::default();
    assert_eq!((s.add(2), s.add(2), s.add(2)), (Some(0), Some(1), None));
    s.remove(0);
    assert_eq!(s.add(2), Some(0));
    assert_eq!(s.count(), 2);
    let all = VcpuSet::default();
    assert_eq!((0..70).filter_map(|_| all.add(1000)).count(), 64);
}

#[test]
fn spinners_are_claimed_before_sleepers_and_each_once() {
    let s = VcpuSet::default();
    for _ in 0..3 {
        s.add(3);
    }
    assert_eq!(s.claim(), None);
    assert!(!s.sleep_begin(0));
    s.spin_begin(2);
    assert_eq!(s.claim(), Some(Looker::Spinner));
    assert!(s.coming());
    assert!(!s.spin_goes_on(2));
    assert_eq!(s.claim(), Some(Looker::Sleeper(0)));
    assert_eq!(s.claim(), None);
    assert!(s.spin_end(2));
    assert!(s.sleep_end(0));
    assert!(!s.coming());
    s.spin_begin(1);
    assert!(!s.spin_end(1));
}

#[test]
fn all_asleep_is_noticed_by_the_last() {
    let s = VcpuSet::default();
    s.add(2);
    s.add(2);
    assert!(!s.sleep_begin(1));
    assert!(s.sleep_begin(0));
    assert_eq!(s.claim(), Some(Looker::Sleeper(0)));
    assert!(s.sleep_end(0));
    assert!(s.sleep_begin(0));
}

#[test]
fn nobody_spins_where_no_cpu_is_allowed() {
    let c = Cpus::new(0);
    c.wake();
    assert!(!c.may_spin());
}

#[test]
fn nobody_spins_when_cpus_are_short() {
    let c = Cpus::new(2);
    c.wake();
    c.wake();
    assert!(c.may_spin());
    c.wake();
    assert!(!c.may_spin());
    c.sleep();
    assert!(c.may_spin());
    assert_eq!(c.awake(), 2);
}

/// Spins in vain of a thread that waits `waited` ns `n` times and whose spins never succeed.
fn vain_spins(n: u32, waited: u64) -> u32 {
    let mut w = Window::default();
    (0..n)
        .filter(|_| {
            let spun = w.is_open();
            w = if spun { w.after_vain_spin() } else { w.after_wait(waited) };
            w = Window::from_raw(w.to_raw());
            spun
        })
        .count() as u32
}

#[test]
fn short_waits_open_the_window_and_long_ones_never() {
    assert!(Window::default().after_wait(1000).is_open());
    assert_eq!(vain_spins(1000, 1_000_000), 0);
}

#[test]
fn spins_in_vain_become_rare() {
    let first = vain_spins(1000, 50_000);
    assert!((5..12).contains(&first), "{first}");
    let later = vain_spins(101_000, 50_000) - first;
    assert!(later <= 200, "{later}");
}

#[test]
fn good_spins_restore_trust() {
    let mut w = Window::default().after_wait(1000);
    for _ in 0..3 {
        w = w.after_vain_spin();
    }
    for k in 0.. {
        assert!(k < 8);
        w = w.after_wait(1000);
        if w.is_open() {
            break;
        }
    }
    for _ in 0..64 {
        w = w.after_good_spin();
    }
    assert!(w.after_vain_spin().after_wait(1000).after_wait(1000).is_open());
}

/// A record of `n` threads handed over.
fn kept(mut h: Handover, n: u32) -> Handover {
    for _ in 0..n {
        h = Handover::from_raw(h.after(500).to_raw());
    }
    h
}

#[test]
fn only_a_record_makes_a_handover_expected() {
    assert!(!kept(Handover::default(), 15).is_expected());
    assert!(kept(Handover::default(), 16).is_expected());
    assert!(!kept(Handover::default(), 15).after(Handover::SOON_NS + 1).is_expected());
    // However long the record.
    assert!(kept(Handover::default(), 100_000).is_expected());
}

#[test]
fn a_broken_promise_doubles_the_record_asked_for() {
    let once = kept(Handover::default(), 16).after(1_000_000);
    assert!(!kept(once, 31).is_expected());
    let twice = kept(once, 32).after(1_000_000);
    assert!(!kept(twice, 63).is_expected());
    assert!(kept(twice, 64).is_expected());
    // What was not promised is not broken.
    let shy = (0..100).fold(Handover::default(), |h, _| h.after(1_000_000));
    assert!(kept(shy, 16).is_expected());
}

#[test]
fn long_records_restore_trust_and_distrust_has_an_end() {
    let mut h = Handover::default();
    for _ in 0..100 {
        h = kept(h, 1 << 12).after(1_000_000);
    }
    assert!(kept(h, 1 << 12).is_expected());
    h = kept(h, 20 << 15).after(1_000_000);
    assert!(kept(h, 32).is_expected());
}
