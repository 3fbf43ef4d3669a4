//! What can be asked of domain 0.

use std::sync::Arc;

use doppel_api as api;
use doppel_api::Problem;

use crate::asker::Asker;
use crate::config::Config;
use crate::config::Replacement;
use crate::core::Core;
use crate::domains::Entry;
use crate::jobs::whole;
use crate::residency::activity::Busy;
use crate::streams::{ByteStream, LineStream};

/// Domain 0.
#[derive(Debug)]
pub struct Supervisor {
    core: Arc<Core>,
}

type Answer<T> = Result<T, Problem>;

/// One method a path of the interface; names and rules are those of `docs/api.md`. What changes something is done whole
/// even if the future is dropped on the way.
#[allow(clippy::unused_async, missing_docs, reason = "the interface is described in docs/api.md, once")]
impl Supervisor {
    /// Opens the state, finds or starts keepers, and adopts what lives.
    pub async fn open(config: Config) -> Answer<Arc<Self>> {
        Ok(Arc::new(Self { core: Core::open(config).await? }))
    }

    fn find(&self, domain: &str) -> Answer<(Arc<Core>, Arc<Entry>)> {
        Ok((self.core.clone(), self.core.find(domain)?))
    }

    /// One that has to run for what is wanted of it: it wakes if it hibernates, and stays awake as long as what is given with it.
    async fn awake(&self, domain: &str) -> Answer<(Arc<Core>, Arc<Entry>, Busy)> {
        let (core, entry) = self.find(domain)?;
        let busy = core.awake(&entry).await?;
        Ok((core, entry, busy))
    }

    pub async fn info(&self) -> Answer<api::Info> {
        Ok(self.core.info())
    }
    pub async fn create(&self, wanted: api::CreateDomain, start: bool) -> Answer<api::Created> {
        whole(self.core.clone().create(wanted, start, Asker::now())).await
    }
    pub async fn run(&self, wanted: api::CreateDomain) -> Answer<LineStream<api::Output>> {
        whole(self.core.clone().run(wanted, Asker::now())).await
    }
    pub async fn list(&self, options: api::ListOptions) -> Answer<Vec<api::Domain>> {
        self.core.list(&options)
    }
    pub async fn inspect(&self, domain: &str) -> Answer<api::Domain> {
        Ok(self.core.find(domain)?.describe(&self.core.volumes))
    }
    pub async fn start(&self, domain: &str) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.start(entry)).await
    }
    pub async fn stop(&self, domain: &str, how: api::StopOptions) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.stop(entry, how)).await
    }
    pub async fn restart(&self, domain: &str, how: api::StopOptions) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.restart(entry, how)).await
    }
    pub async fn kill(&self, domain: &str, how: api::KillOptions) -> Answer<()> {
        let (core, entry) = self.find(domain)?;
        whole(async move { core.kill(&entry, how).await }).await
    }
    pub async fn pause(&self, domain: &str) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.pause(entry, true)).await
    }
    pub async fn unpause(&self, domain: &str) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.pause(entry, false)).await
    }
    pub async fn rename(&self, domain: &str, to: api::Rename) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.rename(entry, to)).await
    }
    pub async fn update(&self, domain: &str, to: api::UpdateDomain) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.update(entry, to)).await
    }
    pub async fn remove(&self, domain: &str, how: api::RemoveOptions) -> Answer<()> {
        let (core, entry) = self.find(domain)?;
        whole(core.remove(entry, how)).await
    }
    pub async fn wait(&self, domain: &str) -> Answer<api::Waited> {
        let (core, entry) = self.find(domain)?;
        core.wait(entry).await
    }
    pub async fn wait_until(&self, domain: &str, how: api::WaitOptions) -> Answer<api::Waited> {
        match how.condition {
            api::WaitCondition::Ended => self.wait(domain).await,
            api::WaitCondition::Removed => self.core.wait_until_removed(domain).await,
        }
    }
    pub async fn prune(&self) -> Answer<api::PruneReport> {
        whole(self.core.clone().prune()).await
    }
    pub async fn logs(&self, domain: &str, which: api::LogOptions) -> Answer<LineStream<api::Output>> {
        let (core, entry) = self.find(domain)?;
        core.logs(entry, which).await
    }
    pub async fn attach(&self, domain: &str, how: api::AttachOptions) -> Answer<LineStream<api::Output>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.attach(entry, how).await
    }
    pub async fn input(&self, domain: &str, bytes: ByteStream, options: api::InputOptions) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.input(entry, bytes, options).await
    }
    pub async fn resize(&self, domain: &str, to: api::ResizeTerminal) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.resize(entry, to).await
    }
    pub async fn stats(&self, domain: &str) -> Answer<api::DomainStats> {
        let (core, entry) = self.find(domain)?;
        core.stats(entry).await
    }
    pub async fn flows(&self, domain: Option<&str>, options: api::FlowOptions) -> Answer<api::FlowList> {
        let entries = match domain {
            Some(domain) => vec![self.find(domain)?.1],
            None => self.core.all(),
        };
        self.core.flows(entries, &options).await
    }
    pub async fn top(&self, domain: &str) -> Answer<Vec<api::ProcessInfo>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.top(entry).await
    }
    pub async fn stacks(&self, domain: &str) -> Answer<Vec<api::ThreadStack>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.stacks(entry).await
    }
    pub async fn debug_events(
        &self,
        domain: &str,
        which: api::DebugEventOptions,
    ) -> Answer<LineStream<api::DebugEvent>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.debug_events(entry, which).await
    }
    pub async fn set_debug_events(&self, domain: &str, to: api::SetDebugEvents) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.set_debug_events(entry, to).await
    }
    pub async fn exec(&self, domain: &str, wanted: api::CreateExec) -> Answer<api::Exec> {
        let (core, entry, _busy) = self.awake(domain).await?;
        // Not whole: what nobody waits for any more must not begin.
        core.exec(entry, wanted).await
    }
    pub async fn exec_inspect(&self, exec: &str) -> Answer<api::Exec> {
        Ok(self.core.execs.find(exec)?.describe())
    }
    pub async fn exec_output(&self, exec: &str) -> Answer<LineStream<api::Output>> {
        Ok(self.core.exec_output(self.core.execs.find(exec)?))
    }
    pub async fn exec_input(&self, exec: &str, bytes: ByteStream, options: api::InputOptions) -> Answer<()> {
        let found = self.core.execs.find(exec)?;
        self.core.exec_input(&found, bytes, options.close).await
    }
    pub async fn exec_resize(&self, exec: &str, to: api::ResizeTerminal) -> Answer<()> {
        let found = self.core.execs.find(exec)?;
        self.core.exec_resize(&found, to).await
    }
    pub async fn exec_kill(&self, exec: &str, how: api::KillOptions) -> Answer<()> {
        let found = self.core.execs.find(exec)?;
        self.core.exec_kill(&found, &how).await
    }
    pub async fn archive_out(&self, domain: &str, path: &str) -> Answer<ByteStream> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.builtin_output(entry, vec!["tar-out".into(), path.into()]).await
    }
    pub async fn archive_in(&self, domain: &str, path: &str, tar: ByteStream) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.builtin_input(entry, vec!["tar-in".into(), path.into()], tar).await
    }
    pub async fn file_read(&self, domain: &str, path: &str) -> Answer<ByteStream> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.builtin_output(entry, vec!["read".into(), path.into()]).await
    }
    pub async fn file_write(&self, domain: &str, to: api::WriteFile, bytes: ByteStream) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_write(entry, to, bytes).await
    }
    pub async fn file_remove(&self, domain: &str, which: api::RemoveFile) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_remove(entry, which).await
    }
    pub async fn file_info(&self, domain: &str, path: &str) -> Answer<api::FileInfo> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_info(entry, path).await
    }
    pub async fn file_list(&self, domain: &str, path: &str) -> Answer<Vec<api::FileInfo>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_list(entry, path).await
    }
    pub async fn file_watch(&self, domain: &str, path: &str) -> Answer<LineStream<api::FileChange>> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_watch(entry, path).await
    }
    pub async fn make_directory(&self, domain: &str, path: &str) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.make_directory(entry, path).await
    }
    pub async fn file_rename(&self, domain: &str, which: api::RenameFile) -> Answer<()> {
        let (core, entry, _busy) = self.awake(domain).await?;
        core.file_rename(entry, which).await
    }
    pub async fn freeze(&self, domain: &str, how: api::FreezeDomain) -> Answer<api::FreezeReport> {
        let (core, entry, _busy) = self.awake(domain).await?;
        whole(core.freeze(entry, how)).await
    }
    pub async fn hibernate(&self, domain: &str) -> Answer<api::Hibernated> {
        let (core, entry) = self.find(domain)?;
        whole(core.hibernate(entry, Asker::now())).await
    }
    pub async fn wake(&self, domain: &str) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.wake(entry, api::WakeReason::Request)).await
    }
    pub async fn roll_back(&self, domain: &str, how: api::RollBack) -> Answer<api::Domain> {
        let (core, entry) = self.find(domain)?;
        whole(core.roll_back(entry, how)).await
    }
    pub async fn frozen_list(&self) -> Answer<Vec<api::FrozenImage>> {
        self.core.clone().frozen_list().await
    }
    pub async fn frozen_inspect(&self, name: &str) -> Answer<api::FrozenImage> {
        self.core.clone().frozen_inspect(name.into()).await
    }
    pub async fn frozen_remove(&self, name: &str) -> Answer<()> {
        self.core.clone().frozen_remove(name.into()).await
    }
    pub async fn frozen_flatten(&self, name: &str) -> Answer<api::FrozenImage> {
        whole(self.core.clone().frozen_flatten(name.into())).await
    }
    pub async fn frozen_prune(&self, which: api::FrozenPruneOptions) -> Answer<api::FrozenPruneReport> {
        self.core.clone().frozen_prune(which).await
    }
    pub async fn clone_frozen(&self, name: &str, how: api::CloneFrozen) -> Answer<api::Cloned> {
        whole(self.core.clone().clone_frozen(name.into(), how, Asker::now())).await
    }
    pub async fn image_list(&self) -> Answer<Vec<api::Image>> {
        self.core.clone().image_list().await
    }
    pub async fn image_inspect(&self, name: &str) -> Answer<api::Image> {
        self.core.clone().image_inspect(name.into()).await
    }
    pub async fn image_remove(&self, name: &str) -> Answer<()> {
        self.core.clone().image_remove(name.into()).await
    }
    pub async fn image_pull(&self, what: api::PullImage) -> Answer<api::Operation> {
        self.core.clone().image_pull(what).await
    }
    pub async fn image_push(&self, what: api::PushImage) -> Answer<api::Operation> {
        self.core.clone().image_push(what).await
    }
    pub async fn image_import(&self, what: api::ImportImage, tar: ByteStream) -> Answer<api::Image> {
        self.core.clone().image_import(what, tar).await
    }
    pub async fn image_prune(&self) -> Answer<api::ImagePruneReport> {
        self.core.clone().image_prune().await
    }
    pub async fn volume_list(&self) -> Answer<Vec<api::Volume>> {
        self.core.clone().volume_list().await
    }
    pub async fn volume_create(&self, what: api::CreateVolume) -> Answer<api::Volume> {
        self.core.clone().volume_create(what).await
    }
    pub async fn volume_inspect(&self, name: &str) -> Answer<api::Volume> {
        self.core.clone().volume_inspect(name.into()).await
    }
    pub async fn volume_remove(&self, name: &str, how: api::RemoveVolume) -> Answer<()> {
        self.core.clone().volume_remove(name.into(), how).await
    }
    pub async fn volume_prune(&self, which: api::VolumePruneOptions) -> Answer<api::VolumePruneReport> {
        self.core.clone().volume_prune(which).await
    }
    pub async fn network_list(&self) -> Answer<Vec<api::VirtualNetwork>> {
        Ok(self.core.network_list(&Asker::now().owner))
    }
    pub async fn network_create(&self, what: api::CreateNetwork) -> Answer<api::VirtualNetwork> {
        whole(self.core.clone().network_create(what, Asker::now().owner)).await
    }
    pub async fn network_inspect(&self, name: &str) -> Answer<api::VirtualNetwork> {
        self.core.network_inspect(&Asker::now().owner, name)
    }
    pub async fn network_remove(&self, name: &str, how: api::RemoveNetwork) -> Answer<()> {
        whole(self.core.clone().network_remove(name.into(), how, Asker::now().owner)).await
    }
    pub async fn network_prune(&self, which: api::NetworkPruneOptions) -> Answer<api::NetworkPruneReport> {
        whole(self.core.clone().network_prune(which, Asker::now().owner)).await
    }
    pub async fn network_connect(&self, name: &str, what: api::ConnectNetwork) -> Answer<api::Domain> {
        let (core, entry) = self.find(&what.domain)?;
        whole(core.network_connect(entry, name.into(), what)).await
    }
    pub async fn network_disconnect(&self, name: &str, what: api::DisconnectNetwork) -> Answer<api::Domain> {
        let (core, entry) = self.find(&what.domain)?;
        whole(core.network_disconnect(entry, name.into(), what.force)).await
    }
    pub async fn disk_list(&self) -> Answer<Vec<api::Disk>> {
        self.core.clone().disk_list().await
    }
    pub async fn disk_create(&self, what: api::CreateDisk) -> Answer<api::Disk> {
        self.core.clone().disk_create(what).await
    }
    pub async fn disk_inspect(&self, name: &str) -> Answer<api::Disk> {
        self.core.clone().disk_inspect(name.into()).await
    }
    pub async fn disk_resize(&self, name: &str, size: u64) -> Answer<api::Disk> {
        self.core.clone().disk_resize(name.into(), size).await
    }
    pub async fn disk_remove(&self, name: &str, how: api::RemoveDisk) -> Answer<()> {
        self.core.clone().disk_remove(name.into(), how).await
    }
    pub async fn operation_list(&self) -> Answer<Vec<api::Operation>> {
        Ok(self.core.operations.list())
    }
    pub async fn operation(&self, id: &str, wait: bool) -> Answer<api::Operation> {
        self.core.operations.status(id, wait).await
    }
    pub async fn operation_cancel(&self, id: &str) -> Answer<api::Operation> {
        self.core.operations.cancel(id)
    }
    pub async fn events(&self, which: api::EventOptions) -> Answer<LineStream<api::Event>> {
        let mut which = which;
        for (field, text) in [("since", &which.since), ("until", &which.until)] {
            if text.as_deref().is_some_and(|t| crate::time::parse(t).is_none()) {
                return Err(crate::domains::spec::wrong(format!("{field}: no time (RFC 3339)")));
            }
        }
        // A domain that is gone may still have events.
        if let Some(entry) = which.subject.as_deref().and_then(|s| self.core.find(s).ok()) {
            which.subject = Some(entry.id.clone());
        }
        Ok(self.core.events.listen(&which))
    }
    pub async fn services(&self) -> Answer<Vec<api::Service>> {
        self.core.services().await
    }
    pub async fn upgrade_check(&self) -> Answer<api::UpgradeCheck> {
        self.core.upgrade_check().await
    }
    pub async fn upgrade(&self) -> Answer<api::Operation> {
        whole(self.core.clone().upgrade()).await
    }
    /// When this process is to go on as another program.
    pub async fn replaced(&self) -> Replacement {
        self.core.replaced().await
    }
    /// When all that has changed is written down.
    pub async fn written(&self) -> Answer<()> {
        self.core.state.settled().await
    }
    pub async fn upgrade_services(&self) -> Answer<Vec<api::Service>> {
        whole(self.core.clone().upgrade_services()).await
    }
    /// Text of the Prometheus endpoint.
    pub async fn metrics(&self) -> Answer<String> {
        self.core.metrics().await
    }
    /// The answer kept for this idempotency key, if it was used for the same request (a digest of it).
    pub async fn remembered(&self, key: &str, request: &str) -> Answer<Option<(u16, String)>> {
        self.core.idempotency.get(key, request)
    }
    /// Keeps an answer for an idempotency key.
    pub async fn remember(&self, key: &str, request: &str, status: u16, body: &str) -> Answer<()> {
        self.core.idempotency.put(&self.core.state, key, request, status, body).await
    }
    /// Writes a line of the audit log: who asked for what, and how it ended.
    pub fn audit(&self, who: &str, what: &str, status: u16) {
        self.core.audit.add(who, what, status);
    }
}
