//! `/etc/resolv.conf` and `/etc/hosts` of a domain with a network or further names, as a guest kernel writes them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use doppel_abi_service::net::address::RESOLVER4;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, open, unlinkat};
use rustix::io::Errno;

use super::addresses::Addresses;
use crate::root::inside::open_inside;
use crate::root::owners::Owners;

/// Writes both below a root file system, the first only where there is a network; `more`: further lines.
pub(crate) fn write(
    root: &Path,
    owners: Owners,
    addresses: Option<&Addresses>,
    name: &str,
    more: &[Cow<'_, str>],
) -> io::Result<()> {
    if addresses.is_some() {
        let [a, b, c, d] = RESOLVER4;
        put(root, owners, "resolv.conf", &format!("nameserver {a}.{b}.{c}.{d}\n"))?;
    }
    let mut hosts = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let own: Vec<IpAddr> = match addresses {
        Some(own) => own.all().map(|(ip, _)| ip).filter(IpAddr::is_ipv4).collect(),
        None => vec![Ipv4Addr::new(127, 0, 1, 1).into()],
    };
    for ip in own {
        hosts.push_str(&format!("{ip}\t{name}\n"));
    }
    for line in more {
        hosts.push_str(line);
        hosts.push('\n');
    }
    put(root, owners, "hosts", &hosts)
}

/// Puts a file into /etc. Links are followed as programs inside would follow them; one that leads nowhere gives way.
fn put(root: &Path, owners: Owners, name: &str, text: &str) -> io::Result<()> {
    let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inside = |path: &str, flags: OFlags, mode: u32| open_inside(&root, Path::new(path), flags, mode);
    let etc = match inside("/etc", OFlags::PATH | OFlags::DIRECTORY, 0) {
        // An image without /etc does without these too.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        etc => etc?,
    };
    let path = format!("/etc/{name}");
    let create = || inside(&path, OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC, 0o644);
    let file = match create() {
        Err(Errno::NOENT) => {
            unlinkat(&etc, name, AtFlags::empty())?;
            create()?
        }
        file => file?,
    };
    fchown(&file, Some(Uid::from_raw(owners.first)), Some(Gid::from_raw(owners.first)))?;
    File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn files_are_written_inside_whatever_links_say() {
        let dir = tempfile::tempdir().unwrap();
        let (root, etc) = (dir.path().join("root"), dir.path().join("root/etc"));
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(dir.path().join("hosts"), "the host's").unwrap();
        symlink("../../hosts", etc.join("hosts")).unwrap();
        symlink("../run/nowhere/resolv.conf", etc.join("resolv.conf")).unwrap();
        let meta = std::fs::metadata(dir.path()).unwrap();
        let owners = Owners { first: meta.uid(), count: 1 };
        let addresses = Addresses::new(Ipv4Addr::new(10, 88, 0, 7), Ipv6Addr::LOCALHOST);
        write(&root, owners, Some(&addresses), "name", &["10.0.0.1\ta".into()]).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("hosts")).unwrap(), "the host's");
        let hosts = std::fs::read_to_string(root.join("hosts")).unwrap();
        assert!(hosts.ends_with("10.88.0.7\tname\n10.0.0.1\ta\n"), "{hosts}");
        assert_eq!(std::fs::read_to_string(etc.join("resolv.conf")).unwrap(), "nameserver 10.88.0.2\n");
    }
}
