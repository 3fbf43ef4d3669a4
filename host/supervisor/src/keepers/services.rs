//! Service domains: how they are, and their replacement by a newer program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use doppel_api::{self as api, Problem};
use doppel_net::Health;

use crate::core::Core;
use crate::keeper::protocol::{KeeperCommand, Reply};

/// What the host adds to the path of a program whose file is another by now.
const DELETED: &str = " (deleted)";

impl Core {
    /// How the service domains are.
    pub async fn services(&self) -> Result<Vec<api::Service>, Problem> {
        self.ask_services(|| KeeperCommand::Services).await
    }

    /// Replaces them by those of the program that lies where this one did when it was started.
    pub async fn upgrade_services(self: Arc<Self>) -> Result<Vec<api::Service>, Problem> {
        let program = installed(&self.program);
        self.ask_services(|| KeeperCommand::UpgradeServices { program: program.clone(), if_other: false })
            .await
    }

    /// Those of all keepers; all are asked, whatever one answers.
    pub async fn ask_services(&self, ask: impl Fn() -> KeeperCommand) -> Result<Vec<api::Service>, Problem> {
        let (mut all, mut storages) = (Vec::new(), Vec::new());
        for (_, answer) in self.keepers.ask_all(ask).await {
            match answer? {
                Reply::Services(some) => all.extend(some),
                Reply::AllServices { network, storage } => {
                    all.extend(network);
                    storages.extend(storage);
                }
                _ => return Err(Problem::new(api::Code::Internal, "a keeper answers something else")),
            }
        }
        let network =
            (0..).zip(all).map(|(shard, (health, networks))| described("network", shard, health, networks));
        let storage = (0..).zip(storages).map(|(shard, health)| described("storage", shard, health, 0));
        Ok(network.chain(storage).collect())
    }

    /// Their part of the Prometheus endpoint; nothing while there are none.
    pub(crate) async fn service_metrics(&self) -> String {
        type Figure = fn(&api::Service) -> f64;
        let figures: [(&str, &str, &str, Figure); 7] = [
            ("up", "gauge", "Whether it runs.", |s| f64::from(u8::from(s.pid.is_some()))),
            ("starts_total", "counter", "Services started.", |s| s.starts as f64),
            ("restarts_total", "counter", "Those started after a death or a hang.", |s| s.restarts as f64),
            ("domains", "gauge", "Domains it serves.", |s| s.domains as f64),
            ("cpu_seconds", "gauge", "CPU time of its process.", |s| s.cpu_seconds),
            ("memory_bytes", "gauge", "Resident memory of its process.", |s| s.memory_bytes as f64),
            ("longest_step_seconds", "gauge", "Longest step of work of its process.", |s| {
                s.longest_step_seconds
            }),
        ];
        // A keeper that has just died has none.
        let all = self.services().await.unwrap_or_default();
        let mut text = String::new();
        for of in ["network", "storage"] {
            let some: Vec<_> = all.iter().filter(|service| service.kind == of).collect();
            for (name, kind, help, figure) in figures.iter().filter(|_| !some.is_empty()) {
                let name = format!("doppel_{of}_service_{name}");
                // A string takes everything.
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
                for service in &some {
                    let _ = writeln!(text, "{name}{{shard=\"{}\"}} {}", service.shard, figure(service));
                }
            }
        }
        text
    }
}

fn described(kind: &str, shard: u32, health: Health, networks: usize) -> api::Service {
    api::Service {
        kind: kind.into(),
        shard,
        pid: health.pid,
        starts: health.starts,
        restarts: health.restarts,
        domains: health.domains as u64,
        networks: networks as u64,
        cpu_seconds: health.cpu_seconds,
        memory_bytes: health.memory_bytes,
        longest_step_seconds: health.longest_step_seconds,
    }
}

/// Where a program lies that may have been replaced since this process was started from it.
pub(crate) fn installed(program: &Path) -> PathBuf {
    let text = program.as_os_str().to_str();
    text.and_then(|t| t.strip_suffix(DELETED)).map_or_else(|| program.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_newer_program_lies() {
        assert_eq!(installed(Path::new("/usr/bin/doppeld (deleted)")), Path::new("/usr/bin/doppeld"));
        assert_eq!(installed(Path::new("/usr/bin/doppeld")), Path::new("/usr/bin/doppeld"));
    }
}
