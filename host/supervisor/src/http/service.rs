//! The way of one request: who asks, which route, the body within bounds, idempotency, the answer, audit and metrics.
//!
//! When the client hangs up, the connection drops the request's future and with it whatever waits. A request with an
//! idempotency key goes on for [`PATIENCE`] instead, so that its answer is there when it is asked for again; if nobody
//! asks again by then, it is dropped too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use doppel_api::{Code, IDEMPOTENCY_KEY, Problem};
use hyper::Method;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, HeaderValue, WWW_AUTHENTICATE};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::answer::{Answer, Incoming, Response};
use super::route::{BodyKind, Called, MAX_JSON, Route, Taken};
use super::token::Tokens;
use crate::ByteStream;
use crate::asker::{OWNER, REQUEST};

/// A body that is read whole must be there by then.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Of a body that is too large, so much is read and dropped before it is refused.
const MAX_DROPPED: usize = 16 << 20;
/// Status in logs of a request whose client went away before there was an answer.
const GONE: u16 = 499;
/// How long a request with an idempotency key goes on for a client that is gone, and may come again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest idempotency key.
const MAX_KEY: usize = 255;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// A process of this host, by the socket's credentials.
    Process { uid: u32, gid: u32, pid: Option<i32> },
    /// Somebody on the network: a token must come with each request.
    Network { from: String, tokens: Arc<Tokens> },
}

/// What the service needs of the supervisor besides its routes.
pub(super) trait Ledger: Send + Sync + 'static {
    /// The answer kept for a key.
    fn remembered(
        &self,
        key: &str,
        request: &str,
    ) -> impl Future<Output = Result<Option<(u16, String)>, Problem>> + Send;
    /// Keeps an answer for a key.
    fn remember(
        &self,
        key: &str,
        request: &str,
        status: u16,
        body: &str,
    ) -> impl Future<Output = Result<(), Problem>> + Send;
    /// Notes who asked for what.
    fn audit(&self, who: &str, what: &str, status: u16);
    /// Counts a request of a route.
    fn note(&self, route: Option<usize>, status: u16, took: Duration);
}

impl Ledger for super::table::Site {
    async fn remembered(&self, key: &str, request: &str) -> Result<Option<(u16, String)>, Problem> {
        self.supervisor.remembered(key, request).await
    }
    async fn remember(&self, key: &str, request: &str, status: u16, body: &str) -> Result<(), Problem> {
        self.supervisor.remember(key, request, status, body).await
    }
    fn audit(&self, who: &str, what: &str, status: u16) {
        self.supervisor.audit(who, what, status);
    }
    fn note(&self, route: Option<usize>, status: u16, took: Duration) {
        self.meter.note(route, status, took);
    }
}

/// What the HTTP library lets through and we do not: it counts a head by what it has read of it, and needs no Host.
fn sound<B>(request: &hyper::Request<B>) -> Result<(), Problem> {
    let fields: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let line = request.method().as_str().len() + request.uri().to_string().len() + 12;
    if line + fields > super::server::MAX_HEAD {
        return Err(Problem::new(Code::TooLarge, "the head is larger than 64 KiB"));
    }
    if request.version() == hyper::Version::HTTP_11 && !request.headers().contains_key(hyper::header::HOST) {
        return Err(Problem::new(Code::InvalidRequest, "HTTP/1.1 without Host"));
    }
    Ok(())
}

/// The routes over what they work on.
pub(super) struct Service<S> {
    routes: Vec<Route<S>>,
    state: Arc<S>,
    /// Keys of requests that are being carried out.
    under_way: Mutex<HashMap<String, Arc<Turn>>>,
    patience: Duration,
}

/// A request with a key that is being carried out.
#[derive(Default)]
struct Turn {
    /// Held while it is.
    lock: tokio::sync::Mutex<()>,
    /// How many clients wait for its answer.
    waiting: watch::Sender<usize>,
}

impl Turn {
    /// One more client waits, until what this gives is dropped.
    fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.send_modify(|n| *n += 1);
        Waiting(self.clone())
    }

    /// Returns when for so long no client has waited.
    async fn abandoned(&self, patience: Duration) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // The sender lives as long as this.
            let _ = waiting.wait_for(|n| *n == 0).await;
            if tokio::time::timeout(patience, waiting.wait_for(|n| *n > 0)).await.is_err() {
                return;
            }
        }
    }
}

/// A client that waits.
struct Waiting(Arc<Turn>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|n| *n -= 1);
    }
}

impl<S: Ledger> Service<S> {
    pub fn new(routes: Vec<Route<S>>, state: Arc<S>) -> Self {
        Self { routes, state, under_way: Mutex::default(), patience: PATIENCE }
    }

    /// The same with another patience with clients that are gone.
    #[cfg(test)]
    pub fn patient_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Answers a request.
    pub async fn answer<B>(self: Arc<Self>, request: hyper::Request<B>, peer: Peer) -> Response
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let begun = Instant::now();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let who = sound(&request).and_then(|()| who(&request, &peer));
        let found = self.find(&method, &path);
        let route = found.as_ref().ok().map(|(at, _)| *at);
        let noted = Noted {
            state: self.state.clone(),
            method,
            path,
            route,
            begun,
            who: who.as_ref().ok().cloned(),
            status: GONE,
        };
        let (name, allowed) = match (&who, found) {
            (Err(problem), _) => (Err(problem.clone()), None),
            (Ok(_), Ok((_, name))) => (Ok(name), None),
            (Ok(_), Err((problem, allowed))) => (Err(problem), allowed),
        };
        let answer = match (name, route, &who) {
            (Ok(name), Some(at), Ok(who)) => self.clone().carry_out(at, name, request, who).await,
            (Err(problem), _, _) => Err(problem),
            _ => Err(Problem::new(Code::PathNotFound, "nothing lives there")),
        };
        let answer = answer.unwrap_or_else(Answer::from);
        let status = answer.status();
        noted.end(status);
        let mut response = answer.into_response();
        if status == 401 {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allowed) = allowed.and_then(|a| HeaderValue::from_str(&a).ok()) {
            response.headers_mut().insert(ALLOW, allowed);
        }
        response
    }

    /// The route of a method and path, and the variable part; or the problem and the methods there are.
    fn find(&self, method: &Method, path: &str) -> Result<(usize, String), (Problem, Option<String>)> {
        let mut best: Option<(usize, usize, &str)> = None;
        let mut allowed: Vec<&str> = Vec::new();
        for (at, route) in self.routes.iter().enumerate() {
            let Some((literal, name)) = route.fits(path) else { continue };
            if route.method != *method {
                allowed.push(route.method.as_str());
            } else if best.is_none_or(|(l, _, _)| literal > l) {
                best = Some((literal, at, name));
            }
        }
        match best {
            Some((_, at, name)) => Ok((at, decode(name).map_err(|p| (p, None))?)),
            None if allowed.is_empty() => Err((
                Problem::new(Code::PathNotFound, format!("nothing lives at {path}; see /v1/openapi.json")),
                None,
            )),
            None => {
                allowed.sort_unstable();
                allowed.dedup();
                let allowed = allowed.join(", ");
                let text = format!("{method} does not work on {path}; {allowed} does");
                Err((Problem::new(Code::MethodNotAllowed, text), Some(allowed)))
            }
        }
    }

    async fn carry_out<B>(
        self: Arc<Self>,
        at: usize,
        name: String,
        request: hyper::Request<B>,
        who: &str,
    ) -> Result<Answer, Problem>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display,
    {
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let kind = self.routes[at].body;
        let stream: ByteStream = Box::pin(Incoming(body));
        let taken = match kind {
            BodyKind::Stream => Taken::Stream(stream),
            BodyKind::None | BodyKind::Whole => {
                let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
                Taken::Whole(whole(stream, length).await?)
            }
        };
        let key = match head.headers.get(IDEMPOTENCY_KEY) {
            Some(key) if matches!(head.method, Method::POST | Method::PUT) => key,
            _ => {
                let called = Called { state: self.state.clone(), name };
                let call = (self.routes[at].call)(called, &query, taken);
                return OWNER.scope(owner(who).to_owned(), call).await;
            }
        };
        let key = key.to_str().ok().filter(|k| !k.is_empty() && k.len() <= MAX_KEY).ok_or_else(|| {
            let text = format!("{IDEMPOTENCY_KEY}: 1 to {MAX_KEY} printable ASCII characters");
            Problem::new(Code::InvalidRequest, text)
        })?;
        let key = format!("{}/{key}", who.split(" pid").next().unwrap_or(who));
        let mut digest = Sha256::new();
        for part in [head.method.as_str(), head.uri.path(), &query] {
            digest.update(part);
            digest.update([0]);
        }
        // Bytes that are passed on as they come are not part of it.
        if let Taken::Whole(body) = &taken {
            digest.update(body);
        }
        let digest = digest.finalize().iter().map(|b| format!("{b:02x}")).collect::<String>();
        let turn = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            under_way.retain(|_, turn| Arc::strong_count(turn) > 1);
            under_way.entry(key.clone()).or_default().clone()
        };
        let _waiting = turn.wait();
        let patience = self.patience;
        let owner = owner(who).to_owned();
        let once = tokio::spawn(OWNER.scope(owner, async move {
            let work = self.once(at, name, query, taken, &turn, key, digest);
            tokio::select! {
                answer = work => answer,
                () = turn.abandoned(patience) => Err(Problem::new(Code::Cancelled, "the client went away")),
            }
        }));
        once.await.unwrap_or_else(|e| Err(Problem::new(Code::Internal, e.to_string())))
    }

    /// Carries a request out unless its key was used before.
    #[allow(clippy::too_many_arguments, reason = "the parts of one request")]
    async fn once(
        &self,
        at: usize,
        name: String,
        query: String,
        taken: Taken,
        turn: &Turn,
        key: String,
        digest: String,
    ) -> Result<Answer, Problem> {
        let _turn = turn.lock.lock().await;
        if let Some((status, body)) = self.state.remembered(&key, &digest).await? {
            return Ok(if status == 204 { Answer::Empty } else { Answer::Json { status, body } });
        }
        let called = Called { state: self.state.clone(), name };
        let call = (self.routes[at].call)(called, &query, taken);
        let answer = REQUEST.scope(format!("{key} {digest}"), call).await.unwrap_or_else(Answer::from);
        let kept = match &answer {
            Answer::Empty => Some((204, "")),
            // A fault of ours is no answer: the next try may do better.
            Answer::Json { status, body } if *status < 500 => Some((*status, body.as_str())),
            _ => None,
        };
        if let Some((status, body)) = kept {
            self.state.remember(&key, &digest, status, body).await?;
        }
        Ok(answer)
    }
}

/// A request that will be noted in audit log and metrics, also when its client hangs up and its future is dropped.
struct Noted<S: Ledger> {
    state: Arc<S>,
    method: Method,
    path: String,
    route: Option<usize>,
    begun: Instant,
    who: Option<String>,
    status: u16,
}

impl<S: Ledger> Noted<S> {
    fn end(mut self, status: u16) {
        self.status = status;
    }
}

impl<S: Ledger> Drop for Noted<S> {
    fn drop(&mut self) {
        let (method, path, status, took) = (&self.method, &self.path, self.status, self.begun.elapsed());
        self.state.note(self.route, status, took);
        let who = self.who.as_deref().unwrap_or("unknown");
        if *method != Method::GET || status == 401 {
            self.state.audit(who, &format!("{method} {path}"), status);
        }
        tracing::debug!(%method, path, status, who, ms = took.as_secs_f64() * 1e3, "request");
    }
}

/// Who asks, for the audit log; refused without a valid token on the network.
fn who<B>(request: &hyper::Request<B>, peer: &Peer) -> Result<String, Problem> {
    match peer {
        Peer::Process { uid, gid, pid } => {
            let pid = pid.map(|p| format!(" pid {p}")).unwrap_or_default();
            Ok(format!("uid {uid} gid {gid}{pid}"))
        }
        Peer::Network { from, tokens } => {
            let given = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok());
            let given =
                given.and_then(|v| v.split_once(' ')).filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
            let name = given.and_then(|(_, token)| tokens.owner(token.trim()));
            name.map(|name| format!("token {name} from {from}")).ok_or_else(|| {
                let text = match given {
                    None => "a bearer token is needed: `doppeld token add` makes one, DOPPEL_TOKEN gives it",
                    Some(_) => "this bearer token is not valid here",
                };
                Problem::new(Code::Unauthorized, text)
            })
        }
    }
}

/// Whose domains those are that this one makes.
fn owner(who: &str) -> &str {
    let (owner, _) = who.split_once(" gid ").filter(|_| who.starts_with("uid ")).unwrap_or((who, ""));
    owner.rsplit_once(" from ").map_or(owner, |(token, _)| token)
}

/// Reads a body whole, within bounds of size and time.
async fn whole(mut stream: ByteStream, length: Option<usize>) -> Result<Bytes, Problem> {
    let mut all = BytesMut::new();
    let mut large = length.is_some_and(|length| length > MAX_JSON);
    let mut dropped = 0;
    let read = async {
        while let Some(piece) = std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
            let piece = piece?;
            large |= all.len() + piece.len() > MAX_JSON;
            if !large {
                all.extend_from_slice(&piece);
                continue;
            }
            // Most clients look for the answer only when they have sent all.
            dropped += piece.len();
            if dropped > MAX_DROPPED {
                break;
            }
        }
        Ok::<(), Problem>(())
    };
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(done) => done?,
        Err(_) => {
            let text = format!("the body did not come within {} seconds", BODY_TIME.as_secs());
            return Err(Problem::new(Code::Timeout, text));
        }
    }
    if large {
        return Err(Problem::new(Code::TooLarge, format!("the body is larger than {MAX_JSON} bytes")));
    }
    Ok(all.freeze())
}

/// Undoes percent-encoding of a path segment.
fn decode(segment: &str) -> Result<String, Problem> {
    let bad =
        || Problem::new(Code::InvalidRequest, format!("{segment:?} in the path is badly percent-encoded"));
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16)).ok_or_else(bad);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| bad())?);
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(bad()),
    }
}
