//! An image with ancestors made whole: its memory copied to one file.

use std::path::Path;

use doppel_abi_machine::frozen::Segment;

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::open::FrozenImage;
use crate::scan::{Piece, Plan, Source};
use crate::write::{Read, Unfinished};

/// Writes what an image has to a file without a name, beside `to`.
pub(super) fn whole(image: &FrozenImage, to: &Path) -> Result<Draft> {
    let plan = plan(image.segments());
    let mut header = *image.header();
    header.ancestor_count = 0;
    let mut out = Unfinished::new(&plan, header, false, to)?;
    let chunks: Vec<u64> = (0..out.header.chunks).collect();
    let done = out.copier(&plan, None).all(&chunks, &ImageReader(image))?;
    out.finish(plan.segments, &done, None)?;
    Ok(out.draft)
}

/// One piece for each segment; those that go on where another ends become one segment.
fn plan(segments: &[Segment]) -> Plan {
    let mut plan = Plan::default();
    for s in segments {
        plan.pieces.push(Piece { source: Source::Image(s.file), addr: s.offset, len: s.len, to: plan.len });
        match plan.segments.last_mut().filter(|last| last.space == s.space && last.addr + last.len == s.addr)
        {
            Some(last) => last.len += s.len,
            None => plan.segments.push(Segment { file: 0, offset: plan.len, ..*s }),
        }
        plan.len += s.len;
    }
    plan
}

/// Reads an image's memory, in its own file or an ancestor's.
struct ImageReader<'a>(&'a FrozenImage);

impl Read for ImageReader<'_> {
    fn read(&self, group: &[Piece], buf: &mut [u8]) -> Result<()> {
        let mut at = 0;
        for p in group {
            let Source::Image(file) = p.source else {
                return Err(Error::Request("an image's memory is in files".into()));
            };
            let body = &self.0.files()[file as usize];
            let n = p.len as usize;
            body.read(p.addr, &mut buf[at..at + n])
                .map_err(Error::host(format!("read {}", body.path.display())))?;
            at += n;
        }
        Ok(())
    }
}
