//! Upgrades: supervisor, keepers and service domains become those of the program that is installed now.
//!
//! The supervisor goes first, as its process goes on as the other program ([`Replacement`]; `daemon/handover.rs`), after that
//! one has shown that it begins and takes the configuration. It then asks the keepers to give way, starts its own in their
//! places, and has these replace their services. The operation is the same one before and after.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use doppel_api::{self as api, Code, Problem};
use tokio::process::Command;

use crate::config::Replacement;
use crate::core::Core;
use crate::keeper::protocol::KeeperCommand;
use crate::keepers::services::installed;
use crate::operations::Handle;

/// How long another program may take to show that it begins.
const TRIAL: Duration = Duration::from_secs(10);
/// The kind of an upgrade's operation.
const KIND: &str = "upgrade";

/// What this program is.
#[must_use]
pub fn version() -> api::Version {
    api::Version {
        version: env!("CARGO_PKG_VERSION").into(),
        api: api::VERSION_PREFIX.trim_start_matches('/').into(),
        kernel: format!("{:016x}", doppel_domain::kernel_digest()),
    }
}

/// Device and number of a file.
fn file(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|m| (m.dev(), m.ino()))
}

impl Core {
    /// Where this supervisor's own program lies, which may have been replaced there.
    fn own_program(&self) -> PathBuf {
        let program = installed(&self.program);
        let ours = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        if self.arguments.is_some() && file(&program).ok() != file(&ours).ok() { ours } else { program }
    }

    /// What an upgrade would do.
    pub async fn upgrade_check(&self) -> Result<api::UpgradeCheck, Problem> {
        let (program, arguments) = self.replaceable()?;
        Ok(api::UpgradeCheck {
            running: version(),
            installed: trial(&program, arguments).await?,
            same: is_this(&program)?,
            execs: self.execs.under_way(),
            operations: self.operations.under_way(KIND),
        })
    }

    /// The program there is now, and what it would be called with.
    fn replaceable(&self) -> Result<(PathBuf, &[std::ffi::OsString]), Problem> {
        let why = "this supervisor is part of another program, which has to be replaced";
        let arguments = self.arguments.as_deref().ok_or_else(|| Problem::new(Code::Unsupported, why))?;
        Ok((installed(&self.program), arguments))
    }

    /// Begins one.
    pub async fn upgrade(self: Arc<Self>) -> Result<api::Operation, Problem> {
        if self.operations.under_way_of(KIND) > 0 {
            return Err(Problem::new(Code::WrongState, "an upgrade is under way"));
        }
        let (program, arguments) = self.replaceable()?;
        trial(&program, arguments).await?;
        let same = is_this(&program)?;
        let core = self.clone();
        self.operate(KIND, move |handle: Handle| async move {
            if same {
                return core.bring(version()).await;
            }
            let replacement =
                Replacement { program, operation: handle.id(), before: version(), failed: None };
            core.replaced.send_replace(Some(replacement));
            // The rest is the other program's.
            std::future::pending().await
        })
        .await
    }

    /// When this process is to go on as another program.
    pub async fn replaced(&self) -> Replacement {
        let mut replaced = self.replaced.subscribe();
        match replaced.wait_for(Option::is_some).await.ok().and_then(|r| r.clone()) {
            Some(replacement) => replacement,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }

    /// A supervisor has begun: its keepers and services are to be of its program.
    pub fn begun(self: &Arc<Self>, replacement: Option<Replacement>) {
        let core = Arc::downgrade(self);
        tokio::spawn(async move {
            let Some(core) = core.upgrade() else { return };
            let Some(Replacement { program, operation, before, failed }) = replacement else {
                // What is not done is in the log.
                let _ = core.bring(version()).await;
                return;
            };
            let result = match failed {
                None => core.bring(before).await,
                Some(why) => {
                    let text = format!("{} does not begin, all is as it was: {why}", program.display());
                    tracing::error!("{text}");
                    Err(Problem::new(Code::Internal, text))
                }
            };
            core.conclude(&operation, result);
        });
    }

    /// Has keepers and services be of this program; says what is not.
    async fn bring(&self, before: api::Version) -> Result<serde_json::Value, Problem> {
        let program = self.own_program();
        let give_way = || KeeperCommand::GiveWay { program: program.clone() };
        let mut keepers = Vec::new();
        for (number, answer) in self.keepers.ask_all(give_way).await {
            let stays = answer.err().map(|problem| problem.detail);
            if let Some(why) = &stays {
                tracing::warn!("keeper {number}: {why}");
            }
            keepers.push(api::UpgradedKeeper { number, stays });
        }
        let upgrade = || KeeperCommand::UpgradeServices { program: program.clone(), if_other: true };
        let (services, services_stay) = match self.ask_services(upgrade).await {
            Ok(services) => (services, None),
            Err(problem) => {
                tracing::warn!("{}", problem.detail);
                (self.services().await.unwrap_or_default(), Some(problem.detail))
            }
        };
        let report = api::UpgradeReport { before, after: version(), keepers, services, services_stay };
        serde_json::to_value(report).map_err(|e| Problem::new(Code::Internal, e.to_string()))
    }
}

/// Whether a file is the program that runs.
fn is_this(program: &Path) -> Result<bool, Problem> {
    let named = |e| Problem::new(Code::Internal, format!("cannot examine {}: {e}", program.display()));
    Ok(file(program).map_err(named)? == file(Path::new("/proc/self/exe")).map_err(named)?)
}

/// Has a program show that it begins on this host, takes the configuration, and what it is.
async fn trial(program: &Path, arguments: &[std::ffi::OsString]) -> Result<api::Version, Problem> {
    run(program, arguments, "--check").await?;
    let said = run(program, &[], "about").await?.stdout;
    serde_json::from_slice(&said).map_err(|e| unfit(program, &format!("it does not say what it is: {e}")))
}

fn unfit(program: &Path, why: &str) -> Problem {
    Problem::new(Code::WrongState, format!("{} is not fit to go on with: {why}", program.display()))
}

async fn run(program: &Path, arguments: &[std::ffi::OsString], last: &str) -> Result<Output, Problem> {
    let mut command = Command::new(program);
    command.args(arguments).arg(last).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TRIAL, command.output()).await {
        Ok(output) => output.map_err(|e| unfit(program, &e.to_string()))?,
        Err(_) => return Err(unfit(program, "it takes too long")),
    };
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(unfit(program, &format!("{last}: {}: {}", output.status, said.trim())))
}
