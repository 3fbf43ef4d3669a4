//! What a domain's programs find mounted, beside the image.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most mounts of a domain.
const MOST_MOUNTS: usize = 64;
/// Most disks of a domain: of its storage service's places, volumes and a layer leave so many.
const MOST_DISKS: usize = 16;
/// Longest name of a volume, a layer or a disk.
const LONGEST_NAME: usize = 255;
/// Mount options by which programs' rights change, and their opposites: Docker's defaults first.
const RIGHTS: [(&str, &str); 3] = [("nosuid", "suid"), ("nodev", "dev"), ("noexec", "exec")];
/// The other options without a value.
const WORDS: &[&str] = &["ro", "rw", "noatime", "relatime", "strictatime"];
/// Options of tmpfs with a value.
const VALUES: &[&str] = &["size", "mode", "uid", "gid", "nr_inodes"];

/// The domain's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// The root file system is read-only; what is mounted on it is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What is mounted before the program starts; directories that are missing are made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub mounts: Vec<Mount>,
    /// What the domain changes outside of its mounts is kept on disk: it finds it again whenever it is started, and it goes when the
    /// domain is removed. If it is false, that is in memory and ends with each run. If it is missing, it is kept unless the domain is
    /// removed when it ends (`auto_remove`), its root is `read_only`, or it is a paene domain with a limit on its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
    /// It is kept under this name, and stays when the domain is removed: another one of the same image finds it again. One
    /// domain at a time can have it. 2 to 255 letters, digits, `-`, `_` and `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub layer: Option<String>,
    /// Disks that it has, as `/dev/vda`, `/dev/vdb`, … in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub disks: Vec<BlockDevice>,
}

/// A disk that a domain has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockDevice {
    /// The disk's name: 2 to 255 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{1,254}$")]
    pub name: String,
    /// The domain only reads it, as others may at the same time; else no other domain has it meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// Something that is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// What.
    #[serde(rename = "type", default)]
    pub kind: MountKind,
    /// Of a bind, an absolute path of the host: a directory or a file. Of a volume, its name: it is made at first use; without
    /// one it is a new volume, which goes with the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4095)]
    pub source: Option<String>,
    /// Where: an absolute path, not the root.
    #[schema(pattern = "^/.*[^/].*$", max_length = 4095)]
    pub target: String,
    /// Options as of mount(8): `ro`, `noexec`, `nosuid`, `nodev` and their opposites, `noatime`, `relatime`, `strictatime`; of a
    /// tmpfs `size` (bytes, with k, m, g or %), `mode` (octal), `uid`, `gid`, `nr_inodes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub options: Vec<String>,
    /// A bind's source that is missing is made, a directory; else it is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_source: bool,
    /// A volume that is empty stays so; else it gets what the image has at the target.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_copy: bool,
    /// A para domain keeps what it has read of a bind for a second: names, attributes and pages. What others change there meanwhile it may see so much
    /// later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// What clones of the domain have of a volume. A domain that is hibernated wakes with the same one in any case.
    #[serde(default, skip_serializing_if = "OnClone::is_share")]
    pub on_clone: OnClone,
}

/// What a clone has of a volume of the domain that was frozen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnClone {
    /// The same one, as any other domain with that volume.
    #[default]
    Share,
    /// A volume of its own, with the files as they were when the domain was frozen; it goes with the clone.
    Snapshot,
    /// A new one, which is empty; it goes with the clone.
    Fresh,
}

impl OnClone {
    /// Whether it is what is so unless something else is said.
    fn is_share(&self) -> bool {
        *self == Self::Share
    }
}

impl std::str::FromStr for OnClone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "share" => Ok(Self::Share),
            "snapshot" => Ok(Self::Snapshot),
            "fresh" => Ok(Self::Fresh),
            _ => Err(format!("on-clone={text}: there are share, snapshot and fresh")),
        }
    }
}

/// What can be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// Files in memory, empty at each start; they count as the domain's memory.
    #[default]
    Tmpfs,
    /// A directory or a file of the host; what is mounted below it there is not part of it.
    Bind,
    /// A directory of the host's that is kept under a name, apart from domains.
    Volume,
}

impl MountKind {
    /// Its name, as `mount(2)` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Bind => "bind",
            Self::Volume => "volume",
        }
    }
}

impl Files {
    /// Refuses what a schema cannot say: a mount by its place in the list, and why.
    ///
    /// # Errors
    /// Which, and what is wrong with it.
    pub fn check(&self) -> Result<(), (usize, String)> {
        if self.mounts.len() > MOST_MOUNTS {
            return Err((MOST_MOUNTS, format!("at most {MOST_MOUNTS} mounts")));
        }
        for (i, mount) in self.mounts.iter().enumerate() {
            mount.check().map_err(|why| (i, why))?;
            if self.mounts[..i].iter().any(|other| other.target == mount.target) {
                return Err((i, format!("{} is a target twice", mount.target)));
            }
        }
        Ok(())
    }

    /// Whether the domain has volumes, binds or disks, which a para domain is served.
    #[must_use]
    pub fn are_served(&self) -> bool {
        self.volumes().next().is_some() || !self.disks.is_empty()
    }

    /// Whether what the domain changes outside of its mounts is kept; that it is to be kept is said.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.layer.is_some() || self.persist == Some(true)
    }

    /// Refuses what is to be kept and cannot be, or not so.
    ///
    /// # Errors
    /// Why not.
    pub fn check_kept(&self) -> Result<(), String> {
        if let Some(name) = &self.layer {
            check_layer_name(name)?;
        }
        match (&self.layer, self.persist) {
            (Some(name), Some(false)) => {
                Err(format!("nothing is kept in layer {name:?} if persist is false"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses disks that no domain can have.
    ///
    /// # Errors
    /// Which, by its place in the list, and why.
    pub fn check_disks(&self) -> Result<(), (usize, String)> {
        for (i, disk) in self.disks.iter().enumerate() {
            check_disk_name(&disk.name).map_err(|why| (i, why))?;
            if self.disks[..i].iter().any(|other| other.name == disk.name) {
                return Err((i, format!("disk {:?} is given twice", disk.name)));
            }
        }
        if self.disks.len() > MOST_DISKS {
            return Err((MOST_DISKS, format!("at most {MOST_DISKS} disks")));
        }
        let places = self.volumes().count() + usize::from(self.is_kept()) + self.disks.len();
        if !self.disks.is_empty() && places > MOST_MOUNTS {
            return Err((0, format!("at most {MOST_MOUNTS} volumes and disks")));
        }
        Ok(())
    }

    /// Those that are files of the host: binds and volumes, in their order.
    pub fn volumes(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(|mount| mount.is_volume())
    }
}

impl Mount {
    /// Whether it is files of the host: a bind or a volume.
    #[must_use]
    pub fn is_volume(&self) -> bool {
        self.kind != MountKind::Tmpfs
    }

    /// Nothing in it can be changed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.options.iter().rev().find(|o| matches!(o.as_str(), "ro" | "rw")).is_some_and(|o| o == "ro")
    }

    /// Refuses what cannot be mounted.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        let parts = || self.target.split('/').filter(|part| !part.is_empty());
        if !self.target.starts_with('/') || parts().next().is_none() {
            return Err(format!("{:?} is no place to mount at: an absolute path, not the root", self.target));
        }
        if parts().any(|part| part == "." || part == "..") || self.target.contains('\0') {
            return Err(format!("{:?} has a part that is no name", self.target));
        }
        self.check_source()?;
        self.options.iter().try_for_each(|option| check_option(self.kind, option))
    }

    fn check_source(&self) -> Result<(), String> {
        let only = |what: &str, kind: &str| Err(format!("{}: {what} is for a {kind}", self.target));
        match (self.kind, self.source.as_deref()) {
            (MountKind::Tmpfs, Some(_)) => return Err("a tmpfs has no source".into()),
            (MountKind::Bind, None) => return Err(format!("{}: a bind needs a source", self.target)),
            (MountKind::Bind, Some(path)) if !path.starts_with('/') || path.contains('\0') => {
                return Err(format!("{path:?} is no source of a bind: an absolute path of the host"));
            }
            (MountKind::Volume, Some(name)) => check_volume_name(name)?,
            _ => {}
        }
        match self.kind {
            MountKind::Tmpfs | MountKind::Volume if self.create_source => only("create_source", "bind"),
            MountKind::Tmpfs | MountKind::Bind if self.no_copy => only("no_copy", "volume"),
            MountKind::Tmpfs | MountKind::Volume if self.cached => only("cached", "bind"),
            MountKind::Tmpfs | MountKind::Bind if self.on_clone != OnClone::Share => {
                only("on_clone", "volume")
            }
            _ => Ok(()),
        }
    }

    /// All its options; of a tmpfs with Docker's defaults (`nosuid`, `nodev`, `noexec`) where nothing else is said.
    #[must_use]
    pub fn all_options(&self) -> Vec<&str> {
        if self.is_volume() {
            return self.options.iter().map(String::as_str).collect();
        }
        let said = |word: &str| self.options.iter().any(|o| o == word);
        let defaults = RIGHTS.iter().filter(|(no, yes)| !said(no) && !said(yes)).map(|(no, _)| *no);
        defaults.chain(self.options.iter().map(String::as_str)).collect()
    }
}

/// Refuses what is no name of a volume.
///
/// # Errors
/// Why it is none.
pub fn check_volume_name(name: &str) -> Result<(), String> {
    check_name(name, "volume").map_err(|why| match name.contains('/') {
        true => why + "; a directory of the host is given by its absolute path",
        false => why,
    })
}

/// Refuses what is no name of a layer.
///
/// # Errors
/// Why it is none.
pub fn check_layer_name(name: &str) -> Result<(), String> {
    check_name(name, "layer")
}

/// Refuses what is no name of a disk.
///
/// # Errors
/// Why it is none.
pub fn check_disk_name(name: &str) -> Result<(), String> {
    check_name(name, "disk")
}

fn check_name(name: &str, what: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let good = (2..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(fits)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if good {
        return Ok(());
    }
    Err(format!(
        "{name:?} is no name of a {what}: 2 to {LONGEST_NAME} letters, digits, '-', '_' and '.', the first a letter or digit"
    ))
}

fn check_option(kind: MountKind, option: &str) -> Result<(), String> {
    let rights = RIGHTS.iter().any(|(no, yes)| option == *no || option == *yes);
    if rights || WORDS.contains(&option) {
        return Ok(());
    }
    if kind != MountKind::Tmpfs {
        return Err(format!("{option:?} is no option of a {} here: {}", kind.name(), words().join(", ")));
    }
    let Some((key, value)) = option.split_once('=').filter(|(key, _)| VALUES.contains(key)) else {
        return Err(format!("{option:?} is no option of a tmpfs here: {}, {}", words().join(", "), values()));
    };
    let good = match key {
        "mode" => u32::from_str_radix(value, 8).is_ok_and(|mode| mode <= 0o7777),
        "uid" | "gid" => value.parse::<u32>().is_ok(),
        _ => is_size(value, key == "size"),
    };
    if good { Ok(()) } else { Err(format!("{option:?}: {value:?} is no {key}")) }
}

/// Digits with an optional k, m, g, or %, if that may be.
fn is_size(text: &str, percent: bool) -> bool {
    let digits = text.trim_end_matches(|c: char| "kKmMgG".contains(c) || percent && c == '%');
    text.len() - digits.len() <= 1 && digits.parse::<u64>().is_ok_and(|n| n <= u64::MAX >> 30)
}

fn words() -> Vec<&'static str> {
    RIGHTS.iter().flat_map(|(no, yes)| [*no, *yes]).chain(WORDS.iter().copied()).collect()
}

fn values() -> String {
    VALUES.iter().map(|key| format!("{key}=")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(target: &str, options: &[&str]) -> Mount {
        Mount {
            target: target.into(),
            options: options.iter().map(ToString::to_string).collect(),
            ..Mount::default()
        }
    }

    #[test]
    fn what_cannot_be_mounted_is_refused_by_name() {
        let files = |mounts: Vec<Mount>| Files { mounts, ..Files::default() };
        files(vec![mount("/a", &["size=64m", "mode=1777", "exec", "uid=7"]), mount("/b/c", &["ro"])])
            .check()
            .unwrap();
        for (wrong, why) in [
            (mount("/", &[]), "no place"),
            (mount("a", &[]), "no place"),
            (mount("/a/../b", &[]), "no name"),
            (mount("/a", &["size=huge"]), "no size"),
            (mount("/a", &["size=1mm"]), "no size"),
            (mount("/a", &["mode=999"]), "no mode"),
            (mount("/a", &["bind"]), "no option"),
            (mount("/a", &["upperdir=/x"]), "no option"),
        ] {
            let (place, said) = files(vec![mount("/z", &[]), wrong]).check().unwrap_err();
            assert!(place == 1 && said.contains(why), "{said}");
        }
        let (_, said) = files(vec![mount("/a", &[]), mount("/a", &[])]).check().unwrap_err();
        assert!(said.contains("twice"));
    }

    #[test]
    fn sources_are_of_their_kind() {
        let of = |kind, source: Option<&str>, options: &[&str]| {
            let source = source.map(str::to_owned);
            Mount { kind, source, ..mount("/a", options) }
        };
        let (bind, volume) = (MountKind::Bind, MountKind::Volume);
        for good in
            [of(bind, Some("/"), &["ro"]), of(volume, Some("a.b_c-1"), &[]), of(volume, None, &["noexec"])]
        {
            good.check().unwrap();
        }
        for (wrong, why) in [
            (of(MountKind::Tmpfs, Some("/x"), &[]), "no source"),
            (of(bind, None, &[]), "needs a source"),
            (of(bind, Some("x"), &[]), "absolute path"),
            (of(bind, Some("/x"), &["size=1m"]), "no option of a bind"),
            (of(volume, Some("a"), &[]), "no name of a volume"),
            (of(volume, Some("-ab"), &[]), "no name of a volume"),
            (of(volume, Some("a/b"), &[]), "by its absolute path"),
            (Mount { create_source: true, ..of(volume, None, &[]) }, "for a bind"),
            (Mount { no_copy: true, ..of(bind, Some("/x"), &[]) }, "for a volume"),
            (Mount { on_clone: OnClone::Fresh, ..of(bind, Some("/x"), &[]) }, "for a volume"),
            (Mount { cached: true, ..of(volume, None, &[]) }, "for a bind"),
        ] {
            let said = wrong.check().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(of(bind, Some("/"), &["rw", "ro"]).is_read_only());
        assert!(!of(bind, Some("/"), &["ro", "rw"]).is_read_only());
        assert!(of(volume, None, &[]).all_options().is_empty(), "as Docker has them");
    }

    #[test]
    fn what_is_kept() {
        let files = |persist, layer: Option<&str>| Files {
            persist,
            layer: layer.map(str::to_owned),
            ..Files::default()
        };
        for (persist, layer, kept) in [
            (None, None, false),
            (Some(true), None, true),
            (Some(false), None, false),
            (None, Some("web"), true),
        ] {
            let files = files(persist, layer);
            files.check_kept().unwrap();
            assert_eq!(files.is_kept(), kept);
        }
        for (persist, layer, why) in
            [(Some(false), "web", "persist is false"), (None, "a/b", "no name of a layer")]
        {
            let said = files(persist, Some(layer)).check_kept().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn programs_get_no_rights_unless_asked_for() {
        assert_eq!(mount("/a", &["size=1m"]).all_options(), ["nosuid", "nodev", "noexec", "size=1m"]);
        assert_eq!(mount("/a", &["exec", "dev"]).all_options(), ["nosuid", "exec", "dev"]);
    }
}
