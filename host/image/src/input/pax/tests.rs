//! Records, times and damage.
use super::*;

/// One record with its right length.
pub(crate) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut len = body.len() + 1;
    while len.to_string().len() + body.len() != len {
        len += 1;
    }
    [len.to_string().as_bytes(), &body].concat()
}

#[test]
fn records() {
    let mut pax = Pax::default();
    for (key, value) in [("path", &b"a/b"[..]), ("mtime", b"12.0000005"), ("SCHILY.xattr.user.x", b"\n")] {
        pax.add(&record(key, value)).unwrap();
    }
    assert_eq!(pax.path.as_deref(), Some(&b"a/b"[..]));
    assert_eq!(pax.mtime, Some((12, 500)));
    assert_eq!(pax.xattrs[&b"user.x"[..]], b"\n");
}

#[test]
fn times() {
    assert_eq!(time(b"5"), Some((5, 0)));
    assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
    assert_eq!(time(b"1.1234567899"), Some((1, 123_456_789)));
    for bad in [&b""[..], b"x", b"1.x", b"--1", b"99999999999999999999"] {
        assert_eq!(time(bad), None);
    }
}

#[test]
fn damage_is_an_error() {
    for bad in
        [&b"12 path=a/b"[..], b"x path=a\n", b"0 \n", b"99 path=a\n", b"5 abc\n", b"3 \n", b"12 size=1x0\n"]
    {
        assert!(Pax::default().add(bad).is_err(), "{}", bad.escape_ascii());
    }
}
