//! The audit log: a line of JSON for every control operation.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use doppel_api::Problem;
use serde::Serialize;

use crate::jobs::failed;
use crate::{locked, time};

/// A file that has grown to this becomes `audit.log.1`.
const LARGEST: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    file: Mutex<(File, u64)>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    who: &'a str,
    what: &'a str,
    status: u16,
}

fn open(path: &Path) -> std::io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

impl Audit {
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let file = open(path).map_err(failed("open", path))?;
        Ok(Self { path: path.into(), file: Mutex::new(file) })
    }

    /// Writes a line.
    pub fn add(&self, who: &str, what: &str, status: u16) {
        let mut line = match serde_json::to_vec(&Line { time: time::now(), who, what, status }) {
            Ok(line) => line,
            Err(error) => return tracing::error!("audit log: {error}"),
        };
        line.push(b'\n');
        let mut file = locked(&self.file);
        let written = (|| {
            if file.1 >= LARGEST {
                fs::rename(&self.path, self.path.with_added_extension("1"))?;
                *file = open(&self.path)?;
            }
            file.0.write_all(&line)
        })();
        match written {
            Ok(()) => file.1 += line.len() as u64,
            // Said where it will be seen: what was done is done.
            Err(error) => {
                tracing::error!("audit log: {error}: {}", String::from_utf8_lossy(&line).trim_end())
            }
        }
    }
}
