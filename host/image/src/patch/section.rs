//! The patch section of an image: made from the finished file system, and checked against it.

use doppel_abi_image::patch::{FOOTER_FROM_END, PATCH_MAGIC, PATCH_VERSION, PatchEntry, PatchFooter};
use doppel_erofs::{Erofs, Kind};

use super::{FileReport, PAGE, PatchReport, SCANNER, TOP, check, scan};
use crate::watcher::{Step, Watcher};

/// A regular file of the image.
pub(crate) struct FileExtent {
    /// Its node.
    pub nid: u64,
    /// Where its data starts in the image.
    pub offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// Which file it is to the caller.
    pub node: usize,
}

/// Scans `files` (in order of nodes) of the file system `image` and gives the section's bytes to `put`, piece by
/// piece. `path` names a file for the report; `watcher` is told how far it is.
pub(crate) fn write<E>(
    image: &[u8],
    files: &[FileExtent],
    path: &dyn Fn(usize) -> String,
    watcher: &Watcher,
    mut put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<PatchReport, E> {
    let start = image.len() as u64;
    let mut at = start;
    let mut report = PatchReport { scanner: SCANNER, ..PatchReport::default() };
    let mut all = Vec::new();
    let mut entries = Vec::new();
    let total = files.iter().map(|f| f.len).sum();
    let mut done = 0;
    for file in files {
        done += file.len;
        watcher.tell(Step::Patch { done, total });
        let data = usize::try_from(file.offset).ok().zip(usize::try_from(file.len).ok());
        let Some(data) = data.and_then(|(at, len)| image.get(at..at.checked_add(len)?)) else { continue };
        let Some(scan) = scan(data) else { continue };
        report.add(&scan);
        if scan.sites > 0 {
            let (a, b) = scan.patched.as_ref().map_or((0, 0), |p| (p.rule_a, p.rule_b));
            all.push((scan.sites, a, b, file.node));
        }
        let Some(patched) = scan.patched else { continue };
        let (len, trampolines_len) = (patched.text.len() as u64, patched.trampolines.len() as u64);
        entries.push(PatchEntry {
            nid: file.nid,
            segment: patched.segment,
            len,
            text: at,
            trampolines: at + len,
            trampolines_len,
            distance: patched.distance,
            sites: scan.sites,
            rule_a: patched.rule_a,
            rule_b: patched.rule_b,
            reserved: 0,
        });
        put(&patched.text)?;
        put(&patched.trampolines)?;
        at += len + trampolines_len;
    }
    let mut table: Vec<u8> = entries.iter().flat_map(PatchEntry::to_bytes).collect();
    table.resize(table.len().next_multiple_of(PAGE as usize), 0);
    let footer =
        PatchFooter { magic: PATCH_MAGIC, version: PATCH_VERSION, count: entries.len() as u32, table: at };
    let footer_at = table.len();
    table.extend(footer.magic.to_le_bytes());
    table.extend(footer.version.to_le_bytes());
    table.extend(footer.count.to_le_bytes());
    table.extend(footer.table.to_le_bytes());
    table.resize(footer_at + FOOTER_FROM_END as usize, 0);
    put(&table)?;
    report.bytes = at + table.len() as u64 - start;
    all.sort_by_key(|(sites, _, _, node)| (std::cmp::Reverse(*sites), *node));
    let named = |(sites, rule_a, rule_b, node)| FileReport { path: path(node), sites, rule_a, rule_b };
    report.top = all.into_iter().take(TOP).map(named).collect();
    Ok(report)
}

/// The footer of an image file, if it has a patch section.
fn footer(image: &[u8]) -> Option<PatchFooter> {
    PatchFooter::parse(image.get(image.len().checked_sub(FOOTER_FROM_END as usize)?..)?)
}

/// Checks the whole section of an image against the files it belongs to. The error is a sentence for people.
pub fn verify(image: &[u8], fs: &Erofs<'_>, blocks_end: u64) -> Result<(), String> {
    if blocks_end == image.len() as u64 {
        return Ok(());
    }
    let footer = footer(image).ok_or("what follows the file system is no patch section")?;
    let slice =
        |at: u64, len: u64| image.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(len)?).ok()?);
    let table = slice(footer.table, u64::from(footer.count) * PatchEntry::SIZE as u64);
    let table = table.ok_or("the table of the patch section is outside the image")?;
    let mut last = None;
    for e in table.chunks_exact(PatchEntry::SIZE).filter_map(PatchEntry::parse) {
        let wrong = |why: &str| format!("patches of node {}: {why}", e.nid);
        if last.replace(e.nid).is_some_and(|l| l >= e.nid) {
            return Err(wrong("out of order"));
        }
        let multiples = [e.segment, e.len, e.text, e.trampolines, e.trampolines_len, e.distance];
        if multiples.iter().any(|n| n % PAGE != 0)
            || e.distance < e.trampolines_len
            || e.distance >= 1 << 31
            || e.text < e.segment
        {
            return Err(wrong("numbers out of range"));
        }
        let inode = fs.inode(e.nid).map_err(|x| wrong(&x.to_string()))?;
        let range = fs.data_range(&inode).map_err(|x| wrong(&x.to_string()))?;
        let Some((offset, size)) = range.filter(|_| inode.kind == Kind::Regular) else {
            return Err(wrong("not of a regular file"));
        };
        let outside = || wrong("outside the image");
        let data = slice(offset, size).ok_or_else(outside)?;
        let end = e.segment.checked_add(e.len).ok_or_else(outside)?.min(size);
        if e.segment >= end {
            return Err(wrong("outside the file"));
        }
        let mut original = data[e.segment as usize..end as usize].to_vec();
        let copy = slice(e.text, e.len).ok_or_else(outside)?;
        original.resize(copy.len(), 0);
        let trampolines = slice(e.trampolines, e.trampolines_len).ok_or_else(outside)?;
        let (a, b) = check(&original, copy, trampolines, e.distance).map_err(|why| wrong(&why))?;
        if (a, b) != (e.rule_a, e.rule_b) || u64::from(a) + u64::from(b) > e.sites.into() {
            return Err(wrong("its counts are wrong"));
        }
    }
    Ok(())
}
