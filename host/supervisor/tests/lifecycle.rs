//! The supervisor as a library, with a real keeper and real domains on the image `busybox` of the host's store.
//!
//! They need root, that image and a build with a guest kernel (`--release` or `DOPPEL_EMBED_KERNEL=1`: a debug build, as
//! `make test` has it, leaves it out); otherwise they say what is missing and pass.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use base64::Engine;
use doppel_api::{self as api, Code, DomainState, RestartPolicy};
use doppel_supervisor::{Config, LineStream, Supervisor};
use futures_core::Stream;

/// A store and a runtime directory of its own.
struct TestHost {
    dir: tempfile::TempDir,
}

impl TestHost {
    fn new() -> Option<Self> {
        let image = doppel_image::Store::from_env().open("busybox").map(|i| i.path);
        let root =
            std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        let missing = match (image, root, doppel_domain::Kernel::embedded()) {
            (Ok(_), true, Ok(_)) => return Some(Self { dir: tempfile::tempdir().expect("a directory") }),
            (_, false, _) => "root's rights".to_owned(),
            (Err(error), ..) => format!("the image busybox: {error}"),
            (.., Err(error)) => format!("a guest kernel: {error}"),
        };
        eprintln!("left out: there is no {missing}");
        None
    }

    fn config(&self) -> Config {
        Config {
            store: self.dir.path().join("store"),
            runtime: self.dir.path().join("run"),
            spare_seconds: 1,
            network_shards: 1,
            keeper_domains: 256,
            keeper_idle: Duration::from_secs(60),
            gatekeeper: doppel_supervisor::GatekeeperRules::default(),
            binds: vec!["/".into()],
            defaults: doppel_domain::Defaults::default(),
            network: doppel_net::Quotas::default(),
            program: Some(PathBuf::from(env!("CARGO_BIN_EXE_doppeld"))),
            arguments: None,
            replacement: None,
        }
    }

    async fn open(&self) -> Arc<Supervisor> {
        Supervisor::open(self.config()).await.expect("opens")
    }

    /// Another one, after one whose tasks end and whose state is closed a moment after it was dropped.
    async fn open_again(&self) -> Arc<Supervisor> {
        let mut again = None;
        eventually("the state is free", async || {
            again = Supervisor::open(self.config()).await.ok();
            again.is_some()
        })
        .await;
        again.expect("checked")
    }
}

fn image() -> String {
    let image = doppel_image::Store::from_env().open("busybox").expect("the image busybox");
    image.path.to_string_lossy().into_owned()
}

fn sh(script: &str) -> api::CreateDomain {
    api::CreateDomain {
        image: image(),
        command: ["sh", "-c", script].map(Into::into).to_vec(),
        ..Default::default()
    }
}

async fn next<T>(stream: &mut LineStream<T>) -> Option<T> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

async fn all<T>(mut stream: LineStream<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(item) = next(&mut stream).await {
        all.push(item);
    }
    all
}

fn text(outputs: &[api::Output]) -> String {
    let decode = |data: &String| base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
    let bytes = outputs.iter().flat_map(|o| match o {
        api::Output::Stdout { data, .. } | api::Output::Stderr { data, .. } => decode(data),
        _ => Vec::new(),
    });
    String::from_utf8(bytes.collect()).expect("text")
}

async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn run(test: impl AsyncFnOnce(&TestHost)) {
    let Some(host) = TestHost::new() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test(&host));
    drop(runtime);
    // A keeper without domains ends by itself; waiting for it here would take seconds.
    stop_keeper(&host.config().runtime);
}

/// Waits until its console has had something: its script says when it is ready.
async fn ready(sup: &Supervisor, name: &str) {
    eventually("it is ready", async || sup.stats(name).await.unwrap().console_bytes > 0).await;
}

/// Pid of the keeper of this runtime directory.
fn keeper(runtime: &Path) -> Option<i32> {
    let wanted = runtime.to_string_lossy().into_owned();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("\0keep\0") && line.contains(&wanted)).then_some(pid)
    })
}

fn stop_keeper(runtime: &Path) {
    if let Some(pid) = keeper(runtime).and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the keeper is killed");
    }
    // Its domains do not end with it.
    for path in std::fs::read_dir(runtime.join("kept")).into_iter().flatten().flatten() {
        let record = std::fs::read(path.path()).ok().and_then(|r| serde_json::from_slice(&r).ok());
        let pid = record.as_ref().and_then(|r: &serde_json::Value| r["birth"]["process"]["pid"].as_i64());
        if let Some(pid) = pid.and_then(|p| rustix::process::Pid::from_raw(p.try_into().ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn a_domain_from_birth_to_removal() {
    run(async |host| {
        let sup = host.open().await;
        let created = sup.create(sh("echo out; echo err >&2; exit 3"), false).await.unwrap();
        let id = created.domain.id.clone();
        assert_eq!(created.domain.state, DomainState::Created);
        assert!(sup.list(api::ListOptions::default()).await.unwrap().is_empty());
        let started = sup.start(&created.domain.name).await.unwrap();
        assert!(started.started_at.is_some());
        let exit = sup.wait(&id[..8]).await.unwrap().exit;
        assert_eq!((exit.exit_code, exit.reason), (3, None));
        let logs = all(sup.logs(&id, api::LogOptions::default()).await.unwrap()).await;
        let mut lines: Vec<String> = text(&logs).lines().map(Into::into).collect();
        lines.sort();
        assert_eq!(lines, ["err", "out"]);
        let domain = sup.inspect(&id).await.unwrap();
        assert_eq!(domain.state, DomainState::Exited);
        let usage = domain.usage.unwrap();
        assert_eq!(usage.console_bytes, 8);
        assert!(usage.cpu_seconds > 0.0 && usage.memory.peak_bytes > 0, "{usage:?}");
        let options = api::ListOptions { all: true, ..Default::default() };
        assert_eq!(sup.list(options.clone()).await.unwrap().len(), 1);
        // Again.
        sup.start(&id).await.unwrap();
        assert_eq!(sup.wait(&id).await.unwrap().exit.exit_code, 3);
        sup.remove(&id, api::RemoveOptions::default()).await.unwrap();
        assert!(sup.list(options).await.unwrap().is_empty());
        assert_eq!(sup.inspect(&id).await.unwrap_err().code, Code::DomainNotFound);
        let left = std::fs::read_dir(host.config().store.join("domains")).unwrap().count();
        assert_eq!(left, 0, "directories left");
    });
}

#[test]
fn input_attach_stop_kill() {
    run(async |host| {
        let sup = host.open().await;
        let wanted = api::CreateDomain { stdin: true, name: Some("cat".into()), ..sh("cat; echo done") };
        sup.create(wanted.clone(), false).await.unwrap();
        assert_eq!(sup.create(wanted, false).await.unwrap_err().code, Code::NameInUse);
        let attached = sup.attach("cat", api::AttachOptions::default()).await.unwrap();
        sup.start("cat").await.unwrap();
        assert_eq!(sup.start("cat").await.unwrap_err().code, Code::WrongState);
        let big = "0123456789abcdef".repeat(20_000);
        let bytes = Ok(bytes::Bytes::from(big.clone()));
        sup.input("cat", once(bytes), api::InputOptions { close: true }).await.unwrap();
        let outputs = all(attached).await;
        assert!(matches!(outputs.last(), Some(api::Output::Exit { exit_code: 0, reason: None })));
        assert!(text(&outputs) == big + "done\n");
        // Stopping: by its signal, then by force.
        sup.create(
            api::CreateDomain {
                name: Some("kind".into()),
                ..sh("trap 'exit 7' TERM; echo ready; while :; do sleep 1; done")
            },
            false,
        )
        .await
        .unwrap();
        sup.start("kind").await.unwrap();
        ready(&sup, "kind").await;
        let patient = api::StopOptions { timeout_seconds: Some(60), ..Default::default() };
        let stopped = sup.stop("kind", patient).await.unwrap();
        assert_eq!((stopped.state, stopped.exit.unwrap().exit_code), (DomainState::Exited, 7));
        sup.create(
            api::CreateDomain {
                name: Some("deaf".into()),
                ..sh("trap '' TERM; echo ready; while :; do sleep 1; done")
            },
            false,
        )
        .await
        .unwrap();
        sup.start("deaf").await.unwrap();
        ready(&sup, "deaf").await;
        assert_eq!(
            sup.remove("deaf", api::RemoveOptions::default()).await.unwrap_err().code,
            Code::WrongState
        );
        let how = api::StopOptions { timeout_seconds: Some(1), ..Default::default() };
        let stopped = sup.stop("deaf", how).await.unwrap();
        assert_eq!(stopped.state, DomainState::Exited);
        assert_eq!(stopped.exit.unwrap().exit_code, 137);
        // Pause.
        sup.create(
            api::CreateDomain { name: Some("p".into()), ..sh("while :; do echo x; sleep 0.01; done") },
            false,
        )
        .await
        .unwrap();
        sup.start("p").await.unwrap();
        assert_eq!(sup.pause("p").await.unwrap().state, DomainState::Paused);
        // What it had printed before may arrive yet.
        let printed = async || sup.stats("p").await.unwrap().console_bytes;
        eventually("it prints nothing more", async || {
            let before = printed().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            printed().await == before
        })
        .await;
        let before = printed().await;
        assert_eq!(sup.unpause("p").await.unwrap().state, DomainState::Running);
        eventually("it goes on", async || sup.stats("p").await.unwrap().console_bytes > before).await;
        sup.pause("p").await.unwrap();
        sup.remove("p", api::RemoveOptions { force: true, volumes: true }).await.unwrap();
        let removed = sup.prune().await.unwrap().removed;
        assert_eq!(removed.len(), 3);
    });
}

fn once(item: Result<bytes::Bytes, api::Problem>) -> doppel_supervisor::ByteStream {
    struct Once(Option<Result<bytes::Bytes, api::Problem>>);
    impl futures_core::Stream for Once {
        type Item = Result<bytes::Bytes, api::Problem>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.take())
        }
    }
    Box::pin(Once(Some(item)))
}

#[test]
fn restart_policies() {
    run(async |host| {
        let sup = host.open().await;
        let named = |name: &str, script: &str, restart| api::CreateDomain {
            name: Some(name.into()),
            restart,
            ..sh(script)
        };
        let failing = named("f", "exit 1", RestartPolicy::OnFailure { max_retries: 2 });
        sup.create(failing, false).await.unwrap();
        sup.start("f").await.unwrap();
        eventually("it gives up", async || {
            let d = sup.inspect("f").await.unwrap();
            d.state == DomainState::Exited && d.restarts == 2
        })
        .await;
        sup.create(named("a", "sleep 0.05", RestartPolicy::Always), false).await.unwrap();
        sup.start("a").await.unwrap();
        eventually("it comes back", async || sup.inspect("a").await.unwrap().restarts >= 2).await;
        let stopped =
            sup.stop("a", api::StopOptions { timeout_seconds: Some(0), ..Default::default() }).await.unwrap();
        assert_eq!(stopped.state, DomainState::Exited);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(sup.inspect("a").await.unwrap().state, DomainState::Exited);
        // One that goes when it ends, and one whose time is limited.
        let gone = api::CreateDomain { auto_remove: true, ..named("g", "exit 5", RestartPolicy::No) };
        sup.create(gone, false).await.unwrap();
        let (ended, started) = tokio::join!(sup.wait("g"), sup.start("g"));
        assert!(started.is_ok());
        assert_eq!(ended.unwrap().exit.exit_code, 5);
        eventually("it is removed", async || sup.inspect("g").await.is_err()).await;
        let short = api::CreateDomain {
            timeout_seconds: Some(1),
            stop_timeout_seconds: Some(1),
            ..named("t", "exec sleep 100", RestartPolicy::Always)
        };
        sup.create(short, false).await.unwrap();
        sup.start("t").await.unwrap();
        // The first process ignores SIGTERM, as it does not handle it.
        assert_eq!(sup.wait("t").await.unwrap().exit.exit_code, 137);
    });
}

#[test]
fn reservations_are_refused_with_the_numbers() {
    run(async |host| {
        let sup = host.open().await;
        let info = sup.info().await.unwrap();
        let with = |cpus: f64, memory: u64| api::CreateDomain {
            resources: api::Resources {
                cpu_reservation: Some(cpus),
                memory_reservation_bytes: Some(memory),
                ..Default::default()
            },
            ..sh("true")
        };
        let first = sup.create(with(f64::from(info.cpus) - 0.5, info.memory_bytes / 2), false).await.unwrap();
        let refused = sup.create(with(1.0, 0), false).await.unwrap_err();
        assert_eq!(refused.code, Code::Capacity);
        assert!(refused.detail.contains("0.5 are left"), "{}", refused.detail);
        assert_eq!(sup.create(with(0.1, info.memory_bytes), false).await.unwrap_err().code, Code::Capacity);
        sup.remove(&first.domain.id, api::RemoveOptions::default()).await.unwrap();
        sup.create(with(1.0, 1 << 20), false).await.unwrap();
    });
}

#[test]
fn a_new_supervisor_adopts_and_a_dead_keeper_is_reported() {
    run(async |host| {
        let sup = host.open().await;
        for i in 0..20 {
            let wanted =
                api::CreateDomain { name: Some(format!("d{i}")), ..sh("echo hello; exec sleep 1000") };
            sup.create(wanted, false).await.unwrap();
            sup.start(&format!("d{i}")).await.unwrap();
        }
        sup.create(api::CreateDomain { name: Some("short".into()), ..sh("sleep 0.5; exit 9") }, false)
            .await
            .unwrap();
        let short = sup.start("short").await.unwrap().pid;
        let pids: Vec<_> =
            sup.list(api::ListOptions::default()).await.unwrap().iter().map(|d| d.pid).collect();
        drop(sup);
        let lives = |pid: i32| Path::new(&format!("/proc/{pid}")).exists();
        eventually("the short one ends meanwhile", async || !short.is_some_and(lives)).await;
        let sup = host.open_again().await;
        let exit = sup.wait("short").await.unwrap().exit;
        assert_eq!((exit.exit_code, exit.reason), (9, None));
        let found = sup.list(api::ListOptions::default()).await.unwrap();
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|d| d.state == DomainState::Running && pids.contains(&d.pid)));
        sup.kill("d0", api::KillOptions::default()).await.unwrap();
        assert_eq!(sup.wait("d0").await.unwrap().exit.exit_code, 137);
        stop_keeper(&host.config().runtime);
        let lost = sup.wait("d1").await.unwrap().exit;
        assert!(lost.reason.unwrap().contains("keeper"));
        for i in 1..20 {
            let name = format!("d{i}");
            sup.wait(&name).await.unwrap();
            assert_eq!(sup.inspect(&name).await.unwrap().state, DomainState::Dead);
        }
        sup.start("d1").await.unwrap();
        assert_eq!(sup.inspect("d1").await.unwrap().state, DomainState::Running);
        sup.remove("d1", api::RemoveOptions { force: true, volumes: true }).await.unwrap();
    });
}

#[test]
fn freeze_clone_hibernate_wake() {
    run(async |host| {
        let sup = host.open().await;
        sup.create(api::CreateDomain { name: Some("w".into()), ..sh("echo ready; exec sleep 1000") }, false)
            .await
            .unwrap();
        sup.start("w").await.unwrap();
        ready(&sup, "w").await;
        let how = api::FreezeDomain {
            frozen: "warm".into(),
            stop: false,
            in_memory: false,
            whole: false,
            temporary: false,
        };
        let report = sup.freeze("w", how.clone()).await.unwrap();
        assert!(report.bytes > 0);
        assert_eq!(sup.freeze("w", how).await.unwrap_err().code, Code::NameInUse);
        assert_eq!(sup.frozen_list().await.unwrap().len(), 1);
        let how = api::CloneFrozen {
            count: Some(5),
            name: Some("c".into()),
            command: ["sh", "-c", "echo hello from $HOSTNAME"].map(Into::into).to_vec(),
            ..Default::default()
        };
        let clones = sup.clone_frozen("warm", how).await.unwrap();
        assert_eq!(clones.results.len(), 5);
        for (i, result) in clones.results.iter().enumerate() {
            let api::CloneResult::Domain(domain) = result else { panic!("{result:?}") };
            assert_eq!(domain.cloned_from.as_deref(), Some("warm"));
            assert_eq!(sup.wait(&domain.id).await.unwrap().exit.exit_code, 0);
            let logs = all(sup.logs(&domain.id, api::LogOptions::default()).await.unwrap()).await;
            assert_eq!(text(&logs), format!("hello from c-{}\n", i + 1));
            sup.remove(&domain.id, api::RemoveOptions::default()).await.unwrap();
        }
        sup.hibernate("w").await.unwrap();
        assert_eq!(sup.inspect("w").await.unwrap().state, DomainState::Hibernated);
        drop(sup);
        let sup = host.open_again().await;
        assert_eq!(sup.inspect("w").await.unwrap().state, DomainState::Hibernated);
        assert_eq!(sup.wake("w").await.unwrap().state, DomainState::Running);
        sup.hibernate("w").await.unwrap();
        sup.wake("w").await.unwrap();
        sup.remove("w", api::RemoveOptions { force: true, volumes: true }).await.unwrap();
        // Whoever ran on it may hold it for a moment longer.
        eventually("it is let go", async || sup.frozen_remove("warm").await.is_ok()).await;
        let left = std::fs::read_dir(host.config().store.join("frozen")).unwrap().count();
        assert_eq!(left, 0, "frozen images left");
    });
}
