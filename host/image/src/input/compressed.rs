//! Decompression of hostile streams: gzip and zstd, told by their first bytes.
//!
//! Output is bounded by whoever reads it; the decoders themselves need bounded memory (a zstd frame's window is
//! refused above ruzstd's default of 100 MiB).

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const BUFFER: usize = 1 << 18;

/// The decompressed bytes of `source`, or its bytes as they are.
pub fn plain<'a>(source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut source = BufReader::with_capacity(BUFFER, source);
    let mut magic = Vec::new();
    source.by_ref().take(6).read_to_end(&mut magic)?;
    let start = magic.clone();
    let source = BufReader::with_capacity(BUFFER, io::Cursor::new(start).chain(source));
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(source))),
        // A frame, or a skippable one before it.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Box::new(Zstd::new(source))),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(foreign("xz")),
        [b'B', b'Z', b'h', ..] => Err(foreign("bzip2")),
        _ => Ok(Box::new(source)),
    }
}

fn foreign(with: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("compressed with {with}; decompress it first (plain tar, gzip and zstd are read)"),
    )
}

/// All frames of a zstd stream.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    started: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), started: false }
    }

    /// Begins the next frame; false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(broken(&e)),
            }
        }
    }
}

fn broken(e: &FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("broken zstd data: {e}"))
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.started && self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            }
            if self.started && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(BUFFER);
                self.decoder.decode_blocks(&mut self.source, some).map_err(|e| broken(&e))?;
            } else if self.next_frame()? {
                self.started = true;
            } else {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
