//! What a domain's programs find mounted, beside the image.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most mounts of a domain.
const MOST_MOUNTS: usize = 64;
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
}

/// Something that is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// What.
    #[serde(rename = "type", default)]
    pub kind: MountKind,
    /// Where: an absolute path, not the root.
    #[schema(pattern = "^/.*[^/].*$", max_length = 4095)]
    pub target: String,
    /// Options as of mount(8): `ro`, `noexec`, `nosuid`, `nodev` and their opposites, `noatime`, `relatime`, `strictatime`; of a
    /// tmpfs `size` (bytes, with k, m, g or %), `mode` (octal), `uid`, `gid`, `nr_inodes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub options: Vec<String>,
}

/// What can be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// Files in memory, empty at each start; they count as the domain's memory.
    #[default]
    Tmpfs,
}

impl MountKind {
    /// Its name, as `mount(2)` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
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
}

impl Mount {
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
        self.options.iter().try_for_each(|option| check_option(option))
    }

    /// All its options, Docker's defaults (`nosuid`, `nodev`, `noexec`) included where nothing else is said.
    #[must_use]
    pub fn all_options(&self) -> Vec<&str> {
        let said = |word: &str| self.options.iter().any(|o| o == word);
        let defaults = RIGHTS.iter().filter(|(no, yes)| !said(no) && !said(yes)).map(|(no, _)| *no);
        defaults.chain(self.options.iter().map(String::as_str)).collect()
    }
}

fn check_option(option: &str) -> Result<(), String> {
    let rights = RIGHTS.iter().any(|(no, yes)| option == *no || option == *yes);
    if rights || WORDS.contains(&option) {
        return Ok(());
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
    fn programs_get_no_rights_unless_asked_for() {
        assert_eq!(mount("/a", &["size=1m"]).all_options(), ["nosuid", "nodev", "noexec", "size=1m"]);
        assert_eq!(mount("/a", &["exec", "dev"]).all_options(), ["nosuid", "exec", "dev"]);
    }
}
