//! What domains use and what the host has: stats, info, metrics.

use std::fmt::Write;
use std::sync::Arc;

use doppel_api::{self as api, Problem};

use crate::core::Core;
use crate::domains::create::capacity;
use crate::domains::{Entry, is_live, stats};
use crate::keeper::protocol::{KeeperCommand, Reply, Usage};
use crate::locked;

impl Core {
    /// What a domain has used in all its runs.
    pub async fn stats(&self, entry: Arc<Entry>) -> Result<api::DomainStats, Problem> {
        let mut now = Usage::default();
        let mut memory = (0, 0);
        if is_live(entry.state()) {
            // One that has ended meanwhile has the figures of its end in its row.
            if let Ok(Reply::Usage(usage)) =
                self.ask(&entry, KeeperCommand::Usage { id: entry.id.clone(), flows: None }).await
            {
                self.note_usage(&entry, &usage);
                now = *usage;
            }
            if let Ok(Reply::Memory { private_bytes, shared_bytes }) =
                self.ask(&entry, KeeperCommand::Memory { id: entry.id.clone() }).await
            {
                memory = (private_bytes, shared_bytes);
            }
        }
        let row = entry.row();
        if row.ended_run == row.run {
            now = Usage::default();
        }
        let mut all = stats(&row, &now);
        (all.memory.private_bytes, all.memory.shared_bytes) = memory;
        Ok(all)
    }

    /// The host and what is set aside.
    pub fn info(&self) -> api::Info {
        let (cpus, memory_bytes) = capacity();
        let table = locked(&self.domains);
        let (reserved_cpus, reserved_memory_bytes) = table.reserved(None);
        let mut states: Vec<(api::DomainState, u64)> = Vec::new();
        for state in table.by_id.values().map(|entry| entry.state()) {
            match states.iter_mut().find(|(known, _)| *known == state) {
                Some((_, n)) => *n += 1,
                None => states.push((state, 1)),
            }
        }
        let domains = states.into_iter().map(|(state, n)| (state_name(state), n)).collect();
        api::Info {
            cpus: cpus as u32,
            memory_bytes,
            reserved_cpus,
            reserved_memory_bytes,
            cgroups: doppel_domain::cgroups().into(),
            domains,
            store: self.store.to_string_lossy().into_owned(),
            memory: self.memory_info(),
        }
    }

    /// Text of the Prometheus endpoint.
    pub async fn metrics(&self) -> Result<String, Problem> {
        let mut text = self.host_metrics();
        let mut all = Vec::new();
        for entry in self.all() {
            let live = is_live(entry.state());
            let now = match live {
                true => {
                    match self.ask(&entry, KeeperCommand::Usage { id: entry.id.clone(), flows: None }).await {
                        Ok(Reply::Usage(usage)) => *usage,
                        _ => Usage::default(),
                    }
                }
                false => Usage::default(),
            };
            all.push((live, stats(&entry.row(), &now)));
        }
        write_domains(&mut text, &all);
        text.push_str(&self.service_metrics().await);
        text.push_str(&self.stages.text());
        text.push_str(&self.gate_metrics());
        Ok(text)
    }

    /// Figures of the host, and how many domains are in which state.
    fn host_metrics(&self) -> String {
        let info = self.info();
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            // A string takes everything.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        one("doppel_host_cpus", "gauge", "CPUs of the host.", info.cpus.into());
        one("doppel_host_memory_bytes", "gauge", "Memory of the host.", info.memory_bytes as f64);
        one("doppel_reserved_cpus", "gauge", "CPUs set aside by reservations.", info.reserved_cpus);
        let reserved = info.reserved_memory_bytes as f64;
        one("doppel_reserved_memory_bytes", "gauge", "Memory set aside by reservations.", reserved);
        one("doppel_events_total", "counter", "Events so far.", self.events.count() as f64);
        text.push_str("# HELP doppel_domains Domains by state.\n# TYPE doppel_domains gauge\n");
        for (state, n) in &info.domains {
            let _ = writeln!(text, "doppel_domains{{state=\"{state}\"}} {n}");
        }
        text
    }
}

/// What is counted of a domain; none where it is not known.
type Figure = fn(&api::DomainStats) -> Option<f64>;

/// Figures of each domain: name, kind, help, whether only of those that live, and the value.
const FIGURES: [(&str, &str, &str, bool, Figure); 23] = [
    ("cpu_seconds_total", "counter", "CPU time.", false, |s| Some(s.cpu_seconds)),
    ("memory_bytes", "gauge", "Memory in use.", true, |s| Some(s.memory.usage_bytes as f64)),
    ("memory_peak_bytes", "gauge", "Most memory in use.", false, |s| Some(s.memory.peak_bytes as f64)),
    ("swap_bytes", "gauge", "Swap in use.", true, |s| s.memory.swap_bytes.map(|n| n as f64)),
    ("page_seconds_total", "counter", "Pages in use times seconds.", false, |s| Some(s.page_seconds)),
    ("tasks", "gauge", "Processes and threads.", true, |s| Some(s.pids.into())),
    ("console_bytes_total", "counter", "Bytes printed.", false, |s| Some(s.console_bytes as f64)),
    ("oom_kills_total", "counter", "Kills for want of memory.", false, |s| Some(s.oom_kills as f64)),
    ("calls_total", "counter", "System calls, as the domain's guest kernel says.", false, |s| {
        s.calls.map(|n| n as f64)
    }),
    ("io_bytes_total", "counter", "Bytes read from and written to block devices.", false, |s| {
        Some((s.io_read_bytes? + s.io_write_bytes?) as f64)
    }),
    ("storage_operations_total", "counter", "Requests of files in volumes.", false, |s| {
        Some(s.storage?.operations as f64)
    }),
    ("storage_errors_total", "counter", "Those that failed because of the host.", false, |s| {
        Some(s.storage?.errors as f64)
    }),
    ("storage_read_bytes_total", "counter", "Bytes read from files in volumes.", false, |s| {
        Some(s.storage?.read_bytes as f64)
    }),
    ("storage_written_bytes_total", "counter", "Bytes written to files in volumes.", false, |s| {
        Some(s.storage?.written_bytes as f64)
    }),
    ("storage_seconds_total", "counter", "Time that requests of files took.", false, |s| {
        Some(s.storage?.seconds)
    }),
    ("network_sent_bytes_total", "counter", "Bytes sent.", false, |s| Some(s.network?.sent.bytes as f64)),
    ("network_sent_packets_total", "counter", "Datagrams and pieces of streams sent.", false, |s| {
        Some(s.network?.sent.packets as f64)
    }),
    ("network_sent_flows_total", "counter", "Connections made.", false, |s| {
        Some(s.network?.sent.flows as f64)
    }),
    (
        "network_sent_drops_total",
        "counter",
        "Connections and datagrams refused or lost on the way out.",
        false,
        |s| Some(s.network?.sent.drops as f64),
    ),
    ("network_received_bytes_total", "counter", "Bytes received.", false, |s| {
        Some(s.network?.received.bytes as f64)
    }),
    ("network_received_packets_total", "counter", "Datagrams and pieces of streams received.", false, |s| {
        Some(s.network?.received.packets as f64)
    }),
    ("network_received_flows_total", "counter", "Connections taken.", false, |s| {
        Some(s.network?.received.flows as f64)
    }),
    (
        "network_received_drops_total",
        "counter",
        "Connections and datagrams refused or lost on the way in.",
        false,
        |s| Some(s.network?.received.drops as f64),
    ),
];

/// Writes the figures of all domains, each of which lives or not.
fn write_domains(text: &mut String, all: &[(bool, api::DomainStats)]) {
    for (name, kind, help, live_only, figure) in FIGURES {
        let _ = writeln!(text, "# HELP doppel_domain_{name} {help}\n# TYPE doppel_domain_{name} {kind}");
        for (live, stats) in all {
            if let (true, Some(value)) = (*live || !live_only, figure(stats)) {
                let _ = writeln!(
                    text,
                    "doppel_domain_{name}{{id=\"{}\",name=\"{}\"}} {value}",
                    stats.id, stats.name
                );
            }
        }
    }
}

/// A state as the interface writes it.
pub(crate) fn state_name(state: api::DomainState) -> String {
    let value = serde_json::to_value(state).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
