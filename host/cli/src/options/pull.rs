//! `--pull` of `run` and `create`: an image that is to come from its registry first.

use std::error::Error;
use std::time::Duration;

use clap::ValueEnum;
use doppel_api::{Code, Operation, OperationState, PullImage};
use doppel_client::{Client, Upload, segment};
use doppel_image::{Limits, Store};
use doppel_oci::{Cancel, Platform, Pull};

use crate::terminal::bars::Bars;

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PullPolicy {
    /// Whether it is there or not.
    Always,
    /// If it is not there.
    Missing,
    /// Not at all: a name that is mistyped asks nobody.
    #[default]
    Never,
}

/// Pulls an image if it is to be: into this host's store, or by the supervisor.
pub fn pull(image: &str, when: PullPolicy, client: Option<&Client>) -> Result<(), Box<dyn Error>> {
    let is_path = image.starts_with(['/', '.']) || image.ends_with(".erofs");
    if is_path || when == PullPolicy::Never {
        return Ok(());
    }
    match client {
        Some(client) => by_supervisor(client, image, when),
        None => here(image, when),
    }
}

fn here(image: &str, when: PullPolicy) -> Result<(), Box<dyn Error>> {
    let store = Store::from_env();
    if when == PullPolicy::Missing && store.find(image).is_ok() {
        return Ok(());
    }
    let pull = Pull {
        reference: image.parse()?,
        name: None,
        platform: Platform::default(),
        plain_http: false,
        credentials: None,
        timeout: Duration::from_secs(30),
        limits: Limits::default(),
    };
    let bars = Bars::new();
    pull.run(&bars.watch(&store), &bars, &Cancel::default())?;
    Ok(())
}

fn by_supervisor(client: &Client, image: &str, when: PullPolicy) -> Result<(), Box<dyn Error>> {
    if when == PullPolicy::Missing {
        match client.done("GET", &format!("/v1/images/{}", segment(image)), Upload::None) {
            Err(e) if e.code() == Some(Code::ImageNotFound) => {}
            known => return Ok(known?),
        }
    }
    let wanted = PullImage { reference: image.to_owned(), ..PullImage::default() };
    let begun: Operation = client.post("/v1/images/pull", &wanted)?;
    let path = format!("/v1/operations/{}?wait=true", segment(&begun.id));
    let done: Operation = client.json("GET", &path, Upload::None)?;
    match (done.state, done.problem) {
        (OperationState::Succeeded, _) => Ok(()),
        (_, Some(problem)) => Err(problem.detail.into()),
        (state, None) => Err(format!("the pull of {image} ended as {state:?}").into()),
    }
}
