use proptest::prelude::*;

use super::*;

/// A tar of these entries: name, type, link target, data.
fn tar_of(entries: &[(&str, EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, kind, target, data) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_path(name).unwrap();
        if !target.is_empty() {
            header.set_link_name(target).unwrap();
        }
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    tar.into_inner().unwrap()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

const R: EntryType = EntryType::Regular;

#[test]
fn kinds_of_archives() {
    let first = |name| sniff(io::Cursor::new(tar_of(&[(name, R, "", b"x")]))).unwrap().0;
    let hex = "0123456789abcdef".repeat(4);
    let (layer, config) = (format!("{hex}/layer.tar"), format!("{hex}.json"));
    for images in ["oci-layout", "./index.json", "manifest.json", "blobs/sha256/x", &hex, &layer, &config] {
        assert!(first(images), "{images}");
    }
    for root in ["./", "bin/sh", "etc/manifest.json", "blob", "index.jsonx", &hex[1..]] {
        assert!(!first(root), "{root}");
    }
    assert!(!sniff(&b""[..]).unwrap().0);
    let mut all = Vec::new();
    let tar = tar_of(&[("oci-layout", R, "", b"x")]);
    sniff(&tar[..]).unwrap().1.read_to_end(&mut all).unwrap();
    assert_eq!(all, tar, "nothing is lost");
}

#[test]
fn links_stay_inside() {
    let bytes = tar_of(&[
        ("a/layer.tar", R, "", b"data"),
        ("b/layer.tar", EntryType::Symlink, "../a/layer.tar", b""),
        ("c", EntryType::Symlink, "../../etc/passwd", b""),
        ("d", EntryType::Symlink, "e", b""),
        ("e", EntryType::Symlink, "d", b""),
        ("f", EntryType::Link, "a/layer.tar", b""),
    ]);
    let bundle = Bundle::archive(file(&bytes)).unwrap();
    for name in ["a/layer.tar", "b/layer.tar", "f"] {
        assert_eq!(bundle.small(name).unwrap(), b"data", "{name}");
    }
    for name in ["c", "d", "e", "x", "", "../a"] {
        assert!(bundle.small(name).is_err(), "{name}");
    }
    assert_eq!(join("a/b", "../../x"), None);
    assert_eq!(join("a/b/c", ".././x").as_deref(), Some("a/x"));
}

#[test]
fn broken_archives() {
    let good = tar_of(&[("oci-layout", R, "", b"x"), ("blobs/sha256/y", R, "", &[1; 2000])]);
    assert!(Bundle::archive(file(&good)).is_ok());
    for bad in [&good[..300], &good[..good.len() - 1024], b"", &[b'x'; 4096]] {
        assert!(Bundle::archive(file(bad)).is_err());
    }
    // A size that leads nowhere.
    let mut huge = good.clone();
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 255, 255, 255, 255, 255, 255, 255]);
    assert!(Bundle::archive(file(&huge)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happened to an archive: an error or an image, never a panic or more than the archive has.
    #[test]
    fn damaged_archives(at in 0usize..4096, bytes in proptest::collection::vec(any::<u8>(), 1..32), cut in 0usize..6000) {
        let mut tar = tar_of(&[("index.json", R, "", b"{}"), ("manifest.json", R, "", b"[]"), ("l", EntryType::Symlink, "index.json", b"")]);
        let at = at % tar.len();
        let end = (at + bytes.len()).min(tar.len());
        tar[at..end].copy_from_slice(&bytes[..end - at]);
        tar.truncate(cut.max(1));
        if let Ok(bundle) = Bundle::archive(file(&tar)) {
            for name in ["index.json", "manifest.json", "l"] {
                prop_assert!(bundle.small(name).map_or(0, |b| b.len()) <= tar.len());
            }
        }
    }
}
