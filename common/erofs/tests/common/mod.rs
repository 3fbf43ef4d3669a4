//! A walk over an image that may be hostile: calls every reader function, and bounds its own work.

use doppel_erofs::{Erofs, Kind};

/// Opens `image` and reads everything that can be reached in a bounded number of steps. Panics only if the
/// reader does; returns how many inodes were read.
pub fn exercise(image: &[u8]) -> usize {
    let Ok(fs) = Erofs::open(image) else { return 0 };
    let mut stack = vec![fs.root_nid()];
    let (mut steps, mut names) = (0, 0);
    let mut buf = [0; 4096];
    while let Some(nid) = stack.pop() {
        steps += 1;
        if steps > 400 {
            break;
        }
        let Ok(inode) = fs.inode(nid) else { continue };
        let _ = fs.xattr(&inode, b"user.test");
        let _ = fs.xattrs(&inode, |prefix, name, value| prefix.len() + name.len() + value.len() > 0);
        for at in [0, inode.size / 2, inode.size.saturating_sub(1), inode.size, u64::MAX] {
            let _ = fs.extent(&inode, at);
        }
        match inode.kind {
            Kind::Directory => {
                let _ = fs.readdir(&inode, 0, |entry| {
                    assert!(!entry.name.is_empty() && entry.name.len() <= 255 && !entry.name.contains(&b'/'));
                    if stack.len() < 2000 {
                        stack.push(entry.nid);
                    }
                    names += 1;
                    names % 1000 != 0
                });
                for cookie in [11, 12, 4095, 4096, inode.size, u64::MAX] {
                    let _ = fs.readdir(&inode, cookie, |_| false);
                }
                for name in [&b"a"[..], b"..", b"file100", b"zzz", &[0xff; 255], &[b'n'; 256], b""] {
                    let _ = fs.lookup(&inode, name);
                }
            }
            Kind::Symlink => {
                if let Ok(target) = fs.symlink(&inode) {
                    assert!(!target.is_empty() && !target.contains(&0));
                }
            }
            _ => {
                for at in [0, inode.size / 2, inode.size.saturating_sub(5), u64::MAX] {
                    if let Ok(n) = fs.read_at(&inode, at, &mut buf) {
                        assert_eq!(n as u64, inode.size.saturating_sub(at).min(buf.len() as u64));
                    }
                }
                if let Ok(Some((offset, len))) = fs.data_range(&inode) {
                    assert!(offset % 4096 == 0 && len == inode.size);
                    assert!(offset + len.next_multiple_of(4096) <= image.len() as u64);
                }
            }
        }
    }
    steps
}
