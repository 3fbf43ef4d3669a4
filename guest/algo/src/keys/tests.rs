use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::errno::Errno;

use super::*;

/// Numbers of new keys: those that are taken are passed over.
fn random() -> u32 {
    1000
}

fn who(uid: u32) -> Who {
    Who {
        uid,
        gid: uid,
        fsuid: uid,
        fsgid: uid,
        groups: Vec::new(),
        admin: uid == 0,
        rings: Rings::default(),
        destination: Destination::First,
        now: 1000,
        random,
    }
}

fn caller(store: &mut Store, uid: u32) -> Caller<'_> {
    Caller::new(store, who(uid))
}

fn data(len: usize) -> Arc<[u8]> {
    vec![1; len].into()
}

fn user(c: &mut Caller<'_>, name: &str, ring: i32) -> Serial {
    c.add(Some(Kind::User), Some(name.as_bytes()), &data(4), ring).unwrap()
}

fn ring(c: &mut Caller<'_>, name: &str, ring: i32) -> Serial {
    c.add(Some(Kind::Keyring), Some(name.as_bytes()), &data(0), ring).unwrap()
}

/// Joins another session, as a thread does.
fn join(c: &mut Caller<'_>) -> Result<Serial, Errno> {
    let old = c.who.rings.session;
    let mut next = Caller::new(c.store, Who { rings: c.who.rings, now: c.who.now, ..who(c.who.uid) });
    let joined = next.join(None);
    c.who.rings = next.who.rings;
    if let (Ok(_), Some(old)) = (joined, old) {
        c.store.release(old);
    }
    joined
}

/// Lets go of what a caller holds, and sees that all that counts is what there is.
fn leave(c: Caller<'_>) {
    for held in [c.who.rings.thread, c.who.rings.process, c.who.rings.session].into_iter().flatten() {
        c.store.release(held);
    }
    check(c.store);
}

fn check(store: &Store) {
    for (uid, used) in &store.users {
        let of = || store.keys.values().filter(|k| k.payer == *uid);
        assert_eq!(used.keys, of().count());
        assert_eq!(used.charged, of().filter(|k| k.charged).count());
        assert_eq!(used.bytes, of().filter(|k| k.charged).map(|k| k.bytes).sum());
    }
    for (serial, key) in &store.keys {
        assert!(key.refs >= key.linked.len());
        for link in key.links().into_iter().flat_map(|l| l.values()) {
            assert!(store.keys[link].linked.contains(serial));
        }
        let links = key.links().map_or(0, |l| l.len());
        let content = if key.kind == Kind::Keyring { links * 4 } else { key.kind.charge(key.len) };
        assert!(!key.charged || key.bytes == key.description.len() + 1 + content);
    }
}

#[test]
fn what_nobody_holds_is_gone_with_all_it_counted_for() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    let session = c.join(None).unwrap();
    let r = ring(&mut c, "r", session);
    user(&mut c, "a", r);
    user(&mut c, "b", r);
    assert_eq!(c.store.keys.len(), 4);
    check(c.store);
    leave(c);
    assert!(store.keys.is_empty() && store.users.is_empty() && store.names.is_empty());
}

#[test]
fn a_keyring_that_holds_itself_by_others_is_refused() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    let session = c.join(None).unwrap();
    let mut chain = vec![ring(&mut c, "0", session)];
    for i in 1..8 {
        let name = alloc::format!("{i}");
        let next = ring(&mut c, &name, chain[i - 1]);
        chain.push(next);
    }
    let into = ring(&mut c, "into", session);
    assert_eq!(c.link(chain[1], chain[3]), Err(Errno::EDEADLK));
    assert_eq!(c.link(chain[0], into), Err(Errno::ELOOP));
    assert_eq!(c.link(chain[1], into), Ok(()));
    leave(c);
    assert!(store.keys.is_empty());
}

#[test]
fn a_search_of_nested_keyrings_that_share_keyrings_ends() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 0);
    let session = c.join(None).unwrap();
    // 20 keyrings a level, each linked into all of the level above: 64 million ways down.
    let mut above = vec![session];
    for level in 0..6 {
        let rings: Vec<_> = (0..20).map(|i| ring(&mut c, &alloc::format!("{level}.{i}"), above[0])).collect();
        for up in &above[1..] {
            for r in &rings {
                c.link(*r, *up).unwrap();
            }
        }
        above = rings;
    }
    assert_eq!(c.request(Some(Kind::User), b"none", false, 0), Err(Errno::ENOKEY));
    let key = user(&mut c, "some", above[19]);
    assert_eq!(c.request(Some(Kind::User), b"some", false, 0), Ok(key));
    leave(c);
}

#[test]
fn quotas_hold_and_are_given_back() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    let session = c.join(None).unwrap();
    let big = c.add(Some(Kind::User), Some(b"big"), &data(19_000), session).unwrap();
    assert_eq!(c.add(Some(Kind::User), Some(b"more"), &data(1000), session), Err(Errno::EDQUOT));
    check(c.store);
    assert_eq!(c.update(big, &data(1)), Ok(()));
    assert!(c.add(Some(Kind::User), Some(b"more"), &data(1000), session).is_ok());
    c.clear(session).unwrap();
    let made = (0..300).take_while(|i| {
        c.add(Some(Kind::User), Some(alloc::format!("{i}").as_bytes()), &data(1), session).is_ok()
    });
    assert_eq!(made.count(), 199);
    check(c.store);
    leave(c);
    assert!(store.users.is_empty());
}

#[test]
fn what_has_ended_is_collected_after_a_while_and_once() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    let session = c.join(None).unwrap();
    let (a, b) = (user(&mut c, "a", session), user(&mut c, "b", session));
    c.revoke(a).unwrap();
    c.set_timeout(b, 10).unwrap();
    c.set_timeout(b, 20).unwrap();
    assert_eq!(c.store.due.len(), 2);
    c.store.collect(1299);
    assert!(c.store.key(a).is_ok());
    c.store.collect(1300);
    assert!(c.store.key(a).is_err() && c.store.key(b).is_ok());
    c.store.collect(1320);
    assert!(c.store.key(b).is_err() && c.store.due.is_empty());
    leave(c);
}

#[test]
fn what_is_refused_is_forgotten() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    c.join(None).unwrap();
    assert_eq!(c.request(Some(Kind::User), b"a", true, 0), Err(Errno::ENOENT));
    assert_eq!(c.request(Some(Kind::User), b"a", true, 0), Err(Errno::ENOKEY));
    c.who.now += 60;
    assert_eq!(c.request(Some(Kind::User), b"a", true, 0), Err(Errno::ENOENT));
    leave(c);
    assert!(store.keys.is_empty());
}

#[test]
fn a_persistent_keyring_outlives_its_user_for_a_while() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    c.join(None).unwrap();
    let ring = c.persistent(7, -3).unwrap();
    user(&mut c, "a", ring);
    leave(c);
    store.collect(1000 + 3 * 24 * 3600 + 299);
    assert!(store.key(ring).is_ok());
    store.collect(1000 + 3 * 24 * 3600 + 300);
    assert!(store.key(ring).is_err());
    check(&store);
}

#[test]
fn many_calls_at_random_leave_nothing_uncounted() {
    let mut store = Store::default();
    let mut c = caller(&mut store, 7);
    c.join(None).unwrap();
    let mut seed = 12345_u32;
    let mut next = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    let mut keys = vec![-1, -2, -3, -4, -5];
    for _ in 0..20_000 {
        let mut any = |keys: &[i32]| keys[next(keys.len() as u32) as usize];
        let (a, b, d) = (any(&keys), any(&keys), any(&keys));
        let name = alloc::format!("{}", next(6));
        // Most are refused; what is done must be right.
        let made = match next(13) {
            0 | 1 => c.add(Some(Kind::Keyring), Some(name.as_bytes()), &data(0), a).ok(),
            2 => c.add(Some(Kind::User), Some(name.as_bytes()), &data(next(300) as usize), a).ok(),
            3 => c.link(a, b).ok().map(|()| a),
            4 => c.unlink(a, b).ok().map(|()| a),
            5 => c.shift(a, b, d, next(2) == 0).ok().map(|()| a),
            6 => c.update(a, &data(next(300) as usize)).ok().map(|()| a),
            7 => c.set_timeout(a, next(5)).ok().map(|()| a),
            8 => c.request(Some(Kind::User), name.as_bytes(), true, b).ok(),
            9 if next(10) == 0 => c.revoke(a).ok().map(|()| a),
            10 if next(10) == 0 => c.invalidate(a).ok().map(|()| a),
            11 if next(10) == 0 => c.clear(a).ok().map(|()| a),
            12 if next(10) == 0 => join(&mut c).ok(),
            _ => c.persistent(7, a).ok(),
        };
        keys.extend(made);
        if keys.len() > 60 {
            keys.remove(5);
        }
        c.who.now += u64::from(next(20));
        c.store.collect(c.who.now);
        check(c.store);
    }
    leave(c);
}
