//! The distribution API of one repository of one registry, with every answer bounded.
//!
//! Boundary: the registry is hostile. Manifests, tokens and error texts are read up to a limit; a connection that goes
//! silent ends; credentials go only to the registry itself and, over TLS, to the token server it names, and never along
//! with a redirect.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ureq::http::{Response, StatusCode};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder, SendBody};

use crate::auth::{self, Challenge, Credentials};
use crate::error::printable;
use crate::model::{ACCEPT, DOCUMENT_MAX};
use crate::{Cancel, Digest, Error, Reference, Result};

/// Most bytes of a token or an error.
const NOTE_MAX: u64 = 64 << 10;
const REDIRECTS: u32 = 10;

/// A repository of a registry.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    registry: String,
    repository: String,
    plain: bool,
    timeout: Duration,
    credentials: Option<Credentials>,
    /// What is asked of a token server.
    actions: &'static str,
    /// `Authorization` header, once it is known.
    authorization: Mutex<Option<String>>,
    cancel: Cancel,
}

/// A blob that is being sent.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn Read>,
    /// Where it starts in the blob.
    pub(crate) start: u64,
    /// How much the registry says will come.
    pub(crate) length: Option<u64>,
}

impl Client {
    pub(crate) fn new(
        reference: &Reference,
        plain_http: bool,
        push: bool,
        timeout: Duration,
        credentials: Option<&Credentials>,
        cancel: &Cancel,
    ) -> Self {
        let plain = plain_http || reference.is_loopback();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!plain)
            .max_redirects(REDIRECTS)
            .user_agent(concat!("doppel/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .timeout_per_read(Some(timeout))
            .timeout_per_write(Some(timeout))
            .tls_config(tls);
        if reference.is_loopback() {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        cancel.watch(&agent);
        let scheme = if plain { "http" } else { "https" };
        Self {
            agent,
            base: format!("{scheme}://{}", reference.host()),
            registry: reference.registry().to_owned(),
            repository: reference.repository().to_owned(),
            plain,
            timeout,
            credentials: credentials.cloned().or_else(|| Credentials::of_docker(reference)),
            actions: if push { "pull,push" } else { "pull" },
            authorization: Mutex::new(None),
            cancel: cancel.clone(),
        }
    }

    /// Breaks all connections, when one transfer of several has failed for good.
    pub(crate) fn abort(&self) {
        self.agent.clone().shutdown();
    }

    fn network(&self, e: ureq::Error) -> Error {
        if self.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        let seconds = self.timeout.as_secs();
        let why = match e {
            ureq::Error::Timeout(_) | ureq::Error::BodyStalled => format!("no answer within {seconds} s"),
            ureq::Error::RequireHttpsOnly(to) => {
                return Error::invalid(
                    format!("registry {}", self.registry),
                    format!("leads to plain HTTP ({})", printable(&to)),
                );
            }
            other => printable(&other.to_string()),
        };
        Error::Network { registry: self.registry.clone(), why }
    }

    /// Error of a body that broke off.
    pub(crate) fn broken(&self, e: &std::io::Error) -> Error {
        if self.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        let text = e.to_string();
        let why = match e.kind() == std::io::ErrorKind::TimedOut || text.contains("timeout") {
            true => format!("sent nothing for {} s", self.timeout.as_secs()),
            false => format!("the connection broke: {}", printable(&text)),
        };
        Error::Network { registry: self.registry.clone(), why }
    }

    fn url(&self, rest: &str) -> String {
        format!("{}/v2/{}/{rest}", self.base, self.repository)
    }

    fn authorization(&self) -> Option<String> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a request with the authorization there is, and once more with the one the registry asks for. `make` gets
    /// the value of the header.
    fn send(
        &self,
        mut make: impl FnMut(Option<&str>) -> std::result::Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>> {
        self.cancel.check()?;
        let first = make(self.authorization().as_deref()).map_err(|e| self.network(e))?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        let headers = first.headers().get_all("www-authenticate").iter();
        let Some(challenge) = headers.filter_map(|h| h.to_str().ok()).find_map(Challenge::parse) else {
            return Ok(first);
        };
        let Some(header) = self.authorize(&challenge)? else { return Ok(first) };
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(header.clone());
        make(Some(&header)).map_err(|e| self.network(e))
    }

    /// The header that answers a challenge; `None` without credentials for it.
    fn authorize(&self, challenge: &Challenge) -> Result<Option<String>> {
        let Challenge::Bearer { realm, service } = challenge else {
            return Ok(self.credentials.as_ref().map(Credentials::basic));
        };
        if !self.plain && !realm.starts_with("https://") {
            let why = format!("wants tokens from {}, without TLS", printable(realm));
            return Err(Error::invalid(format!("registry {}", self.registry), why));
        }
        let scope = format!("repository:{}:{}", self.repository, self.actions);
        let mut request = self.agent.get(realm.as_str()).query("scope", &scope);
        if let Some(service) = service {
            request = request.query("service", service);
        }
        // In plain HTTP the password goes to the registry's own host only.
        let own = realm.strip_prefix(self.base.as_str()).is_some_and(|r| r.starts_with('/'));
        if let Some(credentials) = self.credentials.as_ref().filter(|_| own || realm.starts_with("https://"))
        {
            request = request.header("authorization", credentials.basic());
        }
        let answer = request.call().map_err(|e| self.network(e))?;
        if answer.status() != StatusCode::OK {
            return Err(self.refused("get a token", answer));
        }
        let body = self.small(answer, NOTE_MAX, "its token")?;
        let token = auth::token(&body)
            .ok_or_else(|| Error::invalid(format!("registry {}", self.registry), "sent no usable token"))?;
        Ok(Some(format!("Bearer {token}")))
    }

    /// The whole body, which must not exceed `limit`.
    fn small(&self, answer: Response<Body>, limit: u64, what: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        answer
            .into_body()
            .into_reader()
            .take(limit + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| self.broken(&e))?;
        if bytes.len() as u64 > limit {
            let why = format!("{what} is longer than {limit} bytes");
            return Err(Error::invalid(format!("registry {}", self.registry), why));
        }
        Ok(bytes)
    }

    /// The error of an answer that is not what was asked for.
    fn refused(&self, what: &str, answer: Response<Body>) -> Error {
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        // What it says only helps; that it refuses is known.
        let read = answer.into_body().into_reader().take(NOTE_MAX).read_to_end(&mut bytes);
        let said = read.ok().and_then(|_| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
        let said = said.as_ref().and_then(|v| v.pointer("/errors/0"));
        let field = |name: &str| said.and_then(|e| e.get(name)).and_then(|v| v.as_str());
        let message = match (field("message"), field("code")) {
            (Some(message), _) if !message.is_empty() => format!(" ({})", printable(message)),
            (_, Some(code)) => format!(" ({})", printable(code)),
            _ => String::new(),
        };
        Error::Refused { registry: self.registry.clone(), what: what.into(), status, message }
    }

    /// The manifest that `name` (a tag or a digest) names, and its digest.
    pub(crate) fn manifest(&self, name: &str, expected: Option<&Digest>) -> Result<(Vec<u8>, Digest)> {
        let url = self.url(&format!("manifests/{name}"));
        let answer =
            self.send(|auth| with(self.agent.get(&url), auth).header("accept", ACCEPT.join(", ")).call())?;
        if answer.status() != StatusCode::OK {
            return Err(self.refused(&format!("get manifest {}:{name}", self.repository), answer));
        }
        let stated =
            answer.headers().get("docker-content-digest").and_then(|h| h.to_str().ok()).map(str::to_owned);
        let bytes = self.small(answer, DOCUMENT_MAX, "the manifest")?;
        let digest = Digest::of(&bytes);
        let stated = stated.and_then(|text| Digest::parse(&text).ok());
        if let Some(wanted) = expected.or(stated.as_ref()).filter(|d| **d != digest) {
            return Err(Error::invalid(
                format!("manifest {wanted}"),
                format!("registry {} sent {digest}", self.registry),
            ));
        }
        Ok((bytes, digest))
    }

    /// Starts to read a blob at `start`; the answer may start at 0 all the same.
    pub(crate) fn blob(&self, digest: &Digest, start: u64) -> Result<Stream> {
        let url = self.url(&format!("blobs/{digest}"));
        let answer = self.send(|auth| {
            let request = with(self.agent.get(&url), auth);
            match start {
                0 => request.call(),
                _ => request.header("range", format!("bytes={start}-")).call(),
            }
        })?;
        let length = answer.body().content_length();
        match answer.status() {
            StatusCode::OK => {
                Ok(Stream { reader: Box::new(answer.into_body().into_reader()), start: 0, length })
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = answer.headers().get("content-range").and_then(|h| h.to_str().ok());
                let first =
                    range.and_then(|r| r.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
                if first != Some(start) {
                    return Err(Error::invalid(
                        format!("blob {digest}"),
                        "the registry sent another part than asked for",
                    ));
                }
                Ok(Stream { reader: Box::new(answer.into_body().into_reader()), start, length })
            }
            // Nothing is behind what we have: begin again.
            StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => self.blob(digest, 0),
            _ => Err(self.refused(&format!("get blob {digest}"), answer)),
        }
    }

    /// Whether the repository has the blob.
    pub(crate) fn has_blob(&self, digest: &Digest) -> Result<bool> {
        let url = self.url(&format!("blobs/{digest}"));
        let answer = self.send(|auth| with(self.agent.head(&url), auth).call())?;
        match answer.status() {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(self.refused(&format!("look for blob {digest}"), answer)),
        }
    }

    /// Sends a blob of `size` bytes, which `body` reads.
    pub(crate) fn upload(&self, digest: &Digest, size: u64, mut body: impl Read) -> Result<()> {
        let what = format!("push blob {digest}");
        let url = self.url("blobs/uploads/");
        let answer = self.send(|auth| with(self.agent.post(&url), auth).send_empty())?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(self.refused(&what, answer));
        }
        let location = answer.headers().get("location").and_then(|h| h.to_str().ok()).unwrap_or_default();
        let (to, own) = self.location(location)?;
        let and = if to.contains('?') { '&' } else { '?' };
        let to = format!("{to}{and}digest={}", digest.to_string().replace(':', "%3A"));
        let auth = self.authorization().filter(|_| own);
        let request = with(self.agent.put(&to), auth.as_deref())
            .header("content-type", "application/octet-stream")
            .header("content-length", size.to_string());
        let answer = request.send(SendBody::from_reader(&mut body)).map_err(|e| self.network(e))?;
        if answer.status() != StatusCode::CREATED {
            return Err(self.refused(&what, answer));
        }
        Ok(())
    }

    /// Where an upload goes on, and whether that is the registry itself, which may see the authorization.
    fn location(&self, location: &str) -> Result<(String, bool)> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Ok((format!("{}{location}", self.base), true));
        }
        let own = location.strip_prefix(self.base.as_str()).is_some_and(|r| r.starts_with('/'));
        if own || location.starts_with("https://") || (self.plain && location.starts_with("http://")) {
            return Ok((location.to_owned(), own));
        }
        Err(Error::invalid(format!("registry {}", self.registry), "gave no usable place for an upload"))
    }

    /// Stores a manifest under a tag or a digest.
    pub(crate) fn put_manifest(&self, name: &str, media_type: &str, bytes: &[u8]) -> Result<()> {
        let url = self.url(&format!("manifests/{name}"));
        let answer = self
            .send(|auth| with(self.agent.put(&url), auth).header("content-type", media_type).send(bytes))?;
        match answer.status() {
            StatusCode::CREATED | StatusCode::OK | StatusCode::ACCEPTED => Ok(()),
            _ => Err(self.refused(&format!("push manifest {}:{name}", self.repository), answer)),
        }
    }
}

fn with<T>(request: RequestBuilder<T>, authorization: Option<&str>) -> RequestBuilder<T> {
    match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    }
}
