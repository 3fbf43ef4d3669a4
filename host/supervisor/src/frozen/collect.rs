//! Frozen images that nobody needs: temporary ones, as of forks, go by themselves, others when somebody asks for it.
//!
//! A temporary image is needed by the domains that were cloned from it, run they or not (they may be started again), and for
//! a minute by whoever froze it to clone it. So it goes whatever became of its maker: an error, a kill, a lost connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use doppel_api::{self as api, Code, Problem};
use doppel_freezer::{FrozenImage, Medium};

use crate::core::Core;
use crate::domains::Origin;
use crate::jobs::blocking;
use crate::locked;
use crate::time::seconds_now;

/// Between two looks for temporary images.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Core {
    /// Removes temporary images that are needed no more, as long as the supervisor lives.
    pub fn collect_temporary(self: &Arc<Self>) {
        let core = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(core) = Weak::upgrade(&core) else { return };
                for name in core.origins.temporary(true) {
                    if core.is_cloned(&name) {
                        continue;
                    }
                    match core.clone().frozen_remove(name.clone()).await {
                        Ok(()) => tracing::debug!("temporary frozen image {name} is removed"),
                        Err(p) if p.code == Code::FrozenNotFound => core.origins.remove(&core.state, &name),
                        // Something has it open yet.
                        Err(p) => tracing::debug!("temporary frozen image {name}: {p}"),
                    }
                }
            }
        });
    }

    /// Whether there are domains that were cloned from a frozen image.
    fn is_cloned(&self, name: &str) -> bool {
        self.all()
            .iter()
            .any(|entry| matches!(&locked(&entry.row).origin, Origin::Clone { frozen, .. } if frozen == name))
    }

    /// Removes the frozen images that no domain needs.
    pub async fn frozen_prune(
        self: Arc<Self>,
        which: api::FrozenPruneOptions,
    ) -> Result<api::FrozenPruneReport, Problem> {
        let core = self.clone();
        let found = blocking(move || {
            let young = core.origins.temporary(false);
            let failed = |e: doppel_freezer::Error| Problem::new(Code::Internal, e.to_string());
            let mut found = core.frozen.list().map_err(failed)?;
            let old_enough = |path: &std::path::Path| match which.older_than_seconds {
                None => true,
                // Of one that is damaged it is not known.
                Some(seconds) => FrozenImage::open_unchecked(path)
                    .is_ok_and(|i| seconds_now() - i.describe().frozen_at as f64 >= seconds as f64),
            };
            found.retain(|e| {
                !e.name.ends_with(".asleep")
                    && !young.contains(&e.name)
                    && which.in_memory.is_none_or(|m| m == (e.medium == Medium::Memory))
                    && old_enough(&e.path)
                    && !core.is_cloned(&e.name)
                    && core.check_frozen_unused(&e.name).is_ok()
            });
            Ok(found)
        })
        .await?;
        let mut report = api::FrozenPruneReport::default();
        for entry in found {
            let ends = self.keepers.forget(&entry.path).await;
            let (core, name) = (self.clone(), entry.name.clone());
            // One that somebody uses, as a command without the supervisor does, stays.
            let removed = blocking(move || {
                let removed =
                    if ends { core.frozen.remove(&name) } else { core.frozen.remove_at_once(&name) };
                Ok(removed.is_ok())
            });
            if removed.await? {
                self.origins.remove(&self.state, &entry.name);
                report.freed_bytes += entry.used;
                report.removed.push(entry.name);
            }
        }
        let core = self.clone();
        blocking(move || core.frozen.sweep().map_err(|e| Problem::new(Code::Internal, e.to_string())))
            .await?;
        self.collect_disks().await;
        Ok(report)
    }
}
