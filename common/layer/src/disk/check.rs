//! Whether a tree that was read is one: a disk may have been written by anybody.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::record::Attributes;
use crate::tree::{File, Name, Tree};
use crate::{BLOCK, Error};

/// Number of the root directory.
pub const ROOT: u64 = 1;
/// Numbers and places in listings are below it.
const NUMBERS: u64 = 1 << 40;
/// Longest text of a symbolic link in bytes.
const TARGET: usize = 4095;
/// Most bytes of names and values of one file's attributes.
const XATTRS: usize = 64 << 10;
/// Most bytes of a file.
const SIZE: u64 = 1 << 60;
/// Times are this far from 1970 at most, in nanoseconds, so that they can be counted with.
const TIME: u64 = 1 << 62;

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// And the other types: pipes, devices, sockets.
const SPECIAL: [u32; 4] = [0o010_000, 0o020_000, 0o060_000, 0o140_000];

/// Checks a tree that a disk says. What a power cut leaves behind is set right: names and files of which only a part was written, as
/// they were removed meanwhile, and counts of names.
///
/// # Errors
/// It says what nobody writes.
pub(super) fn check(tree: &mut Tree) -> Result<(), Error> {
    let wrong = |what| Err(Error::Corrupt(what));
    if tree.next > NUMBERS {
        return wrong("numbers of files have no end");
    }
    tree.files.retain(|_, file| file.attributes.is_some());
    for (ino, file) in &tree.files {
        if !(ROOT..tree.next).contains(ino) {
            return wrong("a file has a number that was never given");
        }
        check_file(file)?;
    }
    if kind(tree, ROOT) != Some(DIRECTORY) {
        return wrong("the root is no directory");
    }
    let links = count_links(tree)?;
    for (ino, file) in &mut tree.files {
        let Some(attributes) = &mut file.attributes else { continue };
        match links.get(ino) {
            Some(count) => attributes.nlink = *count,
            // Nothing leads to it: it goes with the first transaction.
            None => file.names.clear(),
        }
    }
    Ok(())
}

fn kind(tree: &Tree, ino: u64) -> Option<u32> {
    tree.files.get(&ino).and_then(|file| file.attributes).map(|a| a.mode & TYPE)
}

/// Follows all names from the root on; how many lead to each file. Those that lead nowhere go.
fn count_links(tree: &mut Tree) -> Result<BTreeMap<u64, u32>, Error> {
    let mut links = BTreeMap::from([(ROOT, 2)]);
    let mut to_do = alloc::vec![ROOT];
    while let Some(dir) = to_do.pop() {
        let mut names =
            tree.files.get_mut(&dir).map(|file| core::mem::take(&mut file.names)).unwrap_or_default();
        names.retain(|_, what| matches!(what, Name::File { ino, .. } if tree.files.contains_key(ino)));
        for what in names.values() {
            let Name::File { ino, .. } = *what else { continue };
            if kind(tree, ino) != Some(DIRECTORY) {
                *links.entry(ino).or_default() += 1;
            } else if links.insert(ino, 2).is_none() {
                *links.entry(dir).or_default() += 1;
                to_do.push(ino);
            } else {
                return Err(Error::Corrupt("two names lead to one directory"));
            }
        }
        if let Some(file) = tree.files.get_mut(&dir) {
            file.names = names;
        }
    }
    Ok(links)
}

/// A file by itself.
fn check_file(file: &File) -> Result<(), Error> {
    let wrong = |what| Err(Error::Corrupt(what));
    let Some(Attributes { mode, atime, mtime, ctime, btime, .. }) = file.attributes else {
        return wrong("a file has no attributes");
    };
    if [atime, mtime, ctime, btime].iter().any(|t| t.unsigned_abs() > TIME) {
        return wrong("a time is none");
    }
    let kind = mode & TYPE;
    let known = [DIRECTORY, REGULAR, SYMLINK].contains(&kind) || SPECIAL.contains(&kind);
    if !known || mode & !0o177_777 != 0 {
        return wrong("a file of no known type");
    }
    if (kind != DIRECTORY && !file.names.is_empty())
        || (kind != REGULAR && file.content.is_some())
        || (kind == SYMLINK) != file.target.is_some()
    {
        return wrong("a file has what its type has not");
    }
    if file.target.as_ref().is_some_and(|t| t.is_empty() || t.len() > TARGET || t.contains(&0)) {
        return wrong("a link leads nowhere");
    }
    let xattrs = file.xattrs.iter().flatten();
    if xattrs.map(|(name, value)| name.len() + value.len()).sum::<usize>() > XATTRS {
        return wrong("a file has too many attributes");
    }
    if let Some(content) = &file.content {
        let end = content.size.div_ceil(BLOCK);
        let last = content.blocks.runs().last().map_or(0, |(page, pages, _)| page + pages);
        if content.size > SIZE || last > end {
            return wrong("a file has bytes behind its end");
        }
    }
    let mut cookies: Vec<u64> = Vec::new();
    cookies.extend(file.names.values().filter_map(|what| match what {
        Name::File { cookie, .. } => Some(*cookie),
        Name::Whiteout => None,
    }));
    cookies.sort_unstable();
    if cookies.windows(2).any(|two| two[0] == two[1]) || cookies.last().is_some_and(|c| *c >= NUMBERS) {
        return wrong("two names have one place");
    }
    Ok(())
}
