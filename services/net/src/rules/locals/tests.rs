use super::*;

fn route(kind: u16, request: u32, flags: u16, table: u8, network: &str) -> Vec<u8> {
    let (ip, bits) = network.split_once('/').unwrap();
    let (family, ip) = match ip.parse().unwrap() {
        IpAddr::V4(ip) => (2, ip.octets().to_vec()),
        IpAddr::V6(ip) => (10, ip.octets().to_vec()),
    };
    let mut body = vec![family, bits.parse().unwrap(), 0, 0, table, 2, 0, 2, 0, 0, 0, 0];
    // Another attribute before: the device.
    body.extend([8, 0, 4, 0, 1, 0, 0, 0]);
    body.extend(u16::try_from(4 + ip.len()).unwrap().to_ne_bytes());
    body.extend(DESTINATION.to_ne_bytes());
    body.extend(ip);
    message(kind, request, flags, &body)
}

fn message(kind: u16, request: u32, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut m = u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
    m.extend(kind.to_ne_bytes());
    m.extend(flags.to_ne_bytes());
    m.extend(request.to_ne_bytes());
    m.extend([0; 4]);
    m.extend(body);
    m.resize(m.len().next_multiple_of(4), 0);
    m
}

fn has(locals: &LocalAddresses, ip: &str) -> bool {
    locals.known().has(ip.parse().unwrap())
}

#[test]
fn the_hosts_own_addresses_are_known_from_the_start() {
    let locals = LocalAddresses::open().unwrap();
    assert!(has(&locals, "127.0.0.1") && has(&locals, "127.1.2.3") && !has(&locals, "192.0.2.77"));
}

#[test]
fn what_comes_is_known_at_once_and_what_goes_after_the_next_list() {
    let mut l = LocalAddresses::open().unwrap();
    l.hear(&route(NEW_ROUTE, 0, 0, LOCAL, "192.0.2.77/32")).unwrap();
    l.hear(&route(NEW_ROUTE, 0, 0, LOCAL, "2001:db8:5::/48")).unwrap();
    l.hear(&route(NEW_ROUTE, 0, 0, 254, "192.0.2.0/24")).unwrap();
    assert!(has(&l, "192.0.2.77") && has(&l, "2001:db8:5::9") && !has(&l, "192.0.2.78"));
    // One that does not end in its message, or is cut off.
    let whole = route(NEW_ROUTE, 0, 0, LOCAL, "192.0.2.79/32");
    for n in 0..whole.len() {
        l.hear(&whole[..n]).unwrap();
    }
    assert!(!has(&l, "192.0.2.79"));
    l.hear(&route(DELETE_ROUTE, 0, 0, LOCAL, "192.0.2.77/32")).unwrap();
    assert!(has(&l, "192.0.2.77") && l.stale);
    while l.follow() || l.stale || l.listing.is_some() {}
    assert!(!has(&l, "192.0.2.77") && has(&l, "127.0.0.1"), "as the host says");
}

#[test]
fn a_list_that_others_changed_meanwhile_does_not_decide() {
    let mut l = LocalAddresses::open().unwrap();
    let lists = |l: &mut LocalAddresses, flags: u16| {
        (l.listing, l.stale) = (Some(Networks::default()), false);
        let mut all = route(NEW_ROUTE, l.request, 2, LOCAL, "192.0.2.1/32");
        all.extend(message(DONE, l.request, 2 | flags, &[0; 4]));
        l.hear(&all).unwrap();
    };
    lists(&mut l, INTERRUPTED);
    assert!(l.stale && has(&l, "127.0.0.1"));
    lists(&mut l, 0);
    assert!(!l.stale && has(&l, "192.0.2.1") && !has(&l, "127.0.0.1"));
    l.listing = Some(Networks::default());
    let refused = message(ERROR, l.request, 0, &(-13i32).to_ne_bytes());
    assert_eq!(l.hear(&refused).unwrap_err().raw_os_error(), Some(13));
}
