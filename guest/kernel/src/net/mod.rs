//! Sockets: AF_UNIX and, inside the domain, AF_INET and AF_INET6 over loopback.
