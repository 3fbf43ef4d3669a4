use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::{NameTable, name_hash};

fn has(t: &NameTable<String>, hash: u32, name: &str) -> bool {
    t.find(hash, |s| s == name).is_some()
}

#[test]
fn hashes_differ_in_every_byte() {
    let mut seen = BTreeSet::new();
    for n in 0..20 {
        let name = alloc::vec![b'a'; n];
        assert!(seen.insert(name_hash(&name)));
        for i in 0..n {
            let mut other = name.clone();
            other[i] = b'b';
            assert!(seen.insert(name_hash(&other)), "length {n}, byte {i}");
        }
    }
    assert_ne!(name_hash(b"a"), name_hash(b"a\0"));
}

#[test]
fn follows_a_set_through_random_changes() {
    // Few hashes, so that long runs of probes form, wrap around, and lose entries in their middle.
    for spread in [1, 3, 16, u32::MAX] {
        let mut t = NameTable::default();
        let mut set = BTreeSet::new();
        let mut x = 12345u32;
        for step in 0..4000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let name = format!("n{}", (x >> 8) % 60);
            let hash = name_hash(name.as_bytes()) % spread;
            assert_eq!(has(&t, hash, &name), set.contains(&name), "step {step}");
            if x >> 31 == 0 {
                if set.insert(name.clone()) {
                    t.insert(hash, name);
                }
            } else {
                assert_eq!(t.remove(hash, |s| *s == name).is_some(), set.remove(&name), "step {step}");
            }
            assert_eq!(t.len(), set.len());
        }
        assert!(t.iter().all(|s| set.contains(s)) && t.iter().count() == set.len());
        let gone = t.extract(|s| s.ends_with('1'));
        assert!(gone.iter().all(|s| !s.ends_with('1')) && gone.len() + t.len() == set.len());
        for s in &set {
            assert_eq!(has(&t, name_hash(s.as_bytes()) % spread, s), s.ends_with('1'));
        }
    }
}

#[test]
fn changes_in_place() {
    let mut t = NameTable::default();
    assert!(t.is_empty() && t.find(1, |_: &(u8, u8)| true).is_none() && t.remove(1, |_| true).is_none());
    t.insert(7, (1, 10));
    t.insert(7, (2, 20));
    if let Some(v) = t.find_mut(7, |v| v.0 == 2) {
        v.1 = 30;
    }
    assert_eq!(t.find(7, |v| v.0 == 2), Some(&(2, 30)));
    assert_eq!(t.find(7, |v| v.0 == 1), Some(&(1, 10)));
}
