//! Root images and frozen images of a supervisor on another host: what `doppel image` and `frozen` do then.
//!
//! A supervisor of this host shares the store with this command, which works on it directly; one that is reached over TCP
//! has a store of its own, and is asked for what the interface has.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use doppel_api::{
    Code, FrozenImage, Image, ImagePruneReport, Operation, OperationState, PullImage, PushImage,
};
use doppel_client::{Client, Upload, query, segment};
use serde::Serialize;
use serde_json::{Value, json};

use crate::standalone::image::{COLUMNS, bytes};
use crate::terminal::bars::Bars;
use crate::terminal::format::Format;
use crate::terminal::out::say;
use crate::terminal::time;

/// How often a terminal's bars are brought up to date.
const LOOK: Duration = Duration::from_millis(200);

/// The supervisor of another host, if `DOPPEL_HOST` names one and `local` does not ask for the store here.
pub fn elsewhere(local: bool) -> Result<Option<Client>, Box<dyn Error>> {
    let client = super::supervisor()?;
    Ok((!local && client.is_elsewhere()).then_some(client))
}

/// What only works on the store of this host.
pub fn not_over_there(verb: &str) -> Box<dyn Error> {
    format!("{verb} works on a store of this host only, and DOPPEL_HOST names another host").into()
}

fn path(image: &str) -> String {
    format!("/v1/images/{}", segment(image))
}

fn print(value: &impl Serialize, json: bool, text: &str) -> Result<(), Box<dyn Error>> {
    match json {
        true => say!("{}", serde_json::to_string(value)?)?,
        false => say!("{text}")?,
    }
    Ok(())
}

/// `image ls`.
pub fn list(client: &Client, quiet: bool, format: &Format) -> Result<(), Box<dyn Error>> {
    let images: Vec<Image> = client.json("GET", "/v1/images", Upload::None)?;
    if quiet {
        for image in &images {
            say!("{}", image.name)?;
        }
        return Ok(());
    }
    let rows = images.iter().map(|i| match format {
        Format::Json => serde_json::to_value(i),
        _ => Ok(json!({
            "Name": i.name, "ID": i.digest.get(..12).unwrap_or(&i.digest), "Digest": format!("sha256:{}", i.digest),
            "Size": bytes(i.size_bytes), "Files": i.files, "CreatedSince": time::ago(&i.created_at),
            "CreatedAt": i.created_at, "Source": super::shown(&i.source),
        })),
    });
    let rows: Vec<Value> = rows.collect::<Result<_, _>>()?;
    format.print(&rows, &COLUMNS)
}

/// `image rm`.
pub fn remove(client: &Client, names: &[String], force: bool, json: bool) -> Result<(), Box<dyn Error>> {
    for name in names {
        match client.done("DELETE", &path(name), Upload::None) {
            Err(e) if force && e.code() == Some(Code::ImageNotFound) => continue,
            done => done?,
        }
        print(&json!({ "removed": name }), json, &format!("removed: {name}"))?;
    }
    Ok(())
}

/// `image inspect`: what is recorded; bytes are not checked from afar.
pub fn inspect(client: &Client, name: &str) -> Result<(), Box<dyn Error>> {
    let image: Image = client.json("GET", &path(name), Upload::None)?;
    Ok(say!("{}", serde_json::to_string_pretty(&image)?)?)
}

/// Waits for the end of an operation.
fn finished(client: &Client, begun: &Operation) -> Result<Value, Box<dyn Error>> {
    let path = format!("/v1/operations/{}", segment(&begun.id));
    let bars = Bars::new();
    let done = loop {
        // Whoever looks at a terminal is told how far it is.
        let path = if bars.are_shown() { path.clone() } else { format!("{path}?wait=true") };
        let now: Operation = client.json("GET", &path, Upload::None)?;
        if now.state != OperationState::Running {
            break now;
        }
        bars.told(&now.progress.step, now.progress.done_bytes, now.progress.total_bytes);
        std::thread::sleep(LOOK);
    };
    drop(bars);
    match (done.state, done.problem) {
        (OperationState::Succeeded, _) => Ok(done.result.unwrap_or_default()),
        (_, Some(problem)) => Err(problem.detail.into()),
        (state, None) => Err(format!("{} ended as {state:?}", done.kind).into()),
    }
}

/// `image pull`.
pub fn pull(client: &Client, wanted: &PullImage, json: bool) -> Result<(), Box<dyn Error>> {
    let begun = client.post("/v1/images/pull", wanted)?;
    let result = finished(client, &begun)?;
    let name = wanted.name.as_ref().unwrap_or(&wanted.reference);
    print(&result, json, &format!("{name}: pulled by {}", client.place()))
}

/// `image push`.
pub fn push(client: &Client, wanted: &PushImage, json: bool) -> Result<(), Box<dyn Error>> {
    let begun = client.post("/v1/images/push", wanted)?;
    let result = finished(client, &begun)?;
    print(&result, json, &format!("{}: pushed by {}", wanted.reference, client.place()))
}

/// `image import` of an archive.
pub fn import(client: &Client, source: &Path, name: &str, json: bool) -> Result<(), Box<dyn Error>> {
    let mut file: Box<dyn Read> = match source.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false if source.is_dir() => {
            return Err("a directory cannot be sent; tar it, or give an archive".into());
        }
        false => Box::new(File::open(source).map_err(|e| format!("cannot open {}: {e}", source.display()))?),
    };
    let to = query("/v1/images/import", &doppel_api::ImportImage { name: name.into() });
    let image: Image = client.json("POST", &to, Upload::Stream(&mut file))?;
    let text = format!(
        "{}: {}, {} files, sha256:{}",
        image.name,
        bytes(image.size_bytes),
        image.files,
        image.digest
    );
    print(&image, json, &text)
}

/// `image prune`.
pub fn prune(client: &Client, json: bool) -> Result<(), Box<dyn Error>> {
    let report: ImagePruneReport = client.json("POST", "/v1/images/prune", Upload::None)?;
    let text = format!("{} blobs removed: {}", report.removed.len(), bytes(report.freed_bytes));
    print(&report, json, &text)
}

/// `frozen ls`.
pub fn frozen_list(client: &Client, quiet: bool, format: &Format) -> Result<(), Box<dyn Error>> {
    let images: Vec<FrozenImage> = client.json("GET", "/v1/frozen", Upload::None)?;
    if quiet {
        for image in &images {
            say!("{}", image.name)?;
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for image in &images {
        let mut row = serde_json::to_value(image)?;
        if matches!(format, Format::Default) {
            row["used"] = bytes(image.size_bytes).into();
            row["elsewhere"] = bytes(image.ancestors_bytes).into();
            row["place"] = if image.in_memory { "memory" } else { "disk" }.into();
        }
        rows.push(row);
    }
    let columns = [
        ("NAME", "name"),
        ("PLACE", "place"),
        ("USED", "used"),
        ("IN ANCESTORS", "elsewhere"),
        ("IMAGE", "image"),
        ("DOMAIN", "hostname"),
    ];
    format.print(&rows, &columns)
}

/// `frozen inspect`.
pub fn frozen_inspect(client: &Client, names: &[String], format: &Format) -> Result<(), Box<dyn Error>> {
    for name in names {
        let image: Value = client.json("GET", &format!("/v1/frozen/{}", segment(name)), Upload::None)?;
        match format {
            Format::Default => say!("{}", serde_json::to_string_pretty(&image)?)?,
            format => format.print(&[image], &[])?,
        }
    }
    Ok(())
}

/// `frozen flatten`.
pub fn frozen_flatten(client: &Client, names: &[String]) -> Result<(), Box<dyn Error>> {
    for name in names {
        let path = format!("/v1/frozen/{}/flatten", segment(name));
        let image: FrozenImage = client.json("POST", &path, Upload::None)?;
        say!("{name}: {}", bytes(image.size_bytes))?;
    }
    Ok(())
}

/// `frozen rm`.
pub fn frozen_remove(client: &Client, names: &[String]) -> Result<(), Box<dyn Error>> {
    for name in names {
        client.done("DELETE", &format!("/v1/frozen/{}", segment(name)), Upload::None)?;
    }
    Ok(())
}
