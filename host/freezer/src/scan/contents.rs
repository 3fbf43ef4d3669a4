//! Which files of a domain have its memory.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use doppel_abi_machine::fd;

use crate::ancestors::Ancestors;
use crate::error::{Error, Result};

/// A file whose pages are content of the domain where they are mapped, and not to be had from elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Content {
    inode: u64,
    /// The number that the new image has for it, and where in it there are pages: what is still mapped from there need not be read.
    file: Option<(u32, Range<u64>)>,
}

impl Content {
    /// The number that the new image has for the file, if it can refer to this part of it. Guest kernels that lie map others.
    pub fn refers(&self, offset: u64, len: u64) -> Option<u32> {
        let (number, data) = self.file.as_ref()?;
        let inside = offset >= data.start && offset.checked_add(len).is_some_and(|end| end <= data.end);
        inside.then_some(*number)
    }
}

/// Such files of a domain.
#[derive(Debug, Default)]
pub struct Contents(Vec<Content>);

impl Contents {
    /// Those of the domain whose first process has host pid `init`: its frozen image and that one's ancestors, as it has them open,
    /// and `others`, by inode number.
    pub(crate) fn of(init: i32, others: &[u64], ancestors: Option<&Ancestors>) -> Result<Self> {
        let mut all: Vec<_> = others.iter().map(|&inode| Content { inode, file: None }).collect();
        let mut open = Vec::new();
        // Whoever ends loses all at once: if the image is there in the end, those before that were not there never were.
        for number in (0..fd::END).rev() {
            match std::fs::metadata(format!("/proc/{init}/fd/{number}")) {
                Ok(meta) => open.push((number, (meta.dev(), meta.ino()))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(Error::host("examine the domain's files")(e)),
            }
        }
        let program = std::fs::metadata(format!("/proc/{init}/exe"))
            .map_err(Error::host("examine the domain's guest kernel"))?;
        open.push((-1, (program.dev(), program.ino())));
        let image = open.iter().find(|(number, _)| *number == fd::IMAGE).map(|(_, place)| *place);
        let image = image.ok_or_else(|| Error::Request("the domain has ended".into()))?;
        let is_frozen = |number| number == fd::FROZEN || (fd::ANCESTORS..fd::END).contains(&number);
        // Numbers it has no use for lead to its image.
        for &(_, place) in open.iter().filter(|(number, place)| is_frozen(*number) && *place != image) {
            // `/proc/PID/maps` tells files apart by their inode numbers, if the domain has no other of that number.
            let alone = open.iter().all(|(_, other)| other.1 != place.1 || *other == place);
            let file = ancestors.and_then(|a| a.number_at(place)).filter(|_| alone);
            all.push(Content { inode: place.1, file });
        }
        Ok(Self(all))
    }

    pub(super) fn find(&self, inode: u64) -> Option<&Content> {
        self.0.iter().find(|c| c.inode == inode)
    }
}
