//! What the host's administrator has set for domains, for those that are run without the supervisor.

use std::path::PathBuf;

use doppel_domain::Defaults;
use serde::Deserialize;

/// The supervisor's file (`packaging/doppeld.toml`), and the variable that names another.
const FILE: &str = "/etc/doppel/doppeld.toml";
const VARIABLE: &str = "DOPPELD_CONFIG";

/// The rest of the file is the supervisor's own business.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    domains: Defaults,
}

/// The table `domains` of the file; what it would be without one if there is none.
pub(crate) fn read() -> Result<Defaults, String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let path = named.clone().unwrap_or_else(|| FILE.into());
    let text = match std::fs::read_to_string(&path) {
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Defaults::default());
        }
        text => text.map_err(|e| format!("{}: {e}", path.display()))?,
    };
    let file: File =
        toml::from_str(&text).map_err(|e| format!("{}: {}", path.display(), e.to_string().trim_end()))?;
    Ok(file.domains)
}
