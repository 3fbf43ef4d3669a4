//! The interface: every path of `docs/api.md`, and the method of the supervisor it is for.

use std::sync::Arc;
use std::time::Duration;

use doppel_api as api;
use doppel_api::validate;
use hyper::Method;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::meter::Meter;
use super::route::{
    AnyJson, Called, Either, Json, Lines, List, Octets, Options, Raw, Route, Tar, Text, With,
};
use crate::Supervisor;

/// What handlers work on.
pub(super) struct Site {
    pub supervisor: Arc<Supervisor>,
    pub meter: Meter,
    /// Method and path of each route, as the meter counts them.
    pub names: Vec<(String, &'static str)>,
    pub document: serde_json::Value,
    pub version: api::Version,
}

/// `GET /v1/ping`.
#[derive(Serialize, ToSchema)]
pub(super) struct Pong {
    /// Always true.
    ok: bool,
}

/// `POST /v1/domains`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[derive(Default)]
pub(super) struct CreateOptions {
    /// Start it too; if that fails it is not kept.
    start: bool,
}

/// `GET .../stats`.
#[derive(Deserialize, IntoParams, Default)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsOptions {
    /// Again every second, as lines, until the domain ends.
    stream: bool,
}

/// `GET /v1/operations/{id}`.
#[derive(Deserialize, IntoParams, Default)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitOptions {
    /// Answer when it has ended.
    wait: bool,
}

type Call = Called<Site>;

/// All routes.
pub(super) fn routes() -> Vec<Route<Site>> {
    let mut all = system();
    all.extend(domains());
    all.extend(debugging());
    all.extend(lifecycle());
    all.extend(streams());
    all.extend(execs());
    all.extend(archives());
    all.extend(files());
    all.extend(frozen());
    all.extend(images());
    all.extend(volumes());
    all.extend(disks());
    all.extend(networks());
    all
}

fn system() -> Vec<Route<Site>> {
    vec![
        Route::new(Method::GET, "/v1/ping", "Whether the supervisor is alive", |_: Call, (), ()| async {
            Ok(Json(Pong { ok: true }))
        }),
        Route::new(Method::GET, "/v1/version", "Versions", |c: Call, (), ()| async move {
            Ok(Json(c.state.version.clone()))
        }),
        Route::new(Method::GET, "/v1/info", "Capacity and what is reserved", |c: Call, (), ()| async move {
            c.state.supervisor.info().await.map(Json)
        }),
        Route::new(Method::GET, "/v1/services", "List service domains", |c: Call, (), ()| async move {
            c.state.supervisor.services().await.map(List)
        }),
        Route::new(
            Method::POST,
            "/v1/services/upgrade",
            "Replace service domains by those of the installed program",
            |c: Call, (), ()| async move { c.state.supervisor.upgrade_services().await.map(List) },
        ),
        Route::new(Method::GET, "/v1/upgrade", "What an upgrade would do", |c: Call, (), ()| async move {
            c.state.supervisor.upgrade_check().await.map(Json)
        }),
        Route::new(
            Method::POST,
            "/v1/upgrade",
            "Replace supervisor, keepers and service domains by those of the installed program",
            |c: Call, (), ()| async move { c.state.supervisor.upgrade().await.map(With::<202, _>) },
        ),
        Route::new(
            Method::GET,
            "/v1/openapi.json",
            "This interface as OpenAPI 3.1",
            |c: Call, (), ()| async move { Ok(AnyJson(c.state.document.clone())) },
        ),
        Route::new(
            Method::GET,
            "/metrics",
            "Metrics in Prometheus' text format",
            |c: Call, (), ()| async move {
                let mut text = match c.state.supervisor.metrics().await {
                    Ok(text) => text,
                    Err(p) if p.code == api::Code::Unsupported => String::new(),
                    Err(p) => return Err(p),
                };
                text.push_str(&c.state.meter.text(&c.state.names));
                Ok(Text(text))
            },
        ),
        Route::new(
            Method::GET,
            "/v1/events",
            "What happens",
            |c: Call, q: Options<api::EventOptions>, ()| async move {
                c.state.supervisor.events(q.0).await.map(Lines)
            },
        ),
        Route::new(Method::GET, "/v1/operations", "List long operations", |c: Call, (), ()| async move {
            c.state.supervisor.operation_list().await.map(List)
        }),
        Route::new(
            Method::GET,
            "/v1/operations/{id}",
            "How a long operation stands",
            |c: Call, q: Options<WaitOptions>, ()| async move {
                c.state.supervisor.operation(&c.name, q.0.wait).await.map(Json)
            },
        ),
        Route::new(
            Method::DELETE,
            "/v1/operations/{id}",
            "Cancel a long operation",
            |c: Call, (), ()| async move {
                c.state.supervisor.operation_cancel(&c.name).await.map(With::<202, _>)
            },
        ),
    ]
}

fn domains() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/domains",
            "List domains",
            |c: Call, q: Options<api::ListOptions>, ()| async move {
                c.state.supervisor.list(q.0).await.map(List)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains",
            "Make a domain",
            |c: Call, q: Options<CreateOptions>, b: Json<api::CreateDomain>| async move {
                c.state.supervisor.create(b.0, q.0.start).await.map(With::<201, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/run",
            "Make and start a domain, and give what it prints",
            |c: Call, (), b: Json<api::CreateDomain>| async move { c.state.supervisor.run(b.0).await.map(Lines) },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/prune",
            "Remove domains that have ended",
            |c: Call, (), ()| async move { c.state.supervisor.prune().await.map(Json) },
        ),
        Route::new(Method::GET, "/v1/domains/{domain}", "Inspect a domain", |c: Call, (), ()| async move {
            c.state.supervisor.inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::PATCH,
            "/v1/domains/{domain}",
            "Change limits of a domain",
            |c: Call, (), b: Json<api::UpdateDomain>| async move {
                c.state.supervisor.update(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::DELETE,
            "/v1/domains/{domain}",
            "Remove a domain",
            |c: Call, q: Options<api::RemoveOptions>, ()| async move {
                c.state.supervisor.remove(&c.name, q.0).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/rename",
            "Give a new name",
            |c: Call, (), b: Json<api::Rename>| async move {
                c.state.supervisor.rename(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/wait",
            "Wait for the end",
            |c: Call, q: Options<api::WaitOptions>, ()| async move {
                c.state.supervisor.wait_until(&c.name, q.0).await.map(Json)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/top",
            "Processes of a domain",
            |c: Call, (), ()| async move { c.state.supervisor.top(&c.name).await.map(List) },
        ),
    ]
}

fn debugging() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/stacks",
            "Threads of a domain, and where they wait",
            |c: Call, (), ()| async move { c.state.supervisor.stacks(&c.name).await.map(List) },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/debug/events",
            "Events of a domain's guest kernel",
            |c: Call, q: Options<api::DebugEventOptions>, ()| async move {
                c.state.supervisor.debug_events(&c.name, q.0).await.map(Lines)
            },
        ),
        Route::new(
            Method::PUT,
            "/v1/domains/{domain}/debug/events",
            "Say which events a domain's guest kernel keeps",
            |c: Call, (), b: Json<api::SetDebugEvents>| async move {
                c.state.supervisor.set_debug_events(&c.name, b.0).await
            },
        ),
    ]
}

fn lifecycle() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/start",
            "Start a domain",
            |c: Call, (), ()| async move { c.state.supervisor.start(&c.name).await.map(Json) },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/stop",
            "Ask a domain to stop, then kill it",
            |c: Call, (), b: Json<api::StopOptions>| async move {
                c.state.supervisor.stop(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/restart",
            "Stop and start a domain",
            |c: Call, (), b: Json<api::StopOptions>| async move {
                c.state.supervisor.restart(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/kill",
            "Send a signal",
            |c: Call, (), b: Json<api::KillOptions>| async move { c.state.supervisor.kill(&c.name, b.0).await },
        ),
        Route::new(Method::POST, "/v1/domains/{domain}/pause", "Stand still", |c: Call, (), ()| async move {
            c.state.supervisor.pause(&c.name).await.map(Json)
        }),
        Route::new(Method::POST, "/v1/domains/{domain}/unpause", "Go on", |c: Call, (), ()| async move {
            c.state.supervisor.unpause(&c.name).await.map(Json)
        }),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/freeze",
            "Make a frozen image",
            |c: Call, (), b: Json<api::FreezeDomain>| async move {
                c.state.supervisor.freeze(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/hibernate",
            "Memory to disk",
            |c: Call, (), ()| async move { c.state.supervisor.hibernate(&c.name).await.map(Json) },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/wake",
            "Go on with a hibernated domain",
            |c: Call, (), ()| async move { c.state.supervisor.wake(&c.name).await.map(Json) },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/rollback",
            "Go back to a frozen image",
            |c: Call, (), b: Json<api::RollBack>| async move {
                c.state.supervisor.roll_back(&c.name, b.0).await.map(Json)
            },
        ),
    ]
}

fn streams() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/logs",
            "What a domain printed",
            |c: Call, q: Options<api::LogOptions>, ()| async move {
                c.state.supervisor.logs(&c.name, q.0).await.map(Lines)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/attach",
            "What a domain prints",
            |c: Call, q: Options<api::AttachOptions>, ()| async move {
                c.state.supervisor.attach(&c.name, q.0).await.map(Lines)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/input",
            "Standard input of a domain",
            |c: Call, q: Options<api::InputOptions>, b: Raw| async move {
                c.state.supervisor.input(&c.name, b.0, q.0).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/resize",
            "Size of a domain's terminal",
            |c: Call, (), b: Json<api::ResizeTerminal>| async move {
                c.state.supervisor.resize(&c.name, b.0).await
            },
        ),
        Route::new(
            Method::GET,
            "/v1/network/flows",
            "Connections and datagram flows of all domains",
            |c: Call, q: Options<api::FlowOptions>, ()| async move {
                c.state.supervisor.flows(None, q.0).await.map(Json)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/flows",
            "Connections and datagram flows of a domain",
            |c: Call, q: Options<api::FlowOptions>, ()| async move {
                c.state.supervisor.flows(Some(&c.name), q.0).await.map(Json)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/stats",
            "What a domain uses",
            |c: Call, q: Options<StatsOptions>, ()| async move {
                let first = c.state.supervisor.stats(&c.name).await?;
                if !q.0.stream {
                    return Ok(Either::One(Json(first)));
                }
                Ok(Either::Other(Lines(every_second(c, first))))
            },
        ),
    ]
}

/// Statistics again and again, until the domain has ended or nobody reads them.
fn every_second(c: Call, first: api::DomainStats) -> crate::LineStream<api::DomainStats> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        let mut stats = Ok(first);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        clock.tick().await;
        while let Ok(next) = stats {
            if sender.send(next).await.is_err() {
                return;
            }
            tokio::select! {
                _ = clock.tick() => {}
                () = sender.closed() => return,
            }
            stats = match c.state.supervisor.inspect(&c.name).await {
                Ok(domain) if domain.state == api::DomainState::Running => {
                    c.state.supervisor.stats(&c.name).await
                }
                Ok(domain) if domain.state == api::DomainState::Paused => {
                    c.state.supervisor.stats(&c.name).await
                }
                _ => return,
            };
        }
    });
    Box::pin(Received(receiver))
}

struct Received<T>(tokio::sync::mpsc::Receiver<T>);

impl<T> futures_core::Stream for Received<T> {
    type Item = T;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

fn execs() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/exec",
            "Start a program in a domain",
            |c: Call, (), b: Json<api::CreateExec>| async move {
                c.state.supervisor.exec(&c.name, b.0).await.map(With::<201, _>)
            },
        ),
        Route::new(Method::GET, "/v1/execs/{exec}", "How an exec stands", |c: Call, (), ()| async move {
            c.state.supervisor.exec_inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::GET,
            "/v1/execs/{exec}/output",
            "What an exec prints, from its start",
            |c: Call, (), ()| async move { c.state.supervisor.exec_output(&c.name).await.map(Lines) },
        ),
        Route::new(
            Method::POST,
            "/v1/execs/{exec}/input",
            "Standard input of an exec",
            |c: Call, q: Options<api::InputOptions>, b: Raw| async move {
                c.state.supervisor.exec_input(&c.name, b.0, q.0).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/execs/{exec}/resize",
            "Size of an exec's terminal",
            |c: Call, (), b: Json<api::ResizeTerminal>| async move {
                c.state.supervisor.exec_resize(&c.name, b.0).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/execs/{exec}/kill",
            "Send a signal to an exec",
            |c: Call, (), b: Json<api::KillOptions>| async move {
                c.state.supervisor.exec_kill(&c.name, b.0).await
            },
        ),
    ]
}

/// The path of the query, checked.
fn path(q: Options<api::PathQuery>) -> Result<String, api::Problem> {
    validate::path("path", &q.0.path)?;
    Ok(q.0.path)
}

fn archives() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/archive",
            "A tree as tar",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.archive_out(&c.name, &path(q)?).await.map(Tar)
            },
        ),
        Route::new(
            Method::PUT,
            "/v1/domains/{domain}/archive",
            "A tar into a directory",
            |c: Call, q: Options<api::PathQuery>, b: Raw| async move {
                c.state.supervisor.archive_in(&c.name, &path(q)?, b.0).await
            },
        ),
    ]
}

fn files() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/files",
            "Read a file",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.file_read(&c.name, &path(q)?).await.map(Octets)
            },
        ),
        Route::new(
            Method::PUT,
            "/v1/domains/{domain}/files",
            "Write a file",
            |c: Call, q: Options<api::WriteFile>, b: Raw| async move {
                validate::path("path", &q.0.path)?;
                c.state.supervisor.file_write(&c.name, q.0, b.0).await
            },
        ),
        Route::new(
            Method::DELETE,
            "/v1/domains/{domain}/files",
            "Remove a file",
            |c: Call, q: Options<api::RemoveFile>, ()| async move {
                validate::path("path", &q.0.path)?;
                c.state.supervisor.file_remove(&c.name, q.0).await
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/files/info",
            "What a file is",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.file_info(&c.name, &path(q)?).await.map(Json)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/files/list",
            "Files of a directory",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.file_list(&c.name, &path(q)?).await.map(List)
            },
        ),
        Route::new(
            Method::GET,
            "/v1/domains/{domain}/files/watch",
            "Changes in a directory",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.file_watch(&c.name, &path(q)?).await.map(Lines)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/files/directory",
            "Make a directory and those above it",
            |c: Call, q: Options<api::PathQuery>, ()| async move {
                c.state.supervisor.make_directory(&c.name, &path(q)?).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/domains/{domain}/files/rename",
            "Give a file another name",
            |c: Call, q: Options<api::RenameFile>, ()| async move {
                validate::path("path", &q.0.path)?;
                validate::path("to", &q.0.to)?;
                c.state.supervisor.file_rename(&c.name, q.0).await
            },
        ),
    ]
}

fn frozen() -> Vec<Route<Site>> {
    vec![
        Route::new(
            Method::POST,
            "/v1/frozen/prune",
            "Remove frozen images that no domain needs",
            |c: Call, o: Options<api::FrozenPruneOptions>, ()| async move {
                c.state.supervisor.frozen_prune(o.0).await.map(Json)
            },
        ),
        Route::new(Method::GET, "/v1/frozen", "List frozen images", |c: Call, (), ()| async move {
            c.state.supervisor.frozen_list().await.map(List)
        }),
        Route::new(
            Method::GET,
            "/v1/frozen/{name}",
            "Inspect a frozen image",
            |c: Call, (), ()| async move { c.state.supervisor.frozen_inspect(&c.name).await.map(Json) },
        ),
        Route::new(
            Method::DELETE,
            "/v1/frozen/{name}",
            "Remove a frozen image",
            |c: Call, (), ()| async move { c.state.supervisor.frozen_remove(&c.name).await },
        ),
        Route::new(
            Method::POST,
            "/v1/frozen/{name}/flatten",
            "Make a frozen image whole",
            |c: Call, (), ()| async move { c.state.supervisor.frozen_flatten(&c.name).await.map(Json) },
        ),
        Route::new(
            Method::POST,
            "/v1/frozen/{name}/clone",
            "Start clones of a frozen image",
            |c: Call, (), b: Json<api::CloneFrozen>| async move {
                c.state.supervisor.clone_frozen(&c.name, b.0).await.map(With::<201, _>)
            },
        ),
    ]
}

fn volumes() -> Vec<Route<Site>> {
    vec![
        Route::new(Method::GET, "/v1/volumes", "List volumes", |c: Call, (), ()| async move {
            c.state.supervisor.volume_list().await.map(List)
        }),
        Route::new(
            Method::POST,
            "/v1/volumes",
            "Make a volume",
            |c: Call, (), b: Json<api::CreateVolume>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.volume_create(b.0).await.map(With::<201, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/volumes/prune",
            "Remove volumes that no domain has",
            |c: Call, q: Options<api::VolumePruneOptions>, ()| async move {
                c.state.supervisor.volume_prune(q.0).await.map(Json)
            },
        ),
        Route::new(Method::GET, "/v1/volumes/{name}", "Inspect a volume", |c: Call, (), ()| async move {
            c.state.supervisor.volume_inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::DELETE,
            "/v1/volumes/{name}",
            "Remove a volume with its files",
            |c: Call, q: Options<api::RemoveVolume>, ()| async move {
                c.state.supervisor.volume_remove(&c.name, q.0).await
            },
        ),
    ]
}

fn networks() -> Vec<Route<Site>> {
    vec![
        Route::new(Method::GET, "/v1/networks", "List networks", |c: Call, (), ()| async move {
            c.state.supervisor.network_list().await.map(List)
        }),
        Route::new(
            Method::POST,
            "/v1/networks",
            "Make a network",
            |c: Call, (), b: Json<api::CreateNetwork>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.network_create(b.0).await.map(With::<201, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/networks/prune",
            "Remove networks that no domain is on",
            |c: Call, q: Options<api::NetworkPruneOptions>, ()| async move {
                c.state.supervisor.network_prune(q.0).await.map(Json)
            },
        ),
        Route::new(Method::GET, "/v1/networks/{name}", "Inspect a network", |c: Call, (), ()| async move {
            c.state.supervisor.network_inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::DELETE,
            "/v1/networks/{name}",
            "Remove a network",
            |c: Call, q: Options<api::RemoveNetwork>, ()| async move {
                c.state.supervisor.network_remove(&c.name, q.0).await
            },
        ),
        Route::new(
            Method::POST,
            "/v1/networks/{name}/connect",
            "Put a domain on a network",
            |c: Call, (), b: Json<api::ConnectNetwork>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.network_connect(&c.name, b.0).await.map(Json)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/networks/{name}/disconnect",
            "Take a domain off a network",
            |c: Call, (), b: Json<api::DisconnectNetwork>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.network_disconnect(&c.name, b.0).await.map(Json)
            },
        ),
    ]
}

fn disks() -> Vec<Route<Site>> {
    vec![
        Route::new(Method::GET, "/v1/disks", "List disks", |c: Call, (), ()| async move {
            c.state.supervisor.disk_list().await.map(List)
        }),
        Route::new(
            Method::POST,
            "/v1/disks",
            "Make a disk",
            |c: Call, (), b: Json<api::CreateDisk>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.disk_create(b.0).await.map(With::<201, _>)
            },
        ),
        Route::new(Method::GET, "/v1/disks/{name}", "Inspect a disk", |c: Call, (), ()| async move {
            c.state.supervisor.disk_inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::PATCH,
            "/v1/disks/{name}",
            "Give a disk another size",
            |c: Call, (), b: Json<api::ResizeDisk>| async move {
                api::Validate::validate(&b.0)?;
                c.state.supervisor.disk_resize(&c.name, b.0.size_bytes).await.map(Json)
            },
        ),
        Route::new(
            Method::DELETE,
            "/v1/disks/{name}",
            "Remove a disk with what is on it",
            |c: Call, q: Options<api::RemoveDisk>, ()| async move {
                c.state.supervisor.disk_remove(&c.name, q.0).await
            },
        ),
    ]
}

fn images() -> Vec<Route<Site>> {
    vec![
        Route::new(Method::GET, "/v1/images", "List root images", |c: Call, (), ()| async move {
            c.state.supervisor.image_list().await.map(List)
        }),
        Route::new(Method::GET, "/v1/images/{name}", "Inspect a root image", |c: Call, (), ()| async move {
            c.state.supervisor.image_inspect(&c.name).await.map(Json)
        }),
        Route::new(
            Method::DELETE,
            "/v1/images/{name}",
            "Remove a root image",
            |c: Call, (), ()| async move { c.state.supervisor.image_remove(&c.name).await },
        ),
        Route::new(
            Method::POST,
            "/v1/images/pull",
            "Get an image from a registry",
            |c: Call, (), b: Json<api::PullImage>| async move {
                c.state.supervisor.image_pull(b.0).await.map(With::<202, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/images/push",
            "Bring an image to a registry",
            |c: Call, (), b: Json<api::PushImage>| async move {
                c.state.supervisor.image_push(b.0).await.map(With::<202, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/images/import",
            "Make an image from a tar, an OCI layout or what `docker save` writes",
            |c: Call, q: Options<api::ImportImage>, b: Raw| async move {
                doppel_api::Validate::validate(&q.0)?;
                c.state.supervisor.image_import(q.0, b.0).await.map(With::<201, _>)
            },
        ),
        Route::new(
            Method::POST,
            "/v1/images/prune",
            "Remove layers nobody uses",
            |c: Call, (), ()| async move { c.state.supervisor.image_prune().await.map(Json) },
        ),
    ]
}
