//! Links to ancestors: made, kept as long as they are needed, swept.

use doppel_abi_machine::frozen::{HEADER_SIZE, MAGIC, VERSION};
use doppel_abi_machine::layout::{PAGE, USER_START};

use super::*;
use crate::format::{hash_page, header_bytes, parse_header, segment_bytes};
use crate::store::{FrozenStore, Medium};

/// Writes an image of one process whose first page is its own and the rest in files with these identities.
fn image(path: &Path, fill: u8, of_ancestors: &[(Identity, u64)]) -> Parent {
    large_image(path, fill, 1, of_ancestors)
}

/// The same with more pages of its own.
fn large_image(path: &Path, fill: u8, pages: u64, of_ancestors: &[(Identity, u64)]) -> Parent {
    let own = pages * PAGE;
    let mut segments = vec![Segment { space: 3, file: 0, addr: USER_START, len: own, offset: PAGE }];
    let mut addr = USER_START + own;
    for (n, (_, len)) in of_ancestors.iter().enumerate() {
        let file = u32::try_from(n + 1).unwrap();
        segments.push(Segment { space: 3, file, addr, len: *len, offset: PAGE });
        addr += len;
    }
    let mut h = parse_header(&[0; HEADER_SIZE as usize]);
    (h.magic, h.version, h.domain_id) = (MAGIC, VERSION, fill.into());
    (h.tables_len, h.data_at, h.file_len) = (PAGE, PAGE, PAGE + own);
    (h.segments, h.chunks, h.data_bytes) = (segments.len() as u64, 1, own);
    h.ancestor_count = of_ancestors.len() as u64;
    for (to, (identity, _)) in h.ancestors.iter_mut().zip(of_ancestors) {
        *to = *identity;
    }
    let page = [fill; PAGE as usize];
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for n in 0..pages {
        hash_page(&mut hash, (n * PAGE) as usize, &page);
    }
    let mut bytes = header_bytes(&h);
    bytes.extend(segments.iter().flat_map(segment_bytes));
    bytes.extend(hash.digest().to_le_bytes());
    bytes.resize(PAGE as usize, 0);
    h.checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
    bytes[..HEADER_SIZE as usize].copy_from_slice(&header_bytes(&h));
    let identity = crate::open::identity(&bytes);
    bytes.extend(page.repeat(pages as usize));
    fs::write(path, bytes).unwrap();
    Parent { path: path.to_owned(), identity }
}

/// Freezes as far as files are concerned: an image that needs these of what its parent has.
fn child(store: &FrozenStore, name: &str, fill: u8, parent: &Parent) -> Parent {
    child_by(copies::link, store, name, fill, parent)
}

fn child_by(link: copies::Link, store: &FrozenStore, name: &str, fill: u8, parent: &Parent) -> Parent {
    let to = store.vacant(name, Medium::Disk).unwrap();
    let lineage = Lineage::prepare_by(link, parent, &to).expect("its parent is there");
    let all: Vec<_> = lineage.ancestors.all.iter().map(|a| (a.identity, PAGE)).collect();
    let made = image(&to, fill, &all);
    let identities: Vec<_> = all.iter().map(|(identity, _)| *identity).collect();
    lineage.links.done(&identities);
    made
}

fn bench() -> (tempfile::TempDir, FrozenStore, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = FrozenStore::new(dir.path());
    let first = store.vacant("first", Medium::Disk).unwrap();
    (dir, store, first)
}

fn files_in(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| if p.is_dir() { files_in(&p) } else { 1 })
        .sum()
}

#[test]
fn names_can_go_in_any_order() {
    for order in [["first", "second", "third"], ["second", "first", "third"], ["first", "third", "second"]] {
        let (dir, store, first) = bench();
        let first = image(&first, 1, &[]);
        let second = child(&store, "second", 2, &first);
        child(&store, "third", 3, &second);
        let mut left = vec!["first", "second", "third"];
        for name in order {
            store.remove(name).unwrap();
            left.retain(|n| *n != name);
            assert!(store.open(name).is_err());
            for other in &left {
                let image = store.open(other).unwrap();
                assert_eq!(
                    image.files().len() - 1,
                    ["first", "second", "third"].iter().position(|n| n == other).unwrap()
                );
            }
        }
        assert_eq!(files_in(dir.path()), 0, "everything is gone with the last of them");
    }
}

#[test]
fn a_parent_that_is_another_is_not_referred_to() {
    let (_dir, store, path) = bench();
    let first = image(&path, 1, &[]);
    let to = store.vacant("second", Medium::Disk).unwrap();
    // Elsewhere, replaced, damaged, gone.
    assert!(Lineage::prepare(&first, Path::new("/tmp/elsewhere.frozen")).is_none());
    image(&path, 2, &[]);
    assert!(Lineage::prepare(&first, &to).is_none());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(Lineage::prepare(&first, &to).is_none());
    fs::remove_file(&path).unwrap();
    assert!(Lineage::prepare(&first, &to).is_none());
    // One that nobody removed by name, but by hand, is opened no more and cannot be linked.
    let first = image(&path, 1, &[]);
    drop(Lineage::prepare(&first, &to).unwrap());
    assert!(!FrozenImage::ancestors_beside(&to).exists(), "a freeze that fails leaves nothing");
}

#[test]
fn chains_end_at_the_bound() {
    let (_dir, store, path) = bench();
    let mut last = image(&path, 1, &[]);
    for n in 2..=12u8 {
        last = child(&store, &format!("i{n}"), n, &last);
        let count = store.open(&format!("i{n}")).unwrap().files().len() - 1;
        assert_eq!(count, usize::from(n - 1).min(MAX_ANCESTORS));
    }
}

#[test]
fn an_ancestor_of_which_little_is_needed_is_let_go() {
    for (pages, needed) in [(3, 2), (16, 1)] {
        let (_dir, store, path) = bench();
        let first = large_image(&path, 1, pages, &[]);
        let second = child(&store, "second", 2, &first);
        // All the second needs of it is a page.
        assert_eq!(worth_it(&store.open("second").unwrap()).len(), needed);
        child(&store, "third", 3, &second);
        assert_eq!(store.open("third").unwrap().files().len() - 1, needed);
    }
}

#[test]
fn what_was_interrupted_is_swept() {
    let (dir, store, path) = bench();
    let first = image(&path, 1, &[]);
    child(&store, "second", 2, &first);
    let beside = FrozenImage::ancestors_beside(&path.with_file_name("second.frozen"));
    // Killed before the image had its name, or after it had lost it.
    let to = store.vacant("third", Medium::Disk).unwrap();
    let lineage = Lineage::prepare(&first, &to).unwrap();
    store.sweep().unwrap();
    assert_eq!(files_in(&FrozenImage::ancestors_beside(&to)), 1, "it is being made");
    let Lineage { mut links, .. } = lineage;
    links.keep = true;
    drop(links);
    // Killed when it had replaced one that needed more.
    fs::hard_link(&path, beside.join("ffffffffffffffffffffffffffffffff")).unwrap();
    assert_eq!(files_in(dir.path()), 5);
    store.sweep().unwrap();
    assert_eq!(files_in(dir.path()), 3);
    assert!(!FrozenImage::ancestors_beside(&to).exists());
    store.open("second").unwrap();
}

#[test]
fn flattened_ones_need_no_other() {
    let (dir, store, path) = bench();
    let first = image(&path, 1, &[]);
    let second = child(&store, "second", 2, &first);
    child(&store, "third", 3, &second);
    store.remove("first").unwrap();
    let before = store.open("second").unwrap();
    store.flatten("second").unwrap();
    let image = store.open("second").unwrap();
    assert!(!image.has_ancestors() && image.identity() != before.identity());
    let mut pages = [0; 2 * PAGE as usize];
    let s = image.segments();
    assert_eq!((s.len(), s[0].addr, s[0].len), (1, USER_START, 2 * PAGE));
    image.files()[0].read(s[0].offset, &mut pages).unwrap();
    assert!(pages[..PAGE as usize].iter().all(|b| *b == 2) && pages[PAGE as usize..].iter().all(|b| *b == 1));
    // Whoever has the one before open goes on, and the other needs it still.
    assert_eq!(before.files().len(), 2);
    assert_eq!(store.open("third").unwrap().files().len(), 3);
    drop((before, image));
    store.remove("second").unwrap();
    store.remove("third").unwrap();
    assert_eq!(files_in(dir.path()), 0);
}

/// A file system that gives a file three names.
fn three_names(from: &Path, to: &Path) -> std::result::Result<(), rustix::io::Errno> {
    if fs::metadata(from).map_err(|_| rustix::io::Errno::NOENT)?.nlink() >= 3 {
        return Err(rustix::io::Errno::MLINK);
    }
    copies::link(from, to)
}

#[test]
fn what_can_have_no_more_names_is_copied() {
    let (dir, store, path) = bench();
    let first = large_image(&path, 1, 3, &[]);
    let names: Vec<String> = (0..8).map(|n| format!("clone{n}")).collect();
    for (n, name) in (2u8..).zip(&names) {
        child_by(three_names, &store, name, n, &first);
    }
    let copies = || fs::read_dir(path.with_file_name("copies")).unwrap().count();
    // Two of them have a name for the original, and two for each copy: its own in `copies` counts.
    assert_eq!(copies(), 3);
    store.remove("first").unwrap();
    for name in &names {
        let image = store.open(name).unwrap();
        assert_eq!(image.files()[1].identity(), first.identity);
        image.check_rest().unwrap();
    }
    // Swept as soon as nobody has a name for them.
    let sizes: Vec<u64> = names.iter().map(|name| store.flatten(name).unwrap()).collect();
    assert!(sizes.iter().all(|size| *size >= 3 * PAGE), "{sizes:?}");
    store.sweep().unwrap();
    assert_eq!(copies(), 0);
    for name in &names {
        store.remove(name).unwrap();
    }
    assert_eq!(files_in(dir.path()), 0);
}
