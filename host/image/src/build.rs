//! Images from Debian packages, made by mmdebstrap, whose archive is read from a pipe.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::IoContext;
use crate::store::{Record, Source, Store, check_name};
use crate::tree::Limits;
use crate::{Error, Result};

/// What to build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Debian suite, as in `bookworm`.
    pub suite: String,
    /// Packages beside the suite's essential ones.
    pub packages: Vec<String>,
    /// Where packages come from; by default the host's own Debian mirror, or the public one.
    pub mirror: Option<String>,
}

/// Makes the image independent of the host it was built on. `$1` is the root, `$SUITE` the suite.
const NEUTRAL: &str = r#"cd "$1" && echo "deb http://deb.debian.org/debian $SUITE main" > etc/apt/sources.list &&
rm -rf etc/apt/sources.list.d/* etc/resolv.conf etc/hostname var/log/*.log var/log/apt &&
echo doppel > etc/hostname && : > etc/resolv.conf &&
printf '127.0.0.1\tlocalhost doppel\n::1\tlocalhost ip6-localhost\n' > etc/hosts"#;

impl Store {
    /// Whether `name` was built from just this suite and these packages, and patched as it would be now.
    #[must_use]
    pub fn is_built(&self, name: &str, build: &Build) -> bool {
        let same = |r: &Record| r.source == build.source();
        self.open(name).is_ok_and(|image| same(&image.record) && self.patched_alike(&image.record))
    }

    /// Builds image `name` from Debian packages.
    pub fn build(&self, name: &str, build: &Build, limits: Limits) -> Result<Record> {
        check_name(name)?;
        build.check()?;
        let mut log = tempfile::tempfile().doing("create a file in", &std::env::temp_dir())?;
        let errors = log.try_clone().doing("copy a descriptor of", Path::new("the log"))?;
        let mut command = Command::new("mmdebstrap");
        command.args(["--variant=minbase", "--format=tar", "--components=main", "--quiet"]);
        command.args(["--aptopt=APT::Install-Recommends \"false\""]);
        if !build.packages.is_empty() {
            command.arg(format!("--include={}", build.packages.join(",")));
        }
        command.arg(format!("--customize-hook={NEUTRAL}")).env("SUITE", &build.suite);
        command.arg("--").arg(&build.suite).arg("-").args(build.mirror.clone().or_else(host_mirror));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::MissingTool("mmdebstrap")),
            other => other.doing("run", Path::new("mmdebstrap"))?,
        };
        let Some(mut output) = child.stdout.take() else { return Err(Error::MissingTool("mmdebstrap")) };
        // The archive counts only when its maker says it succeeded.
        let staged = self.stage_tar(&mut output, limits);
        drop(output);
        let status = child.wait().doing("wait for", Path::new("mmdebstrap"))?;
        // When we stopped reading, its failure (a broken pipe) is only the consequence of ours.
        let ours = matches!(staged, Err(Error::Io { .. } | Error::TooLarge { .. }));
        if !status.success() && !ours {
            let mut text = String::new();
            let read = log.rewind().and_then(|()| log.read_to_string(&mut text));
            read.doing("read", Path::new("the log of mmdebstrap"))?;
            let lines: Vec<_> = text.lines().collect();
            let output = lines[lines.len().saturating_sub(12)..].join("\n");
            return Err(Error::Tool { tool: "mmdebstrap", status: status.to_string(), output });
        }
        staged?.publish(name, build.source(), None)
    }
}

impl Build {
    /// The source as the record keeps it.
    fn source(&self) -> Source {
        let mut packages = self.packages.clone();
        packages.sort();
        packages.dedup();
        Source::Packages { suite: self.suite.clone(), packages }
    }

    /// Refuses what mmdebstrap would take for something else than a suite or a package.
    fn check(&self) -> Result<()> {
        let word = |s: &String| {
            s.starts_with(|c: char| c.is_ascii_alphanumeric())
                && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.:=~".contains(&b))
        };
        match std::iter::once(&self.suite).chain(&self.packages).find(|s| !word(s)) {
            Some(bad) => Err(Error::source(bad.as_bytes(), "is not the name of a Debian package or suite")),
            None => Ok(()),
        }
    }
}

/// The Debian mirror this host uses itself, if it is a Debian host.
fn host_mirror() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    if !release.lines().any(|l| l == "ID=debian") {
        return None;
    }
    let mut files: Vec<_> =
        fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    files.iter().filter_map(|f| fs::read_to_string(f).ok()).find_map(|text| mirror_in(&text))
}

/// The first main archive in the text of a sources file of either format.
fn mirror_in(text: &str) -> Option<String> {
    let good = |uri: &str| uri.starts_with("http") && uri.trim_end_matches('/').ends_with("/debian");
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("URIs:" | "deb")).then(|| words.find(|w| good(w)).map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests;
