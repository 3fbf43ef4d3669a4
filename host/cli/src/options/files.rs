//! `--tmpfs`, `--mount`, `--read-only`: what is mounted in a domain.

use std::str::FromStr;

use clap::Args;
use doppel_api::{Files, Mount, MountKind};

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
    /// The same in words: `type=tmpfs,target=PATH[,tmpfs-size=SIZE][,tmpfs-mode=MODE][,readonly]`
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<Words>,
}

/// What `--tmpfs` says.
#[derive(Clone, Debug)]
struct Tmpfs(Mount);

impl FromStr for Tmpfs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, options) = text.split_once(':').unwrap_or((text, ""));
        let options = options.split(',').filter(|o| !o.is_empty()).map(str::to_owned).collect();
        checked(Mount { kind: MountKind::Tmpfs, target: target.to_owned(), options }).map(Self)
    }
}

/// What `--mount` says.
#[derive(Clone, Debug)]
struct Words(Mount);

impl FromStr for Words {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split(',').find_map(|word| word.strip_prefix("type=")) {
            Some("tmpfs") => {}
            // Docker's own default.
            None | Some("bind" | "volume") => {
                return Err(
                    "domains have no volumes and no directories of the host yet: `doppel cp` copies, \
                            and type=tmpfs is memory"
                        .into(),
                );
            }
            Some(kind) => return Err(format!("type={kind}: only type=tmpfs can be mounted")),
        }
        let mut mount = Mount::default();
        for word in text.split(',') {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "type" => {}
                "target" | "destination" | "dst" => value.clone_into(&mut mount.target),
                "tmpfs-size" => mount.options.push(format!("size={value}")),
                "tmpfs-mode" => mount.options.push(format!("mode={value}")),
                "readonly" | "ro" if matches!(value, "" | "1" | "true") => mount.options.push("ro".into()),
                "readonly" | "ro" if matches!(value, "0" | "false") => {}
                "source" | "src" => return Err(format!("{word:?}: a tmpfs has no source")),
                _ => {
                    return Err(format!(
                        "{word:?} is not type=, target=, tmpfs-size=, tmpfs-mode= or readonly"
                    ));
                }
            }
        }
        checked(mount).map(Self)
    }
}

fn checked(mount: Mount) -> Result<Mount, String> {
    mount.check()?;
    Ok(mount)
}

impl FileArgs {
    /// What they ask for.
    pub fn given(&self) -> Files {
        let tmpfs = self.tmpfs.iter().map(|m| m.0.clone());
        Files {
            read_only: self.read_only,
            mounts: tmpfs.chain(self.mount.iter().map(|m| m.0.clone())).collect(),
        }
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
        assert_eq!(mount("type=tmpfs,target=/a,readonly").unwrap().options, ["ro"]);
        assert!(tmpfs("/run").unwrap().options.is_empty());
        for wrong in ["run", "/run:size=much", "/run:bind", "/"] {
            tmpfs(wrong).unwrap_err();
        }
        for (wrong, why) in [
            ("type=tmpfs,src=/a,dst=/b", "no source"),
            ("type=volume,dst=/b", "no volumes"),
            ("dst=/b", "no volumes"),
            ("type=npipe,dst=/b", "only type=tmpfs"),
            ("type=tmpfs", "no place"),
            ("type=tmpfs,dst=/b,size=1", "is not type="),
            ("type=tmpfs,dst=/b,tmpfs-mode=9", "no mode"),
        ] {
            let said = mount(wrong).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
