//! `--tmpfs`, `--mount`, `--volume`, `--read-only`: what is mounted in a domain.

use std::str::FromStr;

use clap::Args;
use doppel_api::{Files, Mount, MountKind};

use crate::options::mounts::{Volume, Words};

/// Options about files.
#[derive(Args, Debug, Default)]
pub struct FileArgs {
    /// Make the root file system read-only; what is mounted on it is not
    #[arg(long)]
    read_only: bool,
    /// Mount an empty file system in memory: `PATH[:OPTION,...]`, with options as of mount(8); nosuid, nodev and noexec unless
    /// said otherwise
    #[arg(long, value_name = "PATH[:OPTIONS]")]
    tmpfs: Vec<Tmpfs>,
    /// Mount a directory or file of the host, a volume, or memory:
    /// `type=bind|volume|tmpfs,source=SOURCE,target=PATH[,readonly][,tmpfs-size=SIZE][,tmpfs-mode=MODE][,volume-nocopy]`
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<Words>,
    /// Mount a volume by its name, or a directory or file of the host by its absolute path: `[SOURCE:]PATH[:OPTIONS]`, with
    /// options as ro and nocopy; without a source a new volume, which goes with the domain
    #[arg(short, long, value_name = "VOLUME")]
    volume: Vec<Volume>,
}

/// What `--tmpfs` says.
#[derive(Clone, Debug)]
struct Tmpfs(Mount);

impl FromStr for Tmpfs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, options) = text.split_once(':').unwrap_or((text, ""));
        let options = options.split(',').filter(|o| !o.is_empty()).map(str::to_owned).collect();
        checked(Mount { kind: MountKind::Tmpfs, target: target.to_owned(), options, ..Mount::default() })
            .map(Self)
    }
}

fn checked(mount: Mount) -> Result<Mount, String> {
    mount.check()?;
    Ok(mount)
}

impl FileArgs {
    /// What they ask for.
    pub fn given(&self) -> Files {
        let tmpfs = self.tmpfs.iter().map(|m| &m.0);
        let all = tmpfs.chain(self.mount.iter().map(|m| &m.0)).chain(self.volume.iter().map(|m| &m.0));
        Files { read_only: self.read_only, mounts: all.cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_dockers_users_write_it() {
        let mount = |text: &str| text.parse::<Words>().map(|m| m.0);
        let tmpfs = |text: &str| text.parse::<Tmpfs>().map(|m| m.0);
        assert_eq!(
            tmpfs("/run:size=64m,mode=755").unwrap(),
            mount("type=tmpfs,dst=/run,tmpfs-size=64m,tmpfs-mode=755").unwrap()
        );
        assert!(tmpfs("/run").unwrap().options.is_empty());
        for wrong in ["run", "/run:size=much", "/run:bind", "/"] {
            tmpfs(wrong).unwrap_err();
        }
    }
}
