use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use doppel_api::validate::{MAX_CLONES, MAX_NAME};
use doppel_api::{CreateDomain, Problem};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::openapi;
use super::route::{AnyJson, Called, Json, Raw, Route, Take, Taken};
use super::service::{Ledger, Peer, Service};
use super::table;
use super::token::{self, Tokens};

/// Something to ask in a supervisor's stead: counts what reaches it.
struct Fake {
    calls: Mutex<Vec<String>>,
    kept: Mutex<Vec<(String, String, u16, String)>>,
    audited: Mutex<Vec<String>>,
    /// What takes its time ends then.
    gate: tokio::sync::Semaphore,
    /// Rings when something that takes its time begins or is dropped.
    slow: tokio::sync::watch::Sender<(u32, u32)>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            kept: Mutex::default(),
            audited: Mutex::default(),
            gate: tokio::sync::Semaphore::new(0),
            slow: tokio::sync::watch::Sender::default(),
        }
    }
}

/// Notes that what it is in was dropped.
struct Dropped(Arc<Fake>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.slow.send_modify(|(_, dropped)| *dropped += 1);
    }
}

impl Ledger for Fake {
    async fn remembered(&self, key: &str, request: &str) -> Result<Option<(u16, String)>, Problem> {
        let kept = self.kept.lock().expect("lock");
        match kept.iter().find(|k| k.0 == key) {
            Some((_, r, status, body)) if r == request => Ok(Some((*status, body.clone()))),
            Some(_) => Err(Problem::new(doppel_api::Code::IdempotencyMismatch, "used for another request")),
            None => Ok(None),
        }
    }
    async fn remember(&self, key: &str, request: &str, status: u16, body: &str) -> Result<(), Problem> {
        self.kept.lock().expect("lock").push((key.into(), request.into(), status, body.into()));
        Ok(())
    }
    fn audit(&self, who: &str, what: &str, status: u16) {
        self.audited.lock().expect("lock").push(format!("{who}: {what}: {status}"));
    }
    fn note(&self, _: Option<usize>, _: u16, _: Duration) {}
}

fn fake() -> (Arc<Service<Fake>>, Arc<Fake>) {
    fake_patient_for(Duration::from_secs(600))
}

fn fake_patient_for(patience: Duration) -> (Arc<Service<Fake>>, Arc<Fake>) {
    let note = |c: &Called<Fake>, what: &str| {
        let mut calls = c.state.calls.lock().expect("lock");
        calls.push(format!("{what} {}", c.name));
        json!({"n": calls.len()})
    };
    let routes = vec![
        Route::new(Method::GET, "/v1/things/{thing}", "", move |c: Called<Fake>, (), ()| async move {
            Ok(AnyJson(note(&c, "get")))
        }),
        Route::new(Method::POST, "/v1/things/prune", "", move |c: Called<Fake>, (), ()| async move {
            Ok(AnyJson(note(&c, "prune")))
        }),
        Route::new(
            Method::POST,
            "/v1/things/{thing}",
            "",
            move |c: Called<Fake>, (), _: Json<CreateDomain>| async move { Ok(AnyJson(note(&c, "post"))) },
        ),
        Route::new(Method::POST, "/v1/things/{thing}/slow", "", move |c: Called<Fake>, (), ()| async move {
            let _dropped = Dropped(c.state.clone());
            c.state.slow.send_modify(|(begun, _)| *begun += 1);
            let _through = c.state.gate.acquire().await;
            Ok(AnyJson(note(&c, "slow")))
        }),
        Route::new(
            Method::PUT,
            "/v1/things/{thing}/raw",
            "",
            move |c: Called<Fake>, (), b: Raw| async move {
                let mut stream = b.0;
                let mut length = 0;
                while let Some(piece) = std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
                    length += piece?.len();
                }
                Ok(AnyJson(json!({"length": length, "was": note(&c, "raw")})))
            },
        ),
    ];
    let state = Arc::new(Fake::default());
    (Arc::new(Service::new(routes, state.clone()).patient_for(patience)), state)
}

const ROOT: Peer = Peer::Process { uid: 0, gid: 0, pid: Some(7) };

async fn ask(
    service: &Arc<Service<Fake>>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    peer: Peer,
) -> (u16, Value, String) {
    let mut request = Request::builder().header("host", "x").method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).expect("request");
    let response = service.clone().answer(request, peer).await;
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").map(|v| v.to_str().expect("text").to_owned());
    let body = response.into_body().collect().await.expect("body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null), kind.unwrap_or_default())
}

#[tokio::test]
async fn refusals_are_problems() {
    let (service, state) = fake();
    let large = vec![b' '; (1 << 20) + 1];
    for (method, path, body, status, says) in [
        ("GET", "/v1/nothing", b"".as_slice(), 404, "/v1/nothing"),
        ("GET", "/v1/things", b"", 404, "/v1/things"),
        ("GET", "/v1/things/", b"", 404, "/v1/things/"),
        ("GET", "/v1/things/a/b", b"", 404, "/v1/things/a/b"),
        ("DELETE", "/v1/things/a", b"", 405, "GET, POST does"),
        ("GET", "/v1/things/prune/raw", b"", 405, "PUT does"),
        ("GET", "/v1/things/%zz", b"", 400, "percent-encoded"),
        ("GET", "/v1/things/%ff", b"", 400, "percent-encoded"),
        ("GET", "/v1/things/a%00", b"", 400, "percent-encoded"),
        ("GET", "/v1/things/a?x=1", b"", 400, "\"x\" in the query"),
        ("POST", "/v1/things/a", b"{", 400, "EOF"),
        ("POST", "/v1/things/a", b"", 400, "image: is missing"),
        ("POST", "/v1/things/a", b"[]", 400, "no JSON object"),
        ("POST", "/v1/things/a", b"{\"image\":\"b\"} x", 400, "behind the JSON"),
        ("POST", "/v1/things/a", b"{\"image\":\"b\",\"colour\":1}", 400, "unknown field `colour`"),
        ("POST", "/v1/things/a", b"{\"resources\":{\"cpus\":\"two\"}}", 400, "resources.cpus: invalid type"),
        ("POST", "/v1/things/a", b"{\"image\":\"b\",\"name\":\"a/b\"}", 400, "name: "),
        ("POST", "/v1/things/a", &large, 413, "larger than"),
    ] {
        let (got, problem, kind) = ask(&service, method, path, &[], body, ROOT).await;
        assert_eq!(got, status, "{method} {path}: {problem}");
        assert_eq!(kind, "application/problem+json", "{method} {path}");
        assert_eq!(problem["status"], status, "{method} {path}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(says), "{method} {path}: {detail}");
    }
    assert_eq!(state.calls.lock().expect("lock").len(), 0, "a refused request reached the supervisor");
}

#[tokio::test]
async fn names_are_decoded_and_literals_win() {
    let (service, state) = fake();
    ask(&service, "GET", "/v1/things/a%2Fb%20c", &[], b"", ROOT).await;
    ask(&service, "POST", "/v1/things/prune", &[], b"", ROOT).await;
    let (status, body, _) = ask(&service, "PUT", "/v1/things/x/raw", &[], &[1; 5000], ROOT).await;
    assert_eq!((status, &body["length"]), (200, &json!(5000)));
    assert_eq!(*state.calls.lock().expect("lock"), ["get a/b c", "prune ", "raw x"]);
    let audited = state.audited.lock().expect("lock").clone();
    assert_eq!(
        audited,
        ["uid 0 gid 0 pid 7: POST /v1/things/prune: 200", "uid 0 gid 0 pid 7: PUT /v1/things/x/raw: 200"]
    );
}

#[tokio::test]
async fn a_key_is_carried_out_once() {
    let (service, state) = fake();
    let body = br#"{"image":"b"}"#;
    let key = [("idempotency-key", "k1")];
    let asked = |path: &'static str, body: &'static [u8]| {
        let service = service.clone();
        async move { ask(&service, "POST", path, &key, body, ROOT).await }
    };
    let (a, b) = tokio::join!(asked("/v1/things/a", body), asked("/v1/things/a", body));
    assert_eq!((a.0, &a.1), (200, &json!({"n": 1})));
    assert_eq!(a, b, "two at once");
    assert_eq!(asked("/v1/things/a", body).await, a, "once more");
    let (status, problem, _) = asked("/v1/things/b", body).await;
    assert_eq!((status, &problem["code"]), (422, &json!("idempotency_mismatch")));
    let other = Peer::Process { uid: 1, gid: 1, pid: None };
    let (status, body, _) = ask(&service, "POST", "/v1/things/a", &key, body, other).await;
    assert_eq!((status, body), (200, json!({"n": 2})), "another user's key is another key");
    assert_eq!(state.calls.lock().expect("lock").len(), 2);
    let (status, _, _) = ask(&service, "POST", "/v1/things/a", &[("idempotency-key", "")], b"", ROOT).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_client_that_goes_away_cancels() {
    for key in [None, Some(("idempotency-key", "k"))] {
        let (service, state) = fake_patient_for(Duration::from_millis(1));
        let mut slow = state.slow.subscribe();
        let client = tokio::spawn(async move {
            ask(&service, "POST", "/v1/things/a/slow", key.as_slice(), b"", ROOT).await
        });
        slow.wait_for(|(begun, _)| *begun == 1).await.expect("begun");
        client.abort();
        slow.wait_for(|(_, dropped)| *dropped == 1).await.expect("dropped");
        assert!(state.calls.lock().expect("lock").is_empty(), "{key:?}: carried out for nobody");
        assert!(state.kept.lock().expect("lock").is_empty(), "{key:?}: no answer is kept");
    }
}

#[tokio::test]
async fn a_client_that_comes_again_finds_its_request() {
    let (service, state) = fake();
    let key = [("idempotency-key", "k")];
    let mut slow = state.slow.subscribe();
    let asked = || {
        let service = service.clone();
        async move { ask(&service, "POST", "/v1/things/a/slow", &key, b"", ROOT).await }
    };
    let first = tokio::spawn(asked());
    slow.wait_for(|(begun, _)| *begun == 1).await.expect("begun");
    first.abort();
    let second = tokio::spawn(asked());
    state.gate.add_permits(1);
    assert_eq!(second.await.expect("answered").1, json!({"n": 1}));
    assert_eq!(*slow.borrow(), (1, 1), "begun once");
}

#[tokio::test]
async fn the_network_needs_a_token() {
    let (service, state) = fake();
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("tokens");
    let token = token::add(&path, "alice").expect("added");
    let peer = Peer::Network { from: "10.0.0.1:5".into(), tokens: Arc::new(Tokens::new(path)) };
    let bearer = format!("Bearer {token}");
    for (header, status) in [
        (None, 401),
        (Some("Bearer x"), 401),
        (Some(token.as_str()), 401),
        (Some("Basic eDp5"), 401),
        (Some(bearer.as_str()), 200),
    ] {
        let headers: Vec<_> = header.map(|h| ("authorization", h)).into_iter().collect();
        let (got, body, _) = ask(&service, "GET", "/v1/things/a", &headers, b"", peer.clone()).await;
        assert_eq!(got, status, "{header:?}: {body}");
    }
    // Not even which paths there are is told.
    let (status, _, _) = ask(&service, "GET", "/v1/nothing", &[], b"", peer).await;
    assert_eq!(status, 401);
    assert_eq!(state.calls.lock().expect("lock").len(), 1);
    assert!(state.audited.lock().expect("lock").iter().all(|l| l.ends_with("401")));
}

/// `GET /v1/a`: method and path of each route.
fn routes() -> BTreeSet<String> {
    table::routes().iter().map(|r| format!("{} {}", r.method, r.path)).collect()
}

#[test]
fn document_and_routes_agree() {
    let document = openapi::document(&table::routes());
    let mut documented = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            documented.insert(format!("{} {path}", method.to_uppercase()));
            let id = operation["operationId"].as_str().expect("id");
            assert!(ids.insert(id.to_owned()), "{id} twice");
            for name in path.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}')) {
                let parameters = operation["parameters"].as_array().expect("parameters");
                assert!(parameters.iter().any(|p| p["name"] == name && p["in"] == "path"), "{path}: {name}");
            }
        }
    }
    assert_eq!(documented, routes());
    // Every reference leads somewhere.
    let text = document.to_string();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().expect("name");
        assert!(document["components"]["schemas"][name].is_object(), "no schema {name}");
    }
}

/// What has to be given says so, and has no default that would be refused.
#[test]
fn what_must_be_given_is_required() {
    let document = openapi::document(&table::routes());
    let schemas = &document["components"]["schemas"];
    for (schema, field) in [("CreateDomain", "image"), ("CreateExec", "command"), ("PullImage", "reference")]
    {
        let required = schemas[schema]["required"].as_array().expect("required fields");
        assert!(required.iter().any(|name| name == field), "{schema}.{field}");
        assert!(schemas[schema]["properties"][field].get("default").is_none(), "{schema}.{field}");
    }
}

/// Names and sizes have their bounds in the document, and these are the ones that are checked.
#[test]
fn bounds_are_documented() {
    let document = openapi::document(&table::routes());
    let schemas = &document["components"]["schemas"];
    let of = |schema: &str, field: &str| schemas[schema]["properties"][field].clone();
    for (schema, field) in [
        ("CreateDomain", "name"),
        ("CreateDomain", "freeze_as"),
        ("Rename", "name"),
        ("FreezeDomain", "frozen"),
        ("CloneFrozen", "name"),
    ] {
        let pattern = of(schema, field)["pattern"].as_str().expect("a pattern").to_owned();
        assert_eq!(pattern, format!("^[A-Za-z0-9][A-Za-z0-9_.-]{{0,{}}}$", MAX_NAME - 1), "{schema}.{field}");
    }
    assert_eq!(of("CloneFrozen", "count")["maximum"], MAX_CLONES);
    assert_eq!(of("Resources", "memory_bytes")["minimum"], doppel_domain::UNBOUNDED);
    assert_eq!(of("Resources", "memory_target_bytes")["minimum"], doppel_domain::LEAST_MEMORY);
    assert_eq!(of("Resources", "cpus")["maximum"], doppel_spec::MOST_CPUS as u64);
    // Nothing that is counted is without a bound.
    for field in ["cpu_weight", "io_weight", "pids", "memory_target_bytes", "memory_reservation_bytes"] {
        assert!(of("Resources", field)["maximum"].is_number(), "{field}");
    }
    for (schema, field) in
        [("CreateDomain", "stop_signal"), ("CreateDomain", "hostname"), ("StopOptions", "signal")]
    {
        assert!(of(schema, field)["pattern"].is_string(), "{schema}.{field}");
    }
}

#[test]
fn the_table_of_the_docs_is_whole() {
    let text = include_str!("../../../../docs/api.md");
    let mut listed = BTreeSet::new();
    for line in text.lines().filter(|l| l.starts_with("| ")) {
        let cell = line.split('|').nth(1).expect("cell").trim();
        // `GET, PUT /v1/a/b, /c`: methods, a path, and others that take its last segment's place.
        let Some(at) = cell.find('/') else { continue };
        let methods: Vec<&str> = cell[..at].split([',', ' ']).filter(|m| !m.is_empty()).collect();
        let mut base = String::new();
        for path in cell[at..].split(", ") {
            let path = path.split('?').next().expect("path").trim();
            let full = match base.rsplit_once('/') {
                Some((front, _)) if !path.starts_with("/v1") => format!("{front}{path}"),
                _ => path.to_owned(),
            };
            listed.extend(methods.iter().map(|m| format!("{m} {full}")));
            base = full;
        }
    }
    let routes = routes();
    assert_eq!(listed, routes, "docs/api.md (left) and the routes (right)");
}

proptest! {
    /// Whatever comes as a body is read or refused, and what is read survives being written again.
    #[test]
    fn bodies_of_any_kind(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Json::<CreateDomain>::take(Taken::Whole(body.into()));
    }

    #[test]
    fn bodies_near_the_truth(
        field in "(image|name|command|env|resources|health|restart|labels|log|tty|kind|colour)",
        value in r#"(null|true|-1|1e400|"x"|"a/b"|\[\]|\["a"\]|\{\}|\{"a":"b"\}|\{"cpus":1e9\}|\{"on_failure":\{"max_retries":3\}\}|"para")"#,
    ) {
        let body = format!(r#"{{"image":"b","{field}":{value}}}"#);
        match Json::<CreateDomain>::take(Taken::Whole(body.clone().into())) {
            Ok(read) => {
                let again = serde_json::to_string(&read.0).expect("written");
                let twice = Json::<CreateDomain>::take(Taken::Whole(again.into())).map(|j| j.0);
                prop_assert_eq!(twice.ok(), Some(read.0), "{}", body);
            }
            Err(problem) => prop_assert_eq!(problem.status, 400, "{}", body),
        }
    }
}

#[test]
fn the_sdk_has_these_schemas() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python/interface.json");
    let known: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let schemas = &super::document()["components"]["schemas"];
    assert!(known == *schemas, "run `doppeld openapi | sdk/python/generate.py --interface`");
}
