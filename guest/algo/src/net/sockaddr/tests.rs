use super::*;
use alloc::vec;

fn round(a: &Addr) -> usize {
    let mut b = [0; MAX];
    let n = a.encode(&mut b);
    assert_eq!(parse(&b[..n]).as_ref(), Ok(a));
    n
}

#[test]
fn addresses_survive_encoding() {
    assert_eq!(round(&Addr::Unix(UnixName::Unnamed)), 2);
    assert_eq!(round(&Addr::Unix(UnixName::Path(b"/run/x".to_vec()))), 9);
    assert_eq!(round(&Addr::Unix(UnixName::Abstract(b"a\0b".to_vec()))), 6);
    assert_eq!(round(&Addr::Unix(UnixName::Abstract(vec![]))), 3);
    assert_eq!(round(&Addr::V4 { ip: [127, 0, 0, 1], port: 8080 }), 16);
    assert_eq!(round(&Addr::V6 { ip: [1; 16], port: 53, flow: 7, scope: 2 }), 28);
    assert_eq!(round(&Addr::Netlink { pid: 5, groups: 1 }), 12);
}

#[test]
fn a_full_path_needs_no_nul() {
    let mut b = vec![1, 0];
    b.extend([b'p'; UNIX_PATH_MAX]);
    assert_eq!(parse(&b), Ok(Addr::Unix(UnixName::Path(vec![b'p'; UNIX_PATH_MAX]))));
    b.push(b'p');
    assert_eq!(parse(&b), Err(Malformed));
}

#[test]
fn short_addresses_are_refused() {
    for family in [AF_INET, AF_INET6, AF_NETLINK] {
        let mut b = [0; 11];
        b[..2].copy_from_slice(&family.to_ne_bytes());
        assert_eq!(parse(&b), Err(Malformed));
    }
    assert_eq!(parse(&[1]), Err(Malformed));
    assert_eq!(parse(&[0, 0]), Ok(Addr::Unspec));
}
