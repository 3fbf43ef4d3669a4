//! `doppeld`: domain 0.
#![forbid(unsafe_code)]

mod daemon;

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use daemon::config::{Format, Overrides};
use doppel_domain::Defaults;
use doppel_supervisor::keeper::KeeperConfig;

/// Domain 0: serves the interface over domains, images and frozen images.
#[derive(Parser)]
#[command(name = "doppeld", version, max_term_width = 100, subcommand_negates_reqs = true)]
struct Cli {
    #[command(flatten)]
    serve: Serve,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Args)]
struct Serve {
    /// Configuration file; the default one may be missing
    #[arg(long, value_name = "FILE", env = "DOPPELD_CONFIG", global = true)]
    config: Option<PathBuf>,
    /// Directory of images, frozen images and state
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Directory of sockets and other things of this boot
    #[arg(long, value_name = "DIR")]
    runtime: Option<PathBuf>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Network services among which networks are spread
    #[arg(long, value_name = "N")]
    network_shards: Option<usize>,
    /// How much is logged: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How it is logged
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
    /// Read and check the configuration, print it as it counts, and end
    #[arg(long)]
    check: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Bearer tokens for TCP
    Token {
        #[command(subcommand)]
        what: daemon::token::TokenVerb,
    },
    /// Holds the running domains; doppeld starts it by itself
    #[command(hide = true)]
    Keep {
        /// Directory of images, frozen images and state
        #[arg(long, value_name = "DIR")]
        store: PathBuf,
        /// Directory of sockets and other things of this boot
        #[arg(long, value_name = "DIR")]
        runtime: PathBuf,
        /// How many network services
        #[arg(long, value_name = "N", default_value_t = 1)]
        network_shards: usize,
        /// What all domains have in common
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = defaults)]
        defaults: Box<Defaults>,
        /// What the supervisor has of its domains' memory is said on standard input
        #[arg(long)]
        held: bool,
    },
    /// Prints the interface as an OpenAPI 3.1 document
    Openapi,
    /// Says what this program is; a supervisor that is to go on as it asks
    #[command(hide = true)]
    About,
    /// A storage service domain; the keeper starts it
    #[command(name = doppel_storage::SERVICE, hide = true)]
    StorageService {
        /// Sleep whenever there is nothing to do.
        #[arg(long)]
        no_polling: bool,
    },
    /// A network service domain; the keeper starts it
    #[command(name = doppel_net::SERVICE, hide = true)]
    NetworkService {
        /// Sleep whenever there is nothing to do.
        #[arg(long)]
        no_polling: bool,
        /// It does not end with its keeper.
        #[arg(long)]
        outlives: bool,
    },
}

fn defaults(json: &str) -> Result<Box<Defaults>, serde_json::Error> {
    serde_json::from_str(json)
}

/// Whoever reads may have gone.
fn print(text: &str) -> Result<(), Box<dyn std::error::Error>> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn main() -> ExitCode {
    if let Some(code) = doppel_paene::attend() {
        return code;
    }
    let cli = Cli::parse();
    let result = match cli.verb {
        Some(Verb::Token { what }) => daemon::token::run(cli.serve.config.as_deref(), &what),
        Some(Verb::Keep { store, runtime, network_shards, defaults, held }) => {
            defaults.choose();
            daemon::keep(KeeperConfig { store, runtime, network_shards, held })
        }
        Some(Verb::Openapi) => print(&format!("{:#}", doppel_supervisor::http::document())),
        Some(Verb::About) => daemon::about(),
        Some(Verb::StorageService { no_polling }) => {
            match doppel_storage::serve(std::io::stdin().as_fd(), !no_polling) {
                Ok(code) => return code,
                Err(error) => Err(error.into()),
            }
        }
        Some(Verb::NetworkService { no_polling, outlives }) => {
            doppel_net::serve(std::io::stdin().as_fd(), !no_polling, outlives).map_err(Into::into)
        }
        None => {
            let Serve { config, store, runtime, socket, network_shards, log_level, log_format, check } =
                cli.serve;
            let overrides =
                Overrides { store, runtime, socket, network_shards, level: log_level, format: log_format };
            daemon::serve(config, overrides, check)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("doppeld: {e}");
            ExitCode::FAILURE
        }
    }
}
