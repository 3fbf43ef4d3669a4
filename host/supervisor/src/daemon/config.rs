//! The configuration file (`packaging/doppeld.toml` explains each entry) and what the command line puts over it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use doppel_api::{CreateDomain, Validate};
use doppel_supervisor::GatekeeperRules;
use serde::{Deserialize, Serialize};

/// Where it is unless the command line says otherwise. It may be missing.
const DEFAULT: &str = "/etc/doppel/doppeld.toml";

/// All there is to set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Directory of images, frozen images and state.
    pub store: PathBuf,
    /// Directory of sockets and other things of this boot.
    pub runtime: PathBuf,
    /// How long after a start another domain of the same image is kept ready for the next; 0: never.
    pub spare_seconds: u32,
    /// Network services of a keeper among which networks are spread.
    pub network_shards: usize,
    /// Most domains of a keeper.
    pub keeper_domains: usize,
    /// How long a keeper without domains stays.
    pub keeper_idle_seconds: u32,
    /// What all domains have in common.
    pub domains: doppel_domain::Defaults,
    /// What a domain may have of the network service at once.
    pub network: doppel_net::Quotas,
    /// Which domains hibernate, and who goes on first when memory is short.
    pub gatekeeper: GatekeeperRules,
    /// What of the host's files domains may have.
    pub volumes: Volumes,
    /// The Unix socket, and bounds for all connections.
    pub http: Http,
    /// TCP.
    pub tcp: Tcp,
    /// Logs.
    pub log: Log,
}

/// What of the host's files domains may have.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Volumes {
    /// Directories below which sources of binds may lie.
    pub binds: Vec<PathBuf>,
}

/// The Unix socket, and bounds for all connections.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// The socket; `doppeld.sock` in the runtime directory if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Group that may use it.
    pub group: String,
    /// Most connections at once.
    pub connections: usize,
    /// Seconds a client has for the head of a request.
    pub head_seconds: f64,
}

/// TCP: off without an address.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// PEM file of the certificate chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// File of tokens.
    pub tokens: PathBuf,
}

/// Logs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// How much.
    pub level: String,
    /// How.
    pub format: Format,
}

/// How logs look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// For the journal if it reads standard error, else text.
    #[default]
    Auto,
    /// Lines of text.
    Text,
    /// Lines of JSON.
    Json,
    /// Lines with a priority, without a time, as the journal wants them.
    Journal,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: "/var/lib/doppel".into(),
            runtime: "/run/doppel".into(),
            spare_seconds: 10,
            network_shards: 1,
            keeper_domains: 256,
            keeper_idle_seconds: 60,
            domains: doppel_domain::Defaults::default(),
            network: doppel_net::Quotas::default(),
            gatekeeper: GatekeeperRules::default(),
            volumes: Volumes::default(),
            http: Http::default(),
            tcp: Tcp::default(),
            log: Log::default(),
        }
    }
}

impl Default for Volumes {
    fn default() -> Self {
        Self { binds: vec!["/".into()] }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self { socket: None, group: "doppel".into(), connections: 4096, head_seconds: 15.0 }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self { listen: None, certificate: None, key: None, tokens: "/etc/doppel/tokens".into() }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: Format::Auto }
    }
}

/// What the command line sets.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Instead of `store`.
    pub store: Option<PathBuf>,
    /// Instead of `runtime`.
    pub runtime: Option<PathBuf>,
    /// Instead of `http.socket`.
    pub socket: Option<PathBuf>,
    /// Instead of `network_shards`.
    pub network_shards: Option<usize>,
    /// Instead of `log.level`.
    pub level: Option<String>,
    /// Instead of `log.format`.
    pub format: Option<Format>,
}

impl Settings {
    /// Reads and checks them.
    pub fn read(file: Option<&Path>, overrides: &Overrides) -> Result<Self, String> {
        let path = file.unwrap_or(Path::new(DEFAULT));
        let text = match std::fs::read_to_string(path) {
            Err(e) if file.is_none() && e.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|e| format!("{}: {e}", path.display()))?,
        };
        let mut settings: Self =
            toml::from_str(&text).map_err(|e| format!("{}: {}", path.display(), e.to_string().trim_end()))?;
        let Overrides { store, runtime, socket, network_shards, level, format } = overrides;
        settings.store = store.clone().unwrap_or(settings.store);
        settings.runtime = runtime.clone().unwrap_or(settings.runtime);
        settings.http.socket = socket.clone().or(settings.http.socket);
        settings.network_shards = network_shards.unwrap_or(settings.network_shards);
        settings.log.level = level.clone().unwrap_or(settings.log.level);
        settings.log.format = format.unwrap_or(settings.log.format);
        settings.check().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        for (name, path) in
            [("store", &self.store), ("runtime", &self.runtime), ("tcp.tokens", &self.tcp.tokens)]
        {
            if !path.is_absolute() {
                return Err(format!("{name}: {} is no absolute path", path.display()));
            }
        }
        if let Some(path) = self.volumes.binds.iter().find(|path| !path.is_absolute()) {
            return Err(format!("volumes.binds: {} is no absolute path", path.display()));
        }
        self.log.level()?;
        if self.spare_seconds > 3600 {
            return Err("spare_seconds: must be at most 3600".into());
        }
        if !(1..=doppel_net::SHARDS).contains(&self.network_shards) {
            return Err(format!("network_shards: must be between 1 and {}", doppel_net::SHARDS));
        }
        self.check_domains().map_err(|e| format!("domains.{e}"))?;
        self.network.check().map_err(|e| format!("network.{e}"))?;
        self.gatekeeper.check().map_err(|e| format!("gatekeeper.{e}"))?;
        if !(1..=10_000).contains(&self.keeper_domains) {
            return Err("keeper_domains: must be between 1 and 10,000".into());
        }
        if self.keeper_idle_seconds > 86_400 {
            return Err("keeper_idle_seconds: must be at most 86,400".into());
        }
        if !(1..=1_000_000).contains(&self.http.connections) {
            return Err("http.connections: must be between 1 and 1,000,000".into());
        }
        if !(0.1..=3600.0).contains(&self.http.head_seconds) {
            return Err("http.head_seconds: must be between 0.1 and 3600".into());
        }
        if self.tcp.certificate.is_some() != self.tcp.key.is_some() {
            return Err("tcp.certificate and tcp.key: one is of no use without the other".into());
        }
        match self.tcp.listen {
            Some(address) if self.tcp.certificate.is_none() && !address.ip().is_loopback() => {
                Err(format!("tcp.listen: {address} is not loopback: it needs tcp.certificate and tcp.key"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the limits of domains as those of a request are.
    fn check_domains(&self) -> Result<(), String> {
        self.domains.check()?;
        let resources = self.domains.resources.clone();
        let request = CreateDomain { image: "any".into(), resources, ..CreateDomain::default() };
        request.validate().map_err(|problem| problem.detail.trim_start_matches("resources.").to_owned())
    }

    /// Refuses TCP that nobody could use.
    pub fn check_tokens(&self) -> Result<(), String> {
        let Some(address) = self.tcp.listen else { return Ok(()) };
        let file = &self.tcp.tokens;
        match doppel_supervisor::http::token::read(file) {
            Ok(tokens) if !tokens.is_empty() => Ok(()),
            Ok(_) => Err(format!(
                "tcp.listen: {address} needs a token, and {} has none; `doppeld token add NAME` makes one",
                file.display()
            )),
            Err(e) => Err(format!("tcp.tokens: {}: {e}", file.display())),
        }
    }

    /// The settings as a file would have them.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

impl Log {
    /// The level as a filter.
    pub fn level(&self) -> Result<tracing_subscriber::filter::LevelFilter, String> {
        self.level.parse().map_err(|_| {
            format!("log.level: {:?} is none of off, error, warn, info, debug, trace", self.level)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_the_defaults() {
        let text = include_str!("../../../../packaging/doppeld.toml");
        let example: Settings = toml::from_str(text).expect("the example is valid");
        assert_eq!(example.to_toml(), Settings::default().to_toml());
        // What it shows as comments is valid too.
        let all: String = text
            .lines()
            .filter_map(|l| l.strip_prefix("#:").or((!l.starts_with('#')).then_some(l)))
            .map(|l| format!("{}\n", l.trim()))
            .collect();
        let shown: Settings = toml::from_str(&all).expect("the commented entries are valid");
        shown.check().expect("and make sense");
        assert!(shown.tcp.listen.is_some() && shown.http.socket.is_some(), "{all}");
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, says) in [
            ("stroe = '/x'", "stroe"),
            ("[domains]\nspeculation = 'wild'", "speculation"),
            ("[domains]\nmemory = 'much'", "memory"),
            ("[domains]\npids = 1", "domains.pids: at least 2"),
            ("[domains]\ncpu_weight = 0", "domains.cpu_weight: 0 is not between"),
            ("[domains]\ncpu_reservation = 1.0", "domains.cpu_reservation"),
            ("[domains]\nhugepages = 1", "hugepages"),
            ("[network]\nsockets = 0", "network.sockets"),
            ("[network]\nports = 70000", "network.ports"),
            ("[network]\nreceived_percent = 101", "network.received_percent"),
            ("[network]\nburden_percent = 0", "network.burden_percent"),
            ("[gatekeeper]\nreserve = 'much'", "reserve"),
            ("[gatekeeper]\nquiet_seconds = -1.0", "gatekeeper.quiet_seconds"),
            ("[[gatekeeper.rules]]\npriority = 1", "gatekeeper.rules"),
            ("store = 'x'", "absolute"),
            ("[volumes]\nbinds = ['srv']", "volumes.binds"),
            ("[log]\nlevel = 'loud'", "log.level"),
            ("[log]\nformat = 'xml'", "format"),
            ("[http]\nconnections = 0", "http.connections"),
            ("[tcp]\nlisten = '0.0.0.0:1'", "loopback"),
            ("[tcp]\nkey = '/k'", "tcp.key"),
        ] {
            let file = tempfile::NamedTempFile::new().expect("file");
            std::fs::write(file.path(), text).expect("written");
            let error = Settings::read(Some(file.path()), &Overrides::default()).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
