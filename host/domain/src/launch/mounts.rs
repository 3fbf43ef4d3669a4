//! A domain's mounts in its boot arguments: where, type and options of each.

use std::ffi::OsString;
use std::path::Path;

use doppel_spec::Mount;

use crate::{DomainConfig, Kind};

/// The strings of all mounts, those of short paths first: what is mounted below another mount comes after it.
pub(crate) fn encoded(config: &DomainConfig) -> Vec<OsString> {
    let mut sources = config.sources.iter().enumerate();
    let mut all: Vec<_> = config
        .files
        .mounts
        .iter()
        .map(|mount| {
            let source = if mount.is_volume() { sources.next() } else { None };
            let (kind, options) = match source {
                Some((_, path)) if config.kind == Kind::Paene => ("bind", of_the_host(mount, path)),
                Some((index, _)) => ("volume", of_a_service(mount, index)),
                None => (mount.kind.name(), mount.all_options().join(",").into()),
            };
            (depth(&mount.target), [mount.target.clone().into(), kind.into(), options])
        })
        .collect();
    all.sort_by_key(|(depth, _)| *depth);
    all.into_iter().flat_map(|(_, strings)| strings).collect()
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

/// The path comes last: it may have commas.
fn of_the_host(mount: &Mount, path: &Path) -> OsString {
    let words: String = mount.all_options().into_iter().map(|option| format!("{option},")).collect();
    let mut options = OsString::from(words + "source=");
    options.push(path);
    options
}

/// Which of its service's volumes it is, and what it is called.
fn of_a_service(mount: &Mount, index: usize) -> OsString {
    let label = mount.source.as_deref().filter(|source| !source.contains(',')).unwrap_or("volume");
    let mut options = format!("index={index},source={label}");
    for option in mount.all_options() {
        options.push(',');
        options.push_str(option);
    }
    options.into()
}

#[cfg(test)]
mod tests {
    use doppel_spec::{Files, MountKind};

    use super::*;

    #[test]
    fn deeper_ones_come_later_and_volumes_are_named_in_their_order() {
        let mount = |kind, source: Option<&str>, target: &str, options: &[&str]| Mount {
            kind,
            source: source.map(str::to_owned),
            target: target.to_owned(),
            options: options.iter().map(ToString::to_string).collect(),
            ..Mount::default()
        };
        let mounts = vec![
            mount(MountKind::Bind, Some("/a,b"), "/data/deep/x", &["ro"]),
            mount(MountKind::Tmpfs, None, "/data", &["size=1m"]),
            mount(MountKind::Volume, Some("vol"), "/data/y", &[]),
        ];
        let files = Files { mounts, ..Files::default() };
        let sources = vec!["/a,b".into(), "/s/vol/_data".into()];
        let mut config = DomainConfig { files, sources, ..DomainConfig::new("/i".into(), vec!["x".into()]) };
        assert_eq!(
            encoded(&config),
            [
                "/data",
                "tmpfs",
                "nosuid,nodev,noexec,size=1m",
                "/data/y",
                "volume",
                "index=1,source=vol",
                "/data/deep/x",
                "volume",
                "index=0,source=volume,ro",
            ]
        );
        config.kind = Kind::Paene;
        let all = encoded(&config);
        assert_eq!(all[4..6], ["bind", "source=/s/vol/_data"]);
        assert_eq!(all[7..9], ["bind", "ro,source=/a,b"]);
    }
}
