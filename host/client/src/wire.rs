//! HTTP/1.1 over one connection: a request out, the head of an answer in, its body as it comes.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Serialize;

use crate::stream::Stopper;
use crate::{Error, Result};

/// How long TCP may take to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest head of an answer.
const MAX_HEAD: usize = 64 << 10;
/// Certificates that are trusted: this file, or the one of `DOPPEL_CA`.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Names a file of certificates to trust instead.
const ROOTS_VARIABLE: &str = "DOPPEL_CA";

/// Where a supervisor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: bool },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port, tls: true } => write!(f, "https://{host}:{port}"),
            Self::Tcp { host, port, tls: false } => write!(f, "http://{host}:{port}"),
        }
    }
}

impl Target {
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::Broken(format!("{} {text:?}: {why}", doppel_api::HOST_VARIABLE));
        if let Some(path) = text.strip_prefix("unix://").or(text.starts_with('/').then_some(text)) {
            return Ok(Self::Unix(path.into()));
        }
        let (rest, tls) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return Err(bad("neither unix:///path nor https://host:port")),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(|| bad("has no port"))?;
        let port = port.parse().map_err(|_| bad("its port is no number"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !tls && !loopback {
            return Err(bad("beyond loopback the token must not go without TLS: https://"));
        }
        Ok(Self::Tcp { host, port, tls })
    }

    fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".into(),
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }
}

/// The body of a request.
pub enum Upload<'a> {
    /// None.
    None,
    /// JSON.
    Json(Vec<u8>),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes as they come, in chunks.
    Stream(&'a mut dyn Read),
}

impl Upload<'_> {
    /// A value as JSON.
    ///
    /// # Errors
    /// If it has none.
    pub fn json(value: &impl Serialize) -> Result<Self> {
        serde_json::to_vec(value).map(Self::Json).map_err(|e| Error::Broken(e.to_string()))
    }
}

/// Why an exchange failed.
pub(crate) enum Failed<'a> {
    /// The connection had been closed before: nothing came back.
    Stale(Upload<'a>),
    Broken(Error),
}

impl From<Failed<'_>> for Error {
    fn from(failed: Failed<'_>) -> Self {
        match failed {
            Failed::Stale(_) => Self::Broken("the connection was closed".into()),
            Failed::Broken(error) => error,
        }
    }
}

impl From<Error> for Failed<'_> {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl From<io::Error> for Failed<'_> {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// How much of the body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    /// In chunks, none of which has been looked at: the first may take its time.
    Chunks,
    /// In chunks; so much of this one.
    Chunk(u64),
    /// Until the connection ends.
    All,
    None,
}

/// A connection.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    stopper: Stopper,
    left: Left,
    keep: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Connection {
    pub fn open(target: &Target) -> io::Result<Self> {
        let (stream, stopper): (Box<dyn Stream>, _) = match target {
            Target::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                let stopper = Stopper::Unix(stream.try_clone()?);
                (Box::new(stream), stopper)
            }
            Target::Tcp { host, port, tls } => {
                let stream = connect(host, *port)?;
                stream.set_nodelay(true)?;
                let stopper = Stopper::Tcp(stream.try_clone()?);
                match tls {
                    true => (Box::new(secure(host, stream)?), stopper),
                    false => (Box::new(stream), stopper),
                }
            }
        };
        Ok(Self { stream: BufReader::with_capacity(64 << 10, stream), stopper, left: Left::None, keep: true })
    }

    /// Sends a request and reads the head of its answer; gives the status.
    pub fn exchange<'a>(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&str>,
        target: &Target,
        body: Upload<'a>,
    ) -> std::result::Result<u16, Failed<'a>> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", target.authority()).into_bytes();
        if let (Some(token), Target::Tcp { .. }) = (token, target) {
            head.extend_from_slice(format!("Authorization: Bearer {token}\r\n").as_bytes());
        }
        match &body {
            Upload::None if method == "GET" => head.extend_from_slice(b"\r\n"),
            Upload::None => head.extend_from_slice(b"Content-Length: 0\r\n\r\n"),
            Upload::Json(json) => {
                let fields =
                    format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", json.len());
                head.extend_from_slice(fields.as_bytes());
                head.extend_from_slice(json);
            }
            Upload::Bytes(bytes) => {
                head.extend_from_slice(format!("Content-Length: {}\r\n\r\n", bytes.len()).as_bytes());
                head.extend_from_slice(bytes);
            }
            Upload::Stream(_) => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n"),
        }
        let out = self.stream.get_mut();
        if out.write_all(&head).and_then(|()| out.flush()).is_err() {
            return Err(Failed::Stale(body));
        }
        let body = match body {
            Upload::Stream(reader) => {
                self.upload(reader)?;
                Upload::None
            }
            body => body,
        };
        match self.stream.fill_buf() {
            Ok([]) | Err(_) => return Err(Failed::Stale(body)),
            // The beginning of an alert: it understood nothing.
            Ok([0x15, 0x03, ..]) => {
                return Err(Error::Unsafe {
                    place: target.to_string(),
                    why: "it speaks TLS there: https://".into(),
                }
                .into());
            }
            Ok(_) => {}
        }
        Ok(self.head()?)
    }

    fn upload(&mut self, reader: &mut dyn Read) -> io::Result<()> {
        let mut piece = vec![0; 64 << 10];
        loop {
            let n = reader.read(&mut piece)?;
            let out = self.stream.get_mut();
            // A refusal comes before all is sent; then the rest cannot be written, and the answer says why.
            let sent = write!(out, "{n:x}\r\n")
                .and_then(|()| out.write_all(&piece[..n]))
                .and_then(|()| out.write_all(b"\r\n"))
                .and_then(|()| out.flush());
            if n == 0 || sent.is_err() {
                return Ok(());
            }
        }
    }

    fn head(&mut self) -> Result<u16> {
        let bad = |why: &str| Error::Broken(why.into());
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let before = head.len();
            self.stream.by_ref().take(MAX_HEAD as u64).read_until(b'\n', &mut head)?;
            if head.len() == before {
                return Err(bad("it ends in its head"));
            }
            if head.len() > MAX_HEAD {
                return Err(bad("its head is too long"));
            }
        }
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        response.parse(&head).map_err(|e| Error::Broken(e.to_string()))?;
        let status = response.code.ok_or_else(|| bad("it has no status"))?;
        self.keep = true;
        self.left = Left::All;
        for field in response.headers.iter() {
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            match field.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    self.left = Left::Bytes(value.parse().map_err(|_| bad("its length is no number"))?);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => self.left = Left::Chunks,
                "connection" if value.eq_ignore_ascii_case("close") => self.keep = false,
                _ => {}
            }
        }
        match (status, self.left) {
            // "Continue" comes before the answer itself.
            (100, _) => return self.head(),
            (204 | 304, _) => self.left = Left::None,
            (_, Left::All) => self.keep = false,
            _ => {}
        }
        Ok(status)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.by_ref().take(1024).read_line(&mut line)?;
        match line.ends_with('\n') {
            true => Ok(line.trim_end().to_owned()),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream was cut off")),
        }
    }

    /// Reads the size of the next chunk; but for the first, after the line's end that closes the one before.
    fn next_chunk(&mut self, first: bool) -> io::Result<()> {
        if !first {
            self.line()?;
        }
        let line = self.line()?;
        let size = line.split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size.trim(), 16)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a chunk has no size"))?;
        self.left = Left::Chunk(size);
        if size == 0 {
            while !self.line()?.is_empty() {}
            self.left = Left::None;
        }
        Ok(())
    }

    /// Whether there may be another request after this one.
    pub fn reusable(&self) -> bool {
        self.keep && matches!(self.left, Left::None | Left::Bytes(0))
    }

    pub fn body(&mut self) -> impl Read + '_ {
        Borrowed(self)
    }

    pub fn into_body(self) -> Body {
        Body(self)
    }

    /// Whether more is here already than the end of the chunk that was read.
    pub fn buffered(&self) -> bool {
        self.stream.buffer().len() > b"\r\n".len()
    }

    /// Whether it is as it was left, and has not been closed by the other side, which does not keep an idle one for long.
    pub fn is_quiet(&self) -> bool {
        self.stream.buffer().is_empty() && !self.stopper.has_heard()
    }

    pub fn stopper(&self) -> io::Result<Stopper> {
        self.stopper.again()
    }

    fn read_body(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let most = match self.left {
                Left::None | Left::Bytes(0) => return Ok(0),
                Left::Chunks | Left::Chunk(0) => {
                    self.next_chunk(self.left == Left::Chunks)?;
                    continue;
                }
                Left::Bytes(n) | Left::Chunk(n) => usize::try_from(n).unwrap_or(usize::MAX).min(into.len()),
                Left::All => into.len(),
            };
            if into.is_empty() {
                return Ok(0);
            }
            let n = self.stream.read(&mut into[..most])?;
            match &mut self.left {
                Left::Bytes(left) | Left::Chunk(left) => {
                    if n == 0 {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off"));
                    }
                    *left -= n as u64;
                }
                Left::All | Left::Chunks | Left::None => {}
            }
            return Ok(n);
        }
    }
}

struct Borrowed<'a>(&'a mut Connection);

impl Read for Borrowed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_body(into)
    }
}

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct Body(pub(crate) Connection);

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_body(into)
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    use std::net::ToSocketAddrs;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn secure(host: &str, stream: TcpStream) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let path = std::env::var_os(ROOTS_VARIABLE).map_or_else(|| PathBuf::from(ROOTS), PathBuf::from);
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
    roots.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut secured = StreamOwned::new(connection, stream);
    // What is wrong with it is known before anything is sent.
    secured.sock.set_read_timeout(Some(PATIENCE))?;
    while secured.conn.is_handshaking() {
        secured.conn.complete_io(&mut secured.sock)?;
    }
    secured.sock.set_read_timeout(None)?;
    Ok(secured)
}

/// What is wrong with a server's TLS, if that is what an error is about.
pub(crate) fn tls_in_words(error: &io::Error) -> Option<String> {
    use rustls::{CertificateError as C, Error as E};
    let what = error.get_ref()?.downcast_ref::<E>()?;
    Some(match what {
        E::InvalidCertificate(C::UnknownIssuer) => format!(
            "its certificate is signed by nobody who is trusted here; {ROOTS_VARIABLE} names a file with its certificate authority"
        ),
        E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => "its certificate has expired".into(),
        E::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; is the clock right?".into()
        }
        E::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            "its certificate is for another name than this".into()
        }
        E::InvalidCertificate(other) => format!(
            "its certificate is not accepted ({other}); one that signed itself cannot be the authority in {ROOTS_VARIABLE} unless it says that it is one"
        ),
        E::InvalidMessage(_) => "it does not speak TLS there; is it http://, or another port?".into(),
        other => format!("TLS: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(Target::parse("/run/x.sock").unwrap(), Target::Unix("/run/x.sock".into()));
        assert_eq!(Target::parse("unix:///run/x.sock").unwrap(), Target::Unix("/run/x.sock".into()));
        let tcp = |host: &str, port, tls| Target::Tcp { host: host.into(), port, tls };
        assert_eq!(Target::parse("https://a.example:7373/").unwrap(), tcp("a.example", 7373, true));
        assert_eq!(Target::parse("http://127.0.0.1:1").unwrap(), tcp("127.0.0.1", 1, false));
        assert_eq!(Target::parse("http://[::1]:1").unwrap(), tcp("::1", 1, false));
        for bad in
            ["", "x", "tcp://a:1", "https://a", "https://a:b", "http://a.example:80", "http://10.0.0.1:80"]
        {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    /// What a server that answers with `answer` makes of a request: status and body.
    fn against(answer: &'static str) -> Result<(u16, Vec<u8>)> {
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        #[allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]
        let server = std::thread::spawn(move || {
            let mut request = [0; 4096];
            let _ = theirs.read(&mut request);
            theirs.write_all(answer.as_bytes()).expect("written");
        });
        let stopper = Stopper::Unix(ours.try_clone().expect("clone"));
        let stream: Box<dyn Stream> = Box::new(ours);
        let mut connection =
            Connection { stream: BufReader::new(stream), stopper, left: Left::None, keep: true };
        let target = Target::Unix("/x".into());
        let status =
            connection.exchange("GET", "/v1/ping", None, &target, Upload::None).map_err(Error::from)?;
        let mut body = Vec::new();
        connection.body().read_to_end(&mut body)?;
        server.join().expect("server");
        Ok((status, body))
    }

    #[test]
    fn a_stream_is_there_before_its_first_line() {
        let (ours, mut theirs) = UnixStream::pair().expect("pair");
        theirs.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").expect("written");
        ours.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let stopper = Stopper::Unix(ours.try_clone().expect("clone"));
        let stream: Box<dyn Stream> = Box::new(ours);
        let mut connection =
            Connection { stream: BufReader::new(stream), stopper, left: Left::None, keep: true };
        let target = Target::Unix("/x".into());
        let status = connection.exchange("GET", "/x", None, &target, Upload::None).map_err(Error::from);
        assert_eq!(status.expect("the head alone"), 200);
        theirs.write_all(b"2\r\nab\r\n0\r\n\r\n").expect("written");
        let mut body = String::new();
        connection.body().read_to_string(&mut body).expect("read");
        assert_eq!(body, "ab");
    }

    #[test]
    fn answers() {
        let ok = |text| against(text).expect(text);
        assert_eq!(ok("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), (200, b"abc".to_vec()));
        assert_eq!(ok("HTTP/1.1 204 No Content\r\n\r\n"), (204, vec![]));
        assert_eq!(ok("HTTP/1.1 200 OK\r\n\r\nto the end"), (200, b"to the end".to_vec()));
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        assert_eq!(ok(chunked), (200, b"abcde".to_vec()));
        for bad in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "no\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
        ] {
            assert!(against(bad).is_err(), "{bad:?}");
        }
    }
}
