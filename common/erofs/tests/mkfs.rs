//! The reader against images made by erofs-utils (an independent writer), in every flat and chunk layout.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use doppel_erofs::{Erofs, Extent, Inode, Kind};

/// A directory that is removed at the end of a test.
struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doppel-erofs-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample(root: &Path) {
    for size in [0usize, 1, 100, 4095, 4096, 4097, 8192, 100_000] {
        let data: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
        fs::write(root.join(format!("file{size}")), data).unwrap();
    }
    fs::create_dir_all(root.join("many")).unwrap();
    for i in 0..700 {
        fs::write(root.join(format!("many/entry-with-a-longer-name-{i:05}")), format!("{i}")).unwrap();
    }
    fs::create_dir_all(root.join("empty")).unwrap();
    symlink("many/entry-with-a-longer-name-00001", root.join("link")).unwrap();
    symlink("x".repeat(3000), root.join("long-link")).unwrap();
    fs::hard_link(root.join("file100"), root.join("hard")).unwrap();
}

fn mkfs(root: &Path, image: &Path, options: &[&str]) -> Vec<u8> {
    let out = Command::new("mkfs.erofs").args(options).arg(image).arg(root).output();
    let out = out.expect("mkfs.erofs is needed: `make setup` installs it");
    assert!(out.status.success(), "mkfs.erofs: {}", String::from_utf8_lossy(&out.stderr));
    fs::read(image).unwrap()
}

fn compare(fs: &Erofs<'_>, dir: &Inode, host: &Path) {
    let mut names = Vec::new();
    fs.readdir(dir, 0, |e| {
        names.push((e.name.to_vec(), e.nid, e.next));
        true
    })
    .unwrap();
    // Resuming behind any entry gives the rest.
    for at in [0, names.len() / 2, names.len() - 1] {
        let mut rest = Vec::new();
        fs.readdir(dir, names[at].2, |e| {
            rest.push(e.name.to_vec());
            true
        })
        .unwrap();
        assert_eq!(rest, names[at + 1..].iter().map(|n| n.0.clone()).collect::<Vec<_>>());
    }
    names.retain(|(n, ..)| n != b"." && n != b"..");
    assert_eq!(names.len(), fs::read_dir(host).unwrap().count());
    assert_eq!(fs.lookup(dir, b"no such name").unwrap(), None);
    assert_eq!(fs.lookup(dir, b"zzzz").unwrap(), None);
    assert_eq!(fs.lookup(dir, b"!").unwrap(), None);
    for (name, nid, _) in names {
        let path = host.join(std::str::from_utf8(&name).unwrap());
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!(fs.lookup(dir, &name).unwrap().map(|f| f.0), Some(nid), "{path:?}");
        let inode = fs.inode(nid).unwrap();
        assert_eq!(u32::from(inode.mode), meta.mode(), "{path:?}");
        assert_eq!((inode.uid, inode.gid), (meta.uid(), meta.gid()));
        match inode.kind {
            Kind::Directory => compare(fs, &inode, &path),
            Kind::Symlink => {
                assert_eq!(
                    fs.symlink(&inode).unwrap(),
                    fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes()
                );
            }
            _ => {
                let want = fs::read(&path).unwrap();
                assert_eq!(u64::from(inode.nlink), meta.nlink());
                let mut got = vec![0xAA; want.len() + 10];
                assert_eq!(fs.read_at(&inode, 0, &mut got).unwrap(), want.len());
                assert_eq!(&got[..want.len()], want);
                if let Some((offset, len)) = fs.data_range(&inode).unwrap() {
                    assert_eq!(offset % 4096, 0);
                    assert_eq!(&fs.image()[offset as usize..][..len as usize], want);
                }
                if want.len() > 4097 {
                    let mut part = [0; 7];
                    assert_eq!(fs.read_at(&inode, 4093, &mut part).unwrap(), 7);
                    assert_eq!(part, want[4093..4100]);
                }
                assert_eq!(fs.extent(&inode, want.len() as u64).unwrap(), None);
            }
        }
    }
}

#[test]
fn reads_what_mkfs_writes() {
    let temp = Temp::new("mkfs");
    let root = temp.0.join("root");
    fs::create_dir_all(&root).unwrap();
    sample(&root);
    let image = temp.0.join("image");
    let layouts: [&[&str]; 5] = [
        &["-Enoinline_data"],
        &[],
        &["-Eforce-inode-extended"],
        &["--chunksize=4096"],
        &["--chunksize=8192", "-Eforce-chunk-indexes"],
    ];
    for options in layouts {
        let bytes = mkfs(&root, &image, options);
        let fs = Erofs::open(&bytes).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        compare(&fs, &fs.inode(fs.root_nid()).unwrap(), &root);
    }
}

#[test]
fn noinline_files_can_be_mapped() {
    let temp = Temp::new("map");
    let root = temp.0.join("root");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("a"), vec![7; 5000]).unwrap();
    let bytes = mkfs(&root, &temp.0.join("image"), &["-Enoinline_data"]);
    let fs = Erofs::open(&bytes).unwrap();
    let (nid, _) = fs.lookup(&fs.inode(fs.root_nid()).unwrap(), b"a").unwrap().unwrap();
    let inode = fs.inode(nid).unwrap();
    let (offset, len) = fs.data_range(&inode).unwrap().unwrap();
    assert_eq!(len, 5000);
    assert_eq!(fs.extent(&inode, 5).unwrap(), Some(Extent::Data { offset: offset + 5, len: 4995 }));
}
