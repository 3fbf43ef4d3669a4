//! `--tmpfs`, `--mount`, `--volume`, `--read-only`, `--persist`, `--block-device`: what is mounted in a domain, what is kept, and
//! its disks.

use std::str::FromStr;

use clap::Args;
use doppel_api::{BlockDevice, Files, Mount, MountKind};

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
    /// Keep what the domain changes of its image's files, for when it is started again, as the supervisor's domains without --rm
    /// do; with a name also for other domains of the image after it. A domain without the supervisor has that of its --name
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = layer)]
    persist: Option<String>,
    /// Keep what the domain changes in memory, where it ends with each run
    #[arg(long, conflicts_with = "persist")]
    no_persist: bool,
    /// Give the domain a disk (`doppel disk`), which it finds as /dev/vda, /dev/vdb, … in their order: `NAME[:ro]`, with `ro` to
    /// read it only, as other domains may at the same time
    #[arg(long, value_name = "DISK", value_parser = block_device)]
    block_device: Vec<BlockDevice>,
}

/// A disk, and whether it is only read.
fn block_device(text: &str) -> Result<BlockDevice, String> {
    let (name, read_only) = match text.split_once(':') {
        None | Some((_, "rw")) => (text.trim_end_matches(":rw"), false),
        Some((name, "ro")) => (name, true),
        Some((_, other)) => return Err(format!("{other:?}: a disk is ro or rw")),
    };
    doppel_spec::check_disk_name(name)?;
    Ok(BlockDevice { name: name.to_owned(), read_only })
}

/// The name of a layer, or none: it is the domain's own.
fn layer(name: &str) -> Result<String, String> {
    if !name.is_empty() {
        doppel_spec::check_layer_name(name)?;
    }
    Ok(name.to_owned())
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
        Files {
            read_only: self.read_only,
            mounts: all.cloned().collect(),
            persist: (self.persist.is_some() || self.no_persist).then_some(!self.no_persist),
            layer: self.persist.clone().filter(|name| !name.is_empty()),
            disks: self.block_device.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_written_to_unless_they_are_read_only() {
        let disk = |name: &str, read_only| Ok(BlockDevice { name: name.into(), read_only });
        assert_eq!(block_device("db"), disk("db", false));
        assert_eq!(block_device("db:rw"), disk("db", false));
        assert_eq!(block_device("db:ro"), disk("db", true));
        for wrong in ["db:", "db:rx", "/dev/sda", "db:ro:rw", ""] {
            block_device(wrong).unwrap_err();
        }
    }

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
