use super::*;

const NOW: u64 = 1000;
const ALL: (u16, u16) = (EPHEMERAL_FIRST, EPHEMERAL_LAST);

fn b(id: u64, scope: Scope) -> Binding<u64> {
    Binding { id, scope, reuse_addr: false, reuse_port: None, listening: false, what: id }
}

#[test]
fn wildcards_overlap_what_they_cover() {
    let lo = Scope::One(LOOPBACK4);
    assert!(Scope::V4.overlaps(&lo) && lo.overlaps(&Scope::V4));
    assert!(!Scope::V6.overlaps(&lo));
    assert!(Scope::All.overlaps(&lo));
    assert!(!Scope::V4.overlaps(&Scope::V6));
    assert!(!lo.overlaps(&Scope::One(mapped([127, 0, 0, 2]))));
    assert_eq!(Scope::new(ANY6, false), Scope::All);
    assert_eq!(unmapped(&LOOPBACK6), None);
}

#[test]
fn conflicts_and_reuse() {
    let mut t = PortTable::default();
    t.bind(80, NOW, b(1, Scope::V4)).unwrap();
    assert_eq!(t.bind(80, NOW, b(2, Scope::One(LOOPBACK4))), Err(InUse));
    t.bind(80, NOW, b(3, Scope::V6)).unwrap();
    t.update(80, 1, |b| b.reuse_addr = true);
    let again = Binding { reuse_addr: true, ..b(4, Scope::One(LOOPBACK4)) };
    t.bind(80, NOW, again.clone()).unwrap();
    t.listen(80, 1).unwrap();
    assert_eq!(t.listen(80, 4), Err(InUse));
    t.unbind(80, 4);
    assert_eq!(t.bind(80, NOW, again), Err(InUse));
}

#[test]
fn best_match_wins_and_reuseport_spreads() {
    let mut t = PortTable::default();
    t.bind(9, NOW, b(1, Scope::One(LOOPBACK4))).unwrap();
    t.bind(9, NOW, Binding { reuse_addr: false, ..b(2, Scope::V6) }).unwrap();
    assert_eq!(t.find(9, &LOOPBACK4, 0, |_| Some(0)).unwrap().id, 1);
    assert_eq!(t.find(9, &LOOPBACK6, 0, |_| Some(0)).unwrap().id, 2);
    assert!(t.find(9, &LOOPBACK4, 0, |b| (b.id != 1).then_some(0)).is_none());
    for id in 5..8 {
        t.bind(10, NOW, Binding { reuse_port: Some(0), ..b(id, Scope::All) }).unwrap();
    }
    let got: Vec<_> = (0..3).map(|i| t.find(10, &LOOPBACK4, i, |_| Some(0)).unwrap().id).collect();
    assert_eq!(got, [5, 6, 7]);
}

#[test]
fn ephemeral_ports_run_out() {
    let mut t = PortTable::default();
    let n = EPHEMERAL_LAST - EPHEMERAL_FIRST;
    for i in 0..=n {
        assert!(
            t.bind_any(u32::from(i) * 7919, ALL, NOW, true, b(u64::from(i), Scope::V4)).unwrap()
                >= EPHEMERAL_FIRST
        );
    }
    assert_eq!(t.bind_any(1, ALL, NOW, true, b(99999, Scope::V4)), Err(InUse));
    let (port, id) = t.iter().next().map(|(p, b)| (p, b.id)).unwrap();
    t.unbind(port, id);
    assert_eq!(t.bind_any(1, ALL, NOW, true, b(99999, Scope::V4)), Ok(port));
}

#[test]
fn connections_hold_the_port_and_take_nothing() {
    let mut t = PortTable::default();
    t.bind(80, NOW, b(1, Scope::V4)).unwrap();
    t.listen(80, 1).unwrap();
    t.share(80, Binding { reuse_addr: true, ..b(2, Scope::One(LOOPBACK4)) });
    assert_eq!(t.find(80, &LOOPBACK4, 0, |_| Some(0)).unwrap().id, 1);
    t.unbind(80, 1);
    assert!(t.find(80, &LOOPBACK4, 0, |_| Some(0)).is_none());
    assert_eq!(t.bind(80, NOW, b(3, Scope::V4)), Err(InUse));
    t.bind(80, NOW, Binding { reuse_addr: true, ..b(4, Scope::V4) }).unwrap();
    assert_eq!(t.iter().count(), 2);
    t.unbind(80, 2);
    t.unbind(80, 4);
    assert_eq!(t.iter().count(), 0);
}

fn waiting(id: u64, local: Ip, until: u64) -> Waiting {
    let remote = (LOOPBACK4, 9);
    Waiting { id, local, remote, reuse_addr: false, reuse_port: false, half: false, until, count: 1 }
}

#[test]
fn ends_of_connections_keep_their_address_for_a_time() {
    let mut t = PortTable::default();
    t.wait(80, waiting(1, LOOPBACK4, NOW + 5));
    assert_eq!(t.bind(80, NOW, b(2, Scope::V4)), Err(InUse));
    assert_eq!(t.bind(80, NOW, Binding { reuse_addr: true, ..b(2, Scope::V4) }), Err(InUse));
    t.bind(80, NOW, b(3, Scope::One(mapped([127, 0, 0, 2])))).unwrap();
    t.bind(80, NOW, b(4, Scope::V6)).unwrap();
    assert_eq!(t.waiting(NOW).count(), 1);
    t.unbind(80, 3);
    t.bind(80, NOW + 5, b(2, Scope::V4)).unwrap();
    assert_eq!(t.waiting(NOW + 5).count(), 0);
    t.wait(81, Waiting { reuse_addr: true, ..waiting(5, LOOPBACK4, NOW + 5) });
    assert_eq!(t.bind(81, NOW, b(6, Scope::V4)), Err(InUse));
    t.bind(81, NOW, Binding { reuse_addr: true, ..b(6, Scope::V4) }).unwrap();
    t.wait(82, waiting(7, LOOPBACK4, NOW + 5));
    t.wait_no_more(82, 7);
    t.bind(82, NOW, b(8, Scope::V4)).unwrap();
}

#[test]
fn many_that_wait_are_one_and_yield_to_who_connects() {
    let mut t = PortTable::default();
    for id in 0..50 {
        t.wait(40_000, waiting(id, LOOPBACK4, NOW + id));
    }
    let all: Vec<_> = t.waiting(NOW).map(|(port, w)| (port, w.until, w.count)).collect();
    assert_eq!(all, [(40_000, NOW + 49, 50)]);
    let one = (40_000, 40_000);
    assert_eq!(t.bind_any(1, one, NOW, false, b(99, Scope::V4)), Err(InUse));
    assert_eq!(t.bind_any(1, one, NOW, true, b(99, Scope::V4)), Ok(40_000));
    assert_eq!(t.bind_any(1, one, NOW, true, b(98, Scope::V4)), Err(InUse));
}
