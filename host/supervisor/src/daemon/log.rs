//! Logs on standard error, as text, JSON, or for the journal: what `tracing` events say.

use std::io::{self, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::config::{Format, Log};

/// The logs of this process.
pub struct Logs {
    level: Handle<LevelFilter, Registry>,
}

impl Logs {
    /// Starts them.
    pub fn start(log: &Log) -> Result<Self, String> {
        let (filter, level) = reload::Layer::new(log.level()?);
        // systemd sets it if standard error leads to the journal.
        let journal = std::env::var_os("JOURNAL_STREAM").is_some();
        let layer = match log.format {
            Format::Json => fmt::layer().json().with_writer(io::stderr).boxed(),
            Format::Journal => for_journal(),
            Format::Auto if journal => for_journal(),
            Format::Text | Format::Auto => fmt::layer().with_ansi(false).with_writer(io::stderr).boxed(),
        };
        tracing_subscriber::registry().with(filter).with(layer).try_init().map_err(|e| e.to_string())?;
        Ok(Self { level })
    }

    /// Changes how much is logged.
    pub fn set_level(&self, log: &Log) {
        match log.level() {
            Ok(level) => match self.level.reload(level) {
                Ok(()) => tracing::info!(%level, "log level"),
                Err(e) => tracing::error!("the log level stays: {e}"),
            },
            Err(e) => tracing::error!("the log level stays: {e}"),
        }
    }
}

fn for_journal<S>() -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fmt::layer().without_time().with_level(false).with_ansi(false).with_writer(Journal).boxed()
}

/// Writes the priority before each line (`sd-daemon(3)`).
struct Journal;

impl<'a> MakeWriter<'a> for Journal {
    type Writer = io::Stderr;
    fn make_writer(&'a self) -> io::Stderr {
        io::stderr()
    }
    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> io::Stderr {
        let priority = match *meta.level() {
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        };
        let mut err = io::stderr();
        // There is nowhere to say that it cannot be said.
        let _ = err.write_all(priority.as_bytes());
        err
    }
}
