//! Sockets and connections.
//!
//! The Unix socket goes by its permissions: the group's if there is one, else its owner's alone. TCP needs a token
//! with every request, and TLS unless it is loopback. Connections are bounded in number, in the size of their heads
//! and in the time for sending them; a slow one costs a task, nobody else's turn.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use super::meter::Meter;
use super::openapi;
use super::service::{Peer, Service};
use super::table::{self, Site};
use super::token::{self, Tokens};
use crate::{Replacement, Supervisor};

/// Largest head of a request.
pub(super) const MAX_HEAD: usize = 64 << 10;
/// Most header fields of a request.
const MAX_FIELDS: usize = 100;
/// How long connections may take to end when the server does.
const FAREWELL: Duration = Duration::from_secs(3);
/// As that, if another program goes on.
const SHORT_FAREWELL: Duration = Duration::from_millis(200);

/// Certificate and key, as PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Chain of certificates, the server's first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Where a socket that listens comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The service manager, who decides where it listens.
    Manager,
    /// Made here, or by the program that this process was before.
    Own,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// Where it comes from.
    pub source: Source,
    /// The socket.
    pub fd: OwnedFd,
}

/// Why a server ends.
#[derive(Debug)]
pub enum Ending {
    /// It is to stop.
    Stop,
    /// This process goes on as another program.
    Replaced(Replacement),
}

/// Where to listen, and within what bounds.
#[derive(Debug)]
pub struct Listen {
    /// Path of the Unix socket; not made if one was inherited.
    pub socket: PathBuf,
    /// Group that may use it.
    pub group: Option<String>,
    /// Sockets that this process has already.
    pub inherited: Vec<Listener>,
    /// TCP besides.
    pub tcp: Option<SocketAddr>,
    /// TLS for TCP.
    pub tls: Option<Tls>,
    /// File of tokens for TCP.
    pub tokens: PathBuf,
    /// Most connections at once; more wait.
    pub connections: usize,
    /// A head must be there by then.
    pub head_time: Duration,
}

/// The sockets, ready to serve.
pub struct Server {
    unix: Vec<UnixListener>,
    tcp: Vec<(TcpListener, Option<TlsAcceptor>)>,
    /// The socket that was made here, and is removed at the end.
    made: Option<PathBuf>,
    /// All of them once more, for the next program.
    kept: Vec<Listener>,
    tokens: Arc<Tokens>,
    connections: Arc<Semaphore>,
    head_time: Duration,
}

impl Server {
    /// Binds the sockets.
    ///
    /// # Errors
    /// The host's; and if the setup is unsafe: TCP without a token, or without TLS beyond loopback.
    pub fn bind(listen: Listen) -> io::Result<Self> {
        let mut server = Self {
            unix: Vec::new(),
            tcp: Vec::new(),
            made: None,
            kept: Vec::new(),
            tokens: Arc::new(Tokens::new(listen.tokens.clone())),
            connections: Arc::new(Semaphore::new(listen.connections)),
            head_time: listen.head_time,
        };
        let tls = listen.tls.as_ref().map(acceptor).transpose()?;
        let mut tcp = listen.tcp;
        for Listener { source, fd } in listen.inherited {
            let own = source == Source::Own;
            match rustix::net::getsockname(&fd)?.address_family() {
                rustix::net::AddressFamily::UNIX => {
                    let listener = std::os::unix::net::UnixListener::from(fd);
                    let at = listener.local_addr()?;
                    if own && at.as_pathname() != Some(&listen.socket) {
                        tracing::warn!("no longer listens at {at:?}");
                        continue;
                    }
                    server.add_unix(listener, source)?;
                    server.made = server.made.take().or(own.then(|| listen.socket.clone()));
                }
                _ => {
                    let listener = std::net::TcpListener::from(fd);
                    let at = listener.local_addr()?;
                    if own && tcp.take_if(|address| *address == at).is_none() {
                        tracing::warn!("no longer listens at {at}");
                        continue;
                    }
                    server.add_tcp(listener, source, tls.as_ref(), &listen.tokens)?;
                }
            }
        }
        if server.unix.is_empty() {
            let listener = bind_unix(&listen.socket, listen.group.as_deref())?;
            server.add_unix(listener, Source::Own)?;
            server.made = Some(listen.socket);
        }
        if let Some(address) = tcp {
            let listener = std::net::TcpListener::bind(address)?;
            server.add_tcp(listener, Source::Own, tls.as_ref(), &listen.tokens)?;
        }
        Ok(server)
    }

    fn add_unix(&mut self, listener: std::os::unix::net::UnixListener, source: Source) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.kept.push(Listener { source, fd: listener.try_clone()?.into() });
        self.unix.push(UnixListener::from_std(listener)?);
        Ok(())
    }

    fn add_tcp(
        &mut self,
        listener: std::net::TcpListener,
        source: Source,
        tls: Option<&TlsAcceptor>,
        tokens: &Path,
    ) -> io::Result<()> {
        let address = listener.local_addr()?;
        if token::read(tokens)?.is_empty() {
            let text = format!(
                "no TCP on {address} without a token: `doppeld token add NAME` writes one to {}",
                tokens.display()
            );
            return Err(io::Error::other(text));
        }
        if tls.is_none() && !address.ip().is_loopback() {
            let text = format!("no TCP on {address} without TLS: set tcp.certificate and tcp.key");
            return Err(io::Error::other(text));
        }
        listener.set_nonblocking(true)?;
        self.kept.push(Listener { source, fd: listener.try_clone()?.into() });
        self.tcp.push((TcpListener::from_std(listener)?, tls.cloned()));
        tracing::info!(%address, tls = tls.is_some(), "listening");
        Ok(())
    }

    /// Serves until `end`, then lets what is under way finish for a moment. Gives the sockets if another program is to go on
    /// with them.
    pub async fn serve(
        self,
        supervisor: Arc<Supervisor>,
        end: impl Future<Output = Ending>,
    ) -> Option<(Vec<Listener>, Replacement)> {
        let routes = table::routes();
        let site = Arc::new(Site {
            supervisor,
            meter: Meter::new(routes.len()),
            names: routes.iter().map(|r| (r.method.to_string(), r.path)).collect(),
            document: openapi::document(&routes),
            version: crate::version(),
        });
        let service = Arc::new(Service::new(routes, site));
        let (ending, ended) = watch::channel(());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.head_time);
        http.max_headers(MAX_FIELDS).max_buf_size(MAX_HEAD);
        let shared = Shared { service, http, ended, connections: self.connections.clone() };
        let mut listeners = tokio::task::JoinSet::new();
        for listener in self.unix {
            listeners.spawn(accept_unix(listener, shared.clone()));
        }
        for (listener, tls) in self.tcp {
            listeners.spawn(accept_tcp(listener, tls, self.tokens.clone(), self.head_time, shared.clone()));
        }
        drop(shared);
        let why = end.await;
        listeners.shutdown().await;
        let (farewell, replaced) = match why {
            Ending::Stop => {
                drop(self.kept);
                (FAREWELL, None)
            }
            // Who connects meanwhile waits.
            Ending::Replaced(by) => (SHORT_FAREWELL, Some((self.kept, by))),
        };
        if replaced.is_none()
            && let Some(path) = self.made
            && let Err(e) = std::fs::remove_file(&path)
        {
            tracing::warn!("{}: {e}", path.display());
        }
        ending.send_replace(());
        // Each connection holds a receiver.
        if tokio::time::timeout(farewell, ending.closed()).await.is_err() {
            tracing::info!("streams are cut");
        }
        replaced
    }
}

#[derive(Clone)]
struct Shared {
    service: Arc<Service<Site>>,
    http: http1::Builder,
    ended: watch::Receiver<()>,
    connections: Arc<Semaphore>,
}

impl Shared {
    async fn permit(&self) -> OwnedSemaphorePermit {
        match self.connections.clone().acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }
}

async fn accept_unix(listener: UnixListener, shared: Shared) {
    loop {
        let permit = shared.permit().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = match stream.peer_cred() {
                    Ok(c) => Peer::Process { uid: c.uid(), gid: c.gid(), pid: c.pid() },
                    Err(e) => {
                        tracing::warn!("a connection without credentials: {e}");
                        continue;
                    }
                };
                tokio::spawn(converse(stream, peer, shared.clone(), permit));
            }
            Err(e) => rest(&e).await,
        }
    }
}

async fn accept_tcp(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    tokens: Arc<Tokens>,
    patience: Duration,
    shared: Shared,
) {
    loop {
        let permit = shared.permit().await;
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                rest(&e).await;
                continue;
            }
        };
        let peer = Peer::Network { from: address.to_string(), tokens: tokens.clone() };
        let (tls, shared) = (tls.clone(), shared.clone());
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!("{address}: {e}");
        }
        tokio::spawn(async move {
            let Some(tls) = tls else { return converse(stream, peer, shared, permit).await };
            match tokio::time::timeout(patience, tls.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, peer, shared, permit).await,
                Ok(Err(e)) => tracing::debug!("{address}: {e}"),
                Err(_) => tracing::debug!("{address}: no TLS within {patience:?}"),
            }
        });
    }
}

/// Waits a little when accepting fails: it may be for want of descriptors.
async fn rest(error: &io::Error) {
    tracing::warn!("accept: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn converse<I>(io: I, peer: Peer, shared: Shared, permit: OwnedSemaphorePermit)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Shared { service, http, mut ended, connections: _ } = shared;
    let answer = service_fn(move |request| {
        let (service, peer) = (service.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(service.answer(request, peer).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(io), answer));
    let result = tokio::select! {
        result = &mut connection => result,
        _ = ended.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = result {
        tracing::debug!("connection: {e}");
    }
    drop(permit);
}

fn bind_unix(path: &Path, group: Option<&str>) -> io::Result<std::os::unix::net::UnixListener> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(named)?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(named(io::Error::new(ErrorKind::AddrInUse, "another supervisor listens there"))),
        // Left by one that was killed.
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(named)?,
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(named(e)),
    }
    // Nobody else's from its first moment on.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(named);
    rustix::process::umask(before);
    let listener = listener?;
    if let Some(gid) = group.and_then(group_id) {
        std::os::unix::fs::chown(path, None, Some(gid)).map_err(named)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(named)?;
    }
    tracing::info!(socket = %path.display(), "listening");
    Ok(listener)
}

/// The number of a group of this host.
fn group_id(name: &str) -> Option<u32> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

fn acceptor(tls: &Tls) -> io::Result<TlsAcceptor> {
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| io::Error::other(format!("{}: {e}", path.display()));
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed(&tls.certificate, &e))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| failed(&tls.key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|b| b.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| failed(&tls.certificate, &e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
