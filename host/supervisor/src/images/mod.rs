//! Root images.

pub mod disks;
pub mod image_cache;
pub mod layers;
pub mod root;

use std::collections::HashMap;
use std::io::Seek;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doppel_api::{self as api, Code, EventKind, Problem};
use doppel_image::{Record, Source, Store, Watcher};
use tokio::io::AsyncWriteExt;

use crate::core::Core;
use crate::domains::create::{image_health, image_problem};
use crate::domains::spec;
use crate::jobs::{blocking, failed, is_full};
use crate::operations::Handle;
use crate::streams::{ByteStream, next};
use crate::{locked, time};

fn describe(name: String, record: Record) -> api::Image {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(record.created);
    let source = match record.source {
        Source::Directory { path } => format!("directory {}", path.display()),
        Source::Archive { path } => format!("archive {}", path.display()),
        Source::Oci { reference } => reference,
        Source::Domain { name, image } => format!("domain {name} of {image}"),
        Source::Packages { suite, packages } => format!("{suite}: {}", packages.join(" ")),
    };
    api::Image {
        name,
        digest: format!("sha256:{}", record.digest),
        size_bytes: record.size,
        files: record.counts.inodes(),
        created_at: time::text(at),
        source,
        config: config(record.oci.map(|o| o.config).unwrap_or_default()),
    }
}

fn config(image: doppel_image::ImageConfig) -> api::ImageConfig {
    let variables = image.env.iter().filter_map(|v| v.split_once('='));
    api::ImageConfig {
        health: image_health(&image),
        env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        exposed_ports: image.exposed_ports.into_keys().collect(),
        entrypoint: image.entrypoint,
        command: image.cmd,
        working_dir: image.working_dir,
        user: image.user,
        labels: image.labels,
        stop_signal: image.stop_signal,
    }
}

/// How long a registry may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

fn oci_problem(error: &doppel_oci::Error) -> Problem {
    use doppel_oci::Error;
    let code = match error {
        Error::Cancelled => Code::Cancelled,
        Error::Image(e) => return image_problem(e),
        error if is_full(error) => Code::StorageFull,
        Error::Io { .. } => Code::Internal,
        Error::Reference { .. } | Error::Platform { .. } | Error::Layer { .. } => Code::InvalidRequest,
        Error::Busy => Code::InUse,
        _ => Code::Registry,
    };
    Problem::new(code, error.to_string())
}

fn credentials(user: Option<String>, password: Option<String>) -> Option<doppel_oci::Credentials> {
    user.map(|user| doppel_oci::Credentials { user, password: password.unwrap_or_default() })
}

/// Adds up what is told of single blobs.
#[derive(Debug, Default)]
struct Tally(Mutex<HashMap<String, (u64, u64)>>);

impl Tally {
    fn note(&self, event: &doppel_oci::Event<'_>, handle: &Handle) {
        use doppel_oci::Event;
        let step = {
            let mut blobs = locked(&self.0);
            match event {
                Event::Resolved { .. } => "resolved",
                Event::Begin { blob, size, have } => {
                    blobs.insert(blob.to_string(), (*have, *size));
                    "transfer"
                }
                Event::Bytes { blob, done } => {
                    if let Some(known) = blobs.get_mut(&blob.to_string()) {
                        known.0 = *done;
                    }
                    "transfer"
                }
                Event::Done { blob, .. } => {
                    if let Some(known) = blobs.get_mut(&blob.to_string()) {
                        known.0 = known.1;
                    }
                    "transfer"
                }
                Event::Retry { .. } => "retry",
                Event::Apply { .. } => "apply",
                Event::Write => "write",
            }
        };
        let (done, total) =
            locked(&self.0).values().fold((0, 0), |(d, t), (done, size)| (d + done, t + size));
        handle.progress(api::Progress { step: step.into(), done_bytes: done, total_bytes: Some(total) });
    }
}

/// Tells of an image that is made.
fn made(handle: &Handle, step: doppel_image::Step) {
    use doppel_image::Step;
    let (step, done_bytes, total_bytes) = match step {
        Step::Read { done } => ("apply", done, None),
        Step::Write { done, total } => ("write", done, Some(total)),
        Step::Patch { done, total } => ("patch", done, Some(total)),
    };
    handle.progress(api::Progress { step: step.into(), done_bytes, total_bytes });
}

impl Core {
    /// Does something with a registry on a thread of its own, as an operation. The job's store tells of its work.
    async fn transfer(
        self: &Arc<Self>,
        kind: &str,
        job: impl FnOnce(
            &Self,
            &Store,
            &dyn doppel_oci::Progress,
            &doppel_oci::Cancel,
        ) -> Result<serde_json::Value, Problem>
        + Send
        + 'static,
    ) -> Result<api::Operation, Problem> {
        let core = self.clone();
        self.operate(kind, |handle| async move {
            let cancel = doppel_oci::Cancel::default();
            let (told, given_up, tally) = (handle.clone(), cancel.clone(), Tally::default());
            let watcher = handle.clone();
            let store = core.images.clone().watched(Watcher::new(move |step| made(&watcher, step)));
            let work = blocking(move || {
                job(&core, &store, &|event: doppel_oci::Event<'_>| tally.note(&event, &told), &given_up)
            });
            tokio::pin!(work);
            tokio::select! {
                done = &mut work => return done,
                () = handle.cancelled() => cancel.cancel(),
            }
            work.await
        })
        .await
    }

    pub async fn image_pull(self: Arc<Self>, what: api::PullImage) -> Result<api::Operation, Problem> {
        let reference: doppel_oci::Reference = what.reference.parse().map_err(|e| oci_problem(&e))?;
        let platform = match &what.platform {
            Some(platform) => platform.parse().map_err(|e: String| spec::wrong(e))?,
            None => doppel_oci::Platform::default(),
        };
        let pull = doppel_oci::Pull {
            reference,
            name: what.name,
            platform,
            plain_http: what.plain_http,
            credentials: credentials(what.username, what.password),
            timeout: PATIENCE,
            limits: doppel_image::Limits::default(),
        };
        self.transfer("image_pull", move |core, store, progress, cancel| {
            let pulled = pull.run(store, progress, cancel).map_err(|e| oci_problem(&e))?;
            let name = pulled.record.name.clone();
            core.events.add(EventKind::ImagePull, &name, None, &[("digest", pulled.record.digest.clone())]);
            json(&describe(name, pulled.record))
        })
        .await
    }

    pub async fn image_push(self: Arc<Self>, what: api::PushImage) -> Result<api::Operation, Problem> {
        self.images.record(&what.name).map_err(|e| image_problem(&e))?;
        let push = doppel_oci::Push {
            name: what.name,
            reference: what.reference.parse().map_err(|e| oci_problem(&e))?,
            plain_http: what.plain_http,
            credentials: credentials(what.username, what.password),
            timeout: PATIENCE,
        };
        self.transfer("image_push", move |core, store, progress, cancel| {
            let pushed = push.run(store, progress, cancel).map_err(|e| oci_problem(&e))?;
            core.events.add(
                EventKind::ImagePush,
                &push.name,
                None,
                &[("reference", pushed.reference.clone())],
            );
            json(&pushed)
        })
        .await
    }

    pub async fn image_import(
        self: Arc<Self>,
        what: api::ImportImage,
        mut tar: ByteStream,
    ) -> Result<api::Image, Problem> {
        // To a file without a name first: archives of images are read out of order.
        let images = self.images.clone();
        let scratch =
            blocking(move || images.prepare().and_then(|()| images.scratch()).map_err(|e| image_problem(&e)));
        let mut file = tokio::fs::File::from_std(scratch.await?);
        let path = self.store.join("tmp");
        while let Some(piece) = next(&mut tar).await {
            file.write_all(&piece?).await.map_err(failed("write a file in", &path))?;
        }
        file.flush().await.map_err(failed("write a file in", &path))?;
        let mut file = file.into_std().await;
        blocking(move || {
            let rewind = |f: &mut std::fs::File| f.rewind().map_err(failed("read a file in", &path));
            rewind(&mut file)?;
            let (of_images, _) = doppel_oci::sniff(&file).map_err(failed("read a file in", &path))?;
            rewind(&mut file)?;
            let limits = doppel_image::Limits::default();
            let record = if of_images {
                let import = doppel_oci::Import {
                    path: "-".into(),
                    file: Some(file),
                    name: what.name.clone(),
                    pick: None,
                    platform: doppel_oci::Platform::default(),
                    limits,
                };
                let nobody = |_: doppel_oci::Event<'_>| {};
                let done = doppel_oci::import(&self.images, import, &nobody, &doppel_oci::Cancel::default());
                done.map_err(|e| oci_problem(&e))?.record
            } else {
                let source = Source::Archive { path: "-".into() };
                self.images.import_tar(&what.name, file, source, limits).map_err(|e| match e {
                    doppel_image::Error::NotFound(_) | doppel_image::Error::Io { .. } => image_problem(&e),
                    e => Problem::new(Code::InvalidRequest, e.to_string()),
                })?
            };
            self.events.add(EventKind::ImageImport, &what.name, None, &[("digest", record.digest.clone())]);
            Ok(describe(what.name, record))
        })
        .await
    }

    pub async fn image_prune(self: Arc<Self>) -> Result<api::ImagePruneReport, Problem> {
        blocking(move || {
            let pruned = doppel_oci::Blobs::prune(&self.images).map_err(|e| oci_problem(&e))?;
            Ok(api::ImagePruneReport {
                removed: [pruned.blobs, pruned.partial].concat(),
                freed_bytes: pruned.bytes,
            })
        })
        .await
    }

    pub async fn image_list(self: Arc<Self>) -> Result<Vec<api::Image>, Problem> {
        blocking(move || {
            let records = self.images.list().map_err(|e| image_problem(&e))?;
            // One that cannot be read says so when it is asked for by name.
            Ok(records.into_iter().filter_map(|(name, r)| Some(describe(name, r.ok()?))).collect())
        })
        .await
    }

    pub async fn image_inspect(self: Arc<Self>, name: String) -> Result<api::Image, Problem> {
        blocking(move || {
            Ok(describe(name.clone(), self.images.record(&name).map_err(|e| image_problem(&e))?))
        })
        .await
    }

    pub async fn image_remove(self: Arc<Self>, name: String) -> Result<(), Problem> {
        blocking(move || {
            let record = self.images.record(&name).map_err(|e| image_problem(&e))?;
            let uses = |e: &&Arc<crate::domains::Entry>| locked(&e.row).image_digest == record.digest;
            if let Some(entry) = self.all().iter().find(uses) {
                return Err(Problem::new(
                    Code::InUse,
                    format!("image {name} is used by domain {}; remove it first", entry.name()),
                ));
            }
            self.images.remove(&name).map_err(|e| image_problem(&e))?;
            self.events.add(EventKind::ImageRemove, &name, None, &[]);
            Ok(())
        })
        .await
    }
}

fn json(value: &impl serde::Serialize) -> Result<serde_json::Value, Problem> {
    serde_json::to_value(value).map_err(|e| Problem::new(Code::Internal, e.to_string()))
}
