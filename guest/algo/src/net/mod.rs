//! Pure parts of the socket layer: byte streams, socket addresses, the port table.

pub mod ports;
pub mod sockaddr;
pub mod stream;
