//! Options of sockets, what the host says of them, and errors of datagrams.

use std::os::fd::AsFd;

use doppel_abi_service::net::{Congestion, DatagramHeader, ErrorRecord, MEASURES, Measure, measure};
use doppel_sys::options as host;

use super::datagrams::Gram;
use super::*;

fn set(g: &mut Guest, socket: u32, option: SocketOption, value: u32) -> Ticket {
    g.ask(Request::Set { socket, option, value })
}

fn option_of(engine: &Engine, number: u32, level: i32, name: i32) -> i32 {
    let client = engine.clients[0].as_ref().unwrap();
    host::get(client.descriptor(number, false).unwrap(), level, name).unwrap()
}

#[test]
fn what_is_set_before_a_connection_is_made_is_the_hosts() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    for (option, value) in
        [(SocketOption::MaxSegment, 1000), (SocketOption::KeepIdle, 33), (SocketOption::KeepIdle, 44)]
    {
        let ticket = set(&mut g, 5, option, value);
        assert_eq!(done(&mut engine, &mut g, ticket), 0);
    }
    let _c = connected(&mut engine, &mut g, server.local_addr().unwrap());
    let (peer, _) = server.accept().unwrap();
    assert_eq!(option_of(&engine, 5, host::IPPROTO_TCP, host::TCP_KEEPIDLE), 44);
    // The other end may send no longer segments, less the time stamp.
    let theirs = host::get(peer.as_fd(), host::IPPROTO_TCP, host::TCP_MAXSEG).unwrap();
    assert!(theirs <= 1000, "{theirs}");
    // A value that is none is refused, and changes nothing.
    let ticket = set(&mut g, 5, SocketOption::KeepIdle, 0);
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::INVAL.raw_os_error());
    assert_eq!(option_of(&engine, 5, host::IPPROTO_TCP, host::TCP_KEEPIDLE), 44);
}

#[test]
fn what_is_set_of_sockets_that_are_never_made_is_forgotten() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    for n in (0..200).chain([5, 6]) {
        let ticket = set(&mut g, n, SocketOption::KeepIdle, 33);
        assert_eq!(done(&mut engine, &mut g, ticket), 0);
    }
    // Another one was prepared after it.
    let _c = connected(&mut engine, &mut g, server.local_addr().unwrap());
    assert_ne!(option_of(&engine, 5, host::IPPROTO_TCP, host::TCP_KEEPIDLE), 33);
    // One that only the service may make.
    let ticket = set(&mut g, 9000, SocketOption::KeepIdle, 33);
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::BADF.raw_os_error());
}

#[test]
fn connections_have_what_their_listener_has() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, ours) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    let mut engine = Engine::new().unwrap();
    let published = vec![Published { port: 80, protocol: Transport::Tcp, socket: listener.into() }];
    let mut g = Guest::new(&mut engine, 1, Rules::default(), published);
    let of_host = |name| host::get(ours.as_fd(), host::IPPROTO_TCP, name).unwrap();
    let any = End { ip: crate::flow::address::bytes(Ipv4Addr::UNSPECIFIED.into()), port: 80 };
    set(&mut g, 3, SocketOption::DeferAccept, 7);
    set(&mut g, 3, SocketOption::UserTimeout, 5000);
    g.ask(Request::Listen { socket: 3, at: any, backlog: 16 });
    until(&mut engine, |_| (of_host(host::TCP_DEFER_ACCEPT) == 7).then_some(()));
    // One that is set later counts from then on.
    set(&mut g, 3, SocketOption::KeepIdle, 55);
    while let Some(Answer::Done { error, .. }) = g.answer() {
        assert_eq!(error, 0);
    }
    let mut caller = TcpStream::connect(address).unwrap();
    caller.write_all(b"x").unwrap();
    let number = until(&mut engine, |_| match g.answer()? {
        Answer::Accepted { socket, .. } => Some(socket),
        Answer::Done { .. } => None,
    });
    assert_eq!(option_of(&engine, number, host::IPPROTO_TCP, host::TCP_USER_TIMEOUT), 5000);
    assert_eq!(option_of(&engine, number, host::IPPROTO_TCP, host::TCP_KEEPIDLE), 55);
    // The next listener at the port begins anew.
    g.ask(Request::Close { socket: 3, reset: true });
    g.ask(Request::Listen { socket: 4, at: any, backlog: 16 });
    until(&mut engine, |_| (of_host(host::TCP_DEFER_ACCEPT) == 0).then_some(()));
}

#[test]
fn the_hosts_measurements_are_told() {
    let (to, _echo) = echo_server();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut c = connected(&mut engine, &mut g, to);
    c.send(&g, b"hello");
    until(&mut engine, |_| c.receive(&g).filter(|got| got == b"hello"));
    let ticket = g.ask(Request::Measure { socket: 5, place: MEASURES - 1 });
    assert_eq!(done(&mut engine, &mut g, ticket), 0);
    let mut bytes = [0; Measure::SIZE];
    g.map.read(at(measure(MEASURES - 1)), &mut bytes);
    let m = Measure::decode(&bytes);
    // The loopback's, and bytes that were received: 64 bits at 128 of `struct tcp_info`.
    assert_eq!(m.mtu, 65_535);
    assert!(usize::from(m.len) >= 136);
    assert_eq!(u64::from_ne_bytes(m.info[128..136].try_into().unwrap()), 5);
    let ticket = g.ask(Request::Measure { socket: 77, place: 0 });
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::BADF.raw_os_error());
}

#[test]
fn what_the_host_has_for_congestion_is_told() {
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut said = Congestion([0; Congestion::SIZE]);
    g.map.read(at(Congestion::PLACE), &mut said.0);
    assert!(said.place(b"reno").is_some() && said.place(b"nosuch").is_none());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    set(&mut g, 5, SocketOption::Congestion, said.place(b"reno").unwrap());
    until(&mut engine, |_| g.answer());
    let _c = connected(&mut engine, &mut g, server.local_addr().unwrap());
    let mut name = [0; 16];
    let client = engine.clients[0].as_ref().unwrap();
    let fd = client.descriptor(5, false).unwrap();
    host::get_bytes(fd, host::IPPROTO_TCP, host::TCP_CONGESTION, &mut name).unwrap();
    assert_eq!(&name[..5], b"reno\0");
    let ticket = set(&mut g, 5, SocketOption::Congestion, 1000);
    assert_eq!(i32::from(done(&mut engine, &mut g, ticket)), Errno::INVAL.raw_os_error());
}

#[test]
fn errors_of_datagrams_come_as_records_where_they_are_wanted() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, to_loopback(), Vec::new());
    let mut s = Gram::new(&mut engine, &mut g, 3, own(1, 4000));
    set(&mut g, 3, SocketOption::ReceiveErrors, 1);
    until(&mut engine, |_| g.answer());
    for _ in 0..3 {
        s.send(&g, nobody, b"hello");
        let (head, bytes) = until(&mut engine, |_| s.next_with_header(&g));
        assert!(head.is_record() && head.peer == end_of(nobody), "{head:?}");
        let (record, sent) = ErrorRecord::decode(&bytes).unwrap();
        let refused = Errno::CONNREFUSED.raw_os_error().unsigned_abs();
        assert_eq!(
            (record.errno, record.origin, record.kind, record.code, sent),
            (refused, 2, 3, 3, &b"hello"[..])
        );
        // The host's loopback is not the domain's own.
        assert_eq!(record.offender, end_of(SocketAddr::new(Ipv4Addr::new(10, 88, 0, 1).into(), 0)).ip);
    }
    // No more than datagrams, and never as one.
    assert!(!DatagramHeader { peer: End::default(), len: 0, hops: 1, class: 255, port: 0 }.is_record());
}
