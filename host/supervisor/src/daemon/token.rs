//! `doppeld token`.

use std::error::Error;
use std::path::Path;

use clap::Subcommand;
use doppel_supervisor::http::token;

use super::config::{Overrides, Settings};

/// What to do with tokens.
#[derive(Subcommand)]
pub enum TokenVerb {
    /// Make one and print it; it is shown this once only
    Add {
        /// Whose it is
        name: String,
    },
    /// List their names and when they were made (seconds since 1970)
    List,
    /// Remove one; it is refused from then on
    Rm {
        /// Whose it was
        name: String,
    },
}

/// Does it.
pub fn run(config: Option<&Path>, what: &TokenVerb) -> Result<(), Box<dyn Error>> {
    let file = Settings::read(config, &Overrides::default())?.tcp.tokens;
    let named = |e: std::io::Error| format!("{}: {e}", file.display());
    match what {
        TokenVerb::Add { name } => println!("{}", token::add(&file, name).map_err(named)?),
        TokenVerb::List => {
            for t in token::read(&file).map_err(named)? {
                println!("{}\t{}", t.name, t.created);
            }
        }
        TokenVerb::Rm { name } => token::remove(&file, name).map_err(named)?,
    }
    Ok(())
}
