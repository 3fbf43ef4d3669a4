//! `--mount` and `--volume`, as Docker's users write them.

use std::path::Path;
use std::str::FromStr;

use doppel_api::{Mount, MountKind};

/// Words of `--volume` that change nothing here: there are no labels of SELinux, and files are looked up on the host.
const WITHOUT_EFFECT: [&str; 7] = ["z", "Z", "cached", "delegated", "consistent", "private", "rprivate"];
/// Ways of propagation that are not to be had.
const PROPAGATION: [&str; 4] = ["shared", "rshared", "slave", "rslave"];

/// What `--mount` says.
#[derive(Clone, Debug)]
pub struct Words(pub Mount);

/// What `--volume` says.
#[derive(Clone, Debug)]
pub struct Volume(pub Mount);

fn checked(mount: Mount) -> Result<Mount, String> {
    mount.check()?;
    Ok(mount)
}

fn no_propagation(word: &str) -> String {
    format!(
        "{word}: what is mounted on the host later is not seen in a domain; only rprivate, the default, is possible"
    )
}

/// A relative path is the caller's: others have another working directory.
fn absolute(path: &str) -> Result<String, String> {
    if !path.starts_with('.') {
        return Ok(path.to_owned());
    }
    let full = std::path::absolute(Path::new(path)).map_err(|e| format!("{path:?}: {e}"))?;
    full.to_str().map(str::to_owned).ok_or_else(|| format!("{path:?} is no UTF-8"))
}

impl FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, options) = match parts.as_slice() {
            [target] => (None, *target, ""),
            [source, target] => (Some(*source), *target, ""),
            [source, target, options] => (Some(*source), *target, *options),
            _ => return Err(format!("{text:?} has too many parts: SOURCE:TARGET[:OPTIONS]")),
        };
        if source == Some("") {
            return Err(format!("{text:?} has no source: a name, or an absolute path of the host"));
        }
        let source = source.map(absolute).transpose()?;
        let bind = source.as_ref().is_some_and(|s| s.starts_with('/'));
        let kind = if bind { MountKind::Bind } else { MountKind::Volume };
        let mut mount =
            Mount { kind, source, target: target.to_owned(), create_source: bind, ..Mount::default() };
        for word in options.split(',').filter(|word| !word.is_empty()) {
            match word {
                "nocopy" if bind => {
                    return Err("nocopy is for a volume, and this is a directory of the host".into());
                }
                "nocopy" => mount.no_copy = true,
                word if word.starts_with("on-clone=") => {
                    mount.on_clone = word["on-clone=".len()..].parse()?
                }
                "U" => return Err("U: owners of the host's files are not changed for a domain".into()),
                "cached" if bind => mount.cached = true,
                word if WITHOUT_EFFECT.contains(&word) => {}
                word if PROPAGATION.contains(&word) => return Err(no_propagation(word)),
                word => mount.options.push(word.to_owned()),
            }
        }
        checked(mount).map(Self)
    }
}

/// Fields between commas; one in quotation marks may have some, and a mark is written twice there.
fn fields(text: &str) -> Result<Vec<String>, String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(last) = all.last_mut() else { break };
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => last.extend(letters.next()),
            '"' if quoted || last.is_empty() => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            letter => last.push(letter),
        }
    }
    if quoted { Err(format!("{text:?} has an open quotation mark")) } else { Ok(all) }
}

/// What a key without a value, or with one, says.
fn is_true(word: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(_) => Err(format!("{word:?} is neither true nor false")),
    }
}

impl FromStr for Words {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = fields(text)?;
        let kind = match words.iter().find_map(|word| word.strip_prefix("type=")) {
            Some("tmpfs") => MountKind::Tmpfs,
            Some("bind") => MountKind::Bind,
            // Docker's own default.
            None | Some("volume") => MountKind::Volume,
            Some(kind) => return Err(format!("type={kind}: there are bind, volume and tmpfs")),
        };
        let mut mount = Mount { kind, ..Mount::default() };
        for word in &words {
            add(&mut mount, word)?;
        }
        checked(mount).map(Self)
    }
}

/// A word of `--mount`.
fn add(mount: &mut Mount, word: &str) -> Result<(), String> {
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    };
    let text = value.unwrap_or_default();
    match (key, mount.kind) {
        ("type", _) => {}
        ("target" | "destination" | "dst", _) => text.clone_into(&mut mount.target),
        ("source" | "src", MountKind::Tmpfs) => return Err(format!("{word:?}: a tmpfs has no source")),
        ("source" | "src", MountKind::Bind) => mount.source = Some(absolute(text)?),
        ("source" | "src", MountKind::Volume) => mount.source = (!text.is_empty()).then(|| text.to_owned()),
        ("readonly" | "ro", _) => {
            if is_true(word, value)? {
                mount.options.push("ro".into());
            }
        }
        ("tmpfs-size", MountKind::Tmpfs) => mount.options.push(format!("size={text}")),
        ("tmpfs-mode", MountKind::Tmpfs) => mount.options.push(format!("mode={text}")),
        ("volume-nocopy", MountKind::Volume) => mount.no_copy = is_true(word, value)?,
        ("on-clone", MountKind::Volume | MountKind::Bind) => mount.on_clone = text.parse()?,
        ("volume-driver", MountKind::Volume) if matches!(text, "" | "local") => {}
        ("volume-driver" | "volume-opt", MountKind::Volume) => {
            return Err(format!("{word:?}: volumes are directories of this host, without drivers"));
        }
        ("volume-label", MountKind::Volume) => {
            return Err(format!("{word:?}: `doppel volume create --label` gives labels"));
        }
        ("bind-create-src", MountKind::Bind) => mount.create_source = is_true(word, value)?,
        ("consistency", MountKind::Bind) => match text {
            "cached" => mount.cached = true,
            "consistent" | "delegated" | "default" => {}
            _ => return Err(format!("{word:?}: there are cached, delegated, consistent and default")),
        },
        ("bind-propagation", MountKind::Bind) if matches!(text, "private" | "rprivate") => {}
        ("bind-propagation", MountKind::Bind) => return Err(no_propagation(word)),
        // It is so.
        ("bind-nonrecursive", MountKind::Bind) => drop(is_true(word, value)?),
        ("bind-recursive", MountKind::Bind) if text == "disabled" => {}
        ("bind-recursive", MountKind::Bind) => {
            return Err(format!("{word:?}: what is mounted below the source is never part of it"));
        }
        ("consistency", _) => {}
        _ => return Err(format!("{word:?} is no word of a {}: {}", mount.kind.name(), known(mount.kind))),
    }
    Ok(())
}

fn known(kind: MountKind) -> &'static str {
    match kind {
        MountKind::Tmpfs => "target=, readonly, tmpfs-size=, tmpfs-mode=",
        MountKind::Bind => "source=, target=, readonly, bind-create-src",
        MountKind::Volume => "source=, target=, readonly, volume-nocopy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(text: &str) -> Result<Mount, String> {
        text.parse::<Volume>().map(|m| m.0)
    }

    fn mount(text: &str) -> Result<Mount, String> {
        text.parse::<Words>().map(|m| m.0)
    }

    #[test]
    fn volumes_as_dockers_users_write_them() {
        let bind = volume("/srv:/data:ro,z").unwrap();
        assert_eq!((bind.kind, bind.create_source, bind.options), (MountKind::Bind, true, vec!["ro".into()]));
        let named = volume("data:/data:nocopy").unwrap();
        assert_eq!((named.kind, named.no_copy, named.source), (MountKind::Volume, true, Some("data".into())));
        let anonymous = volume("/data").unwrap();
        assert_eq!((anonymous.kind, anonymous.source), (MountKind::Volume, None));
        assert!(volume("./x:/data").unwrap().source.unwrap().ends_with("/x"));
        for (wrong, why) in [
            ("/a:/b:ro:x", "too many parts"),
            (":/b", "no source"),
            ("/a:b", "no place"),
            ("/a:/", "no place"),
            ("a/b:/c", "absolute path"),
            ("/a:/b:rshared", "only rprivate"),
            ("/a:/b:U", "owners"),
            ("/a:/b:nocopy", "for a volume"),
            ("data:/b:size=1m", "no option of a volume"),
        ] {
            let said = volume(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn mounts_as_dockers_users_write_them() {
        assert_eq!(mount("type=tmpfs,target=/a,readonly").unwrap().options, ["ro"]);
        let bind = mount("type=bind,\"src=/a,b\",dst=/c,ro=false").unwrap();
        assert_eq!(
            (bind.source.as_deref(), bind.create_source, bind.options.len()),
            (Some("/a,b"), false, 0)
        );
        let named = mount("source=data,destination=/c,volume-nocopy=true").unwrap();
        assert_eq!((named.kind, named.no_copy), (MountKind::Volume, true));
        assert_eq!(mount("dst=/b").unwrap().source, None);
        for (wrong, why) in [
            ("type=tmpfs,src=/a,dst=/b", "no source"),
            ("type=bind,dst=/b", "needs a source"),
            ("type=npipe,dst=/b", "bind, volume and tmpfs"),
            ("type=tmpfs", "no place"),
            ("type=tmpfs,dst=/b,size=1", "no word of a tmpfs"),
            ("type=tmpfs,dst=/b,tmpfs-mode=9", "no mode"),
            ("type=volume,src=/a,dst=/b", "absolute path"),
            ("type=bind,src=/a,dst=/b,bind-propagation=rslave", "only rprivate"),
            ("type=bind,src=/a,dst=/b,bind-recursive=enabled", "never part of it"),
            ("type=volume,dst=/b,volume-driver=nfs", "without drivers"),
            ("type=volume,dst=/b,ro=perhaps", "neither true nor false"),
            ("type=bind,\"src=/a,dst=/b", "quotation mark"),
        ] {
            let said = mount(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }
}
