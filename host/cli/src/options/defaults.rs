//! What the host's administrator has set for domains, for those that are run without the supervisor.

use std::path::PathBuf;

use doppel_domain::Defaults;
use serde::Deserialize;

/// The supervisor's file (`packaging/doppeld.toml`), and the variable that names another.
const FILE: &str = "/etc/doppel/doppeld.toml";
const VARIABLE: &str = "DOPPELD_CONFIG";

/// The rest of the file is the supervisor's own business.
#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    domains: Defaults,
    network: doppel_net::Quotas,
}

/// The table `domains` of the file; what it would be without one if there is none.
pub(crate) fn read() -> Result<Defaults, String> {
    let defaults = file()?.domains;
    defaults.check().map_err(|e| format!("domains.{e}"))?;
    Ok(defaults)
}

/// The same of the table `network`.
pub(crate) fn network() -> Result<doppel_net::Quotas, String> {
    let quotas = file()?.network;
    quotas.check().map_err(|e| format!("network.{e}"))?;
    Ok(quotas)
}

fn file() -> Result<File, String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let path = named.clone().unwrap_or_else(|| FILE.into());
    let text = match std::fs::read_to_string(&path) {
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(File::default());
        }
        text => text.map_err(|e| format!("{}: {e}", path.display()))?,
    };
    toml::from_str(&text).map_err(|e| format!("{}: {}", path.display(), e.to_string().trim_end()))
}
