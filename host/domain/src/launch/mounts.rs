//! A domain's mounts in its boot arguments: where, type and options of each. Its layer comes first, as one at the root; its disks
//! are among them, as ones at their devices.

use std::ffi::OsString;
use std::path::Path;

use doppel_spec::Mount;

use crate::paging::region;
use crate::{DomainConfig, Kind};

/// All mounts, those of short paths first: what is mounted below another mount comes after it.
pub(crate) fn encoded(config: &DomainConfig) -> Vec<[OsString; 3]> {
    let mut sources = config.sources.iter().enumerate();
    let mut all: Vec<_> = config
        .spec
        .files
        .mounts
        .iter()
        .map(|mount| {
            let source = if mount.is_volume() { sources.next() } else { None };
            let (kind, options) = match source {
                Some((_, path)) if config.spec.kind == Kind::Paene => ("bind", of_the_host(mount, path)),
                Some((index, _)) => ("volume", of_a_service(mount, index)),
                None => (mount.kind.name(), mount.all_options().join(",").into()),
            };
            (depth(&mount.target), [mount.target.clone().into(), kind.into(), options])
        })
        .collect();
    all.extend(config.layer.as_deref().map(|dir| {
        let options = match config.spec.kind {
            Kind::Paene => source("", dir),
            // Behind the volumes and the disks: a clone has further files of a layer.
            Kind::Para => {
                let left = region::disk_left(config.spec.kind, &config.spec.resources);
                let size = left.map(|bytes| format!(",size={bytes}"));
                let shared = if doppel_layers::is_shared(dir) { ",shared" } else { "" };
                format!(
                    "index={}{}{shared}",
                    config.sources.len() + config.spec.files.disks.len(),
                    size.unwrap_or_default()
                )
                .into()
            }
        };
        (depth("/"), ["/".into(), "layer".into(), options])
    }));
    // Behind the volumes that the storage service has, too: a paene domain has its own itself.
    let first = if config.spec.kind == Kind::Para { config.sources.len() } else { 0 };
    all.extend(config.spec.files.disks.iter().enumerate().map(|(i, disk)| {
        let options = format!("index={}{}", first + i, if disk.read_only { ",ro" } else { "" });
        let device = format!("/dev/vd{}", char::from(b'a' + u8::try_from(i).unwrap_or(u8::MAX - b'a')));
        (depth(&device), [device.into(), "disk".into(), options.into()])
    }));
    all.sort_by_key(|(depth, _)| *depth);
    all.into_iter().map(|(_, strings)| strings).collect()
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

fn of_the_host(mount: &Mount, path: &Path) -> OsString {
    let words: String = mount.all_options().into_iter().map(|option| format!("{option},")).collect();
    source(&words, path)
}

/// The path comes last: it may have commas.
fn source(words: &str, path: &Path) -> OsString {
    let mut options = OsString::from(format!("{words}source="));
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
    use doppel_spec::{BlockDevice, CreateDomain, Files, MountKind};

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
        let spec = CreateDomain { files, ..CreateDomain::default() };
        let sources = vec!["/a,b".into(), "/s/vol/_data".into()];
        let layer = Some("/s/layers/web".into());
        let disk = |name: &str, read_only| BlockDevice { name: name.into(), read_only };
        let mut spec = spec;
        spec.files.disks = vec![disk("db", false), disk("tools", true)];
        let mut config =
            DomainConfig { spec, sources, layer, ..DomainConfig::new("/i".into(), vec!["x".into()]) };
        assert_eq!(
            encoded(&config),
            [
                ["/", "layer", "index=4"],
                ["/data", "tmpfs", "nosuid,nodev,noexec,size=1m"],
                ["/data/y", "volume", "index=1,source=vol"],
                ["/dev/vda", "disk", "index=2"],
                ["/dev/vdb", "disk", "index=3,ro"],
                ["/data/deep/x", "volume", "index=0,source=volume,ro"],
            ]
        );
        config.spec.resources.disk_bytes = Some(65536);
        assert_eq!(encoded(&config)[0], ["/", "layer", "index=4,size=65536"]);
        config.spec.kind = Kind::Paene;
        let all = encoded(&config);
        assert_eq!(all[3], ["/dev/vda", "disk", "index=0"]);
        config.spec.files.disks.clear();
        let all = encoded(&config);
        assert_eq!(all[0], ["/", "layer", "source=/s/layers/web"]);
        assert_eq!(all[2][1..], ["bind", "source=/s/vol/_data"]);
        assert_eq!(all[3][1..], ["bind", "ro,source=/a,b"]);
    }
}
