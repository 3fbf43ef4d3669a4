//! Verbs over the supervisor's interface (`docs/cli.md`).
//!
//! [`supervisor`] is the supervisor a verb must have; [`running`] the one it uses if there is one, for the verbs that
//! do without as well. Exit codes: 1 for a refusal, as Docker's; `run`, `create` and `exec` use 125, 126, 127.

pub mod attached;
pub mod clones;
pub mod create;
pub mod exec;
pub mod images;
pub mod lifecycle;
mod many;
pub mod networks;
pub mod run;
pub mod services;
pub mod show;
pub mod upgrade;
pub mod volumes;
mod waiting;
pub mod watch;

use std::error::Error;
use std::process::ExitCode;

use crate::terminal::out::{TOOL_ERROR, say, tell};
use clap::Args;
use doppel_api::{Code, HOST_VARIABLE};
use doppel_client::Client;
use serde::Serialize;
use serde_json::{Value, json};

/// How a verb ends.
pub type Outcome = Result<ExitCode, Box<dyn Error>>;

/// The supervisor.
pub fn supervisor() -> Result<Client, Box<dyn Error>> {
    Ok(Client::from_env()?)
}

/// The supervisor if one runs. One that the environment names must.
pub fn running() -> Result<Option<Client>, Box<dyn Error>> {
    let client = supervisor()?;
    match client.ping() {
        Ok(()) => Ok(Some(client)),
        Err(e) if std::env::var_os(HOST_VARIABLE).is_some_and(|h| !h.is_empty()) => Err(e.into()),
        Err(_) => Ok(None),
    }
}

/// The supervisor if it is one of its domains.
pub fn keeper_of(domain: &str) -> Result<Option<(Client, doppel_api::Domain)>, Box<dyn Error>> {
    let Some(client) = running()? else { return Ok(None) };
    match client.inspect(domain) {
        Ok(found) => Ok(Some((client, found))),
        Err(e) if e.code() == Some(Code::DomainNotFound) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Several domains, and whether what becomes of them is printed as JSON.
#[derive(Args)]
pub struct Names {
    /// Print one line of JSON each
    #[arg(long)]
    pub json: bool,
    /// Names or ids
    #[arg(required = true)]
    pub domains: Vec<String>,
}

/// Does something to each of several domains: prints its name, or as JSON what the supervisor answers, says what fails,
/// and goes on.
pub fn each<T: Serialize + Send>(
    names: &Names,
    act: impl Fn(&str) -> doppel_client::Result<T> + Sync,
) -> Outcome {
    each_shown(names, act, |name, _| Some(name.to_owned()))
}

/// The same, but prints what `show` makes of an answer, if anything, instead of the name.
pub fn each_shown<T: Serialize + Send>(
    names: &Names,
    act: impl Fn(&str) -> doppel_client::Result<T> + Sync,
    show: impl Fn(&str, &T) -> Option<String>,
) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    let take = |name: &str, answer: doppel_client::Result<T>| {
        match answer {
            Ok(answer) if names.json => say!("{}", as_json(name, &answer)?)?,
            Ok(answer) => {
                if let Some(line) = show(name, &answer) {
                    say!("{line}")?;
                }
            }
            // Nor can the others be asked.
            Err(e @ doppel_client::Error::Unreachable { .. }) => return Err(Stop(failed(&e))),
            Err(e) => {
                tell!("doppel: {e}");
                code = ExitCode::FAILURE;
            }
        }
        Ok(())
    };
    match many::in_order(&names.domains, act, take) {
        Ok(()) => Ok(code),
        Err(Stop(outcome)) => outcome,
    }
}

/// Why the rest is not told.
struct Stop(Outcome);

impl<E: Into<Box<dyn Error>>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self(Err(error.into()))
    }
}

/// An answer as JSON; one that says nothing has the name.
fn as_json(name: &str, answer: &impl Serialize) -> serde_json::Result<Value> {
    Ok(match serde_json::to_value(answer)? {
        Value::Null => json!({ "name": name }),
        value => value,
    })
}

/// Says what failed.
pub fn failed(error: &dyn std::fmt::Display) -> Outcome {
    tell!("doppel: {error}");
    Ok(ExitCode::FAILURE)
}

/// The exit code for a program that could not be started.
pub fn not_started(error: &doppel_client::Error) -> u8 {
    match error.code() {
        Some(Code::CommandNotFound) => 127,
        Some(Code::CommandNotExecutable) => 126,
        _ => TOOL_ERROR,
    }
}

/// Text that came from a domain's maker, fit for a terminal.
pub fn shown(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
