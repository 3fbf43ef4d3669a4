#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

fn through(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take()?;
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    out.status.success().then_some(out.stdout)
}

fn all(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    plain(input)?.read_to_end(&mut out)?;
    Ok(out)
}

#[test]
fn gzip_zstd_and_plain() {
    let data: Vec<u8> =
        (0..3_000_000u32).flat_map(|i| (i / 7).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    assert_eq!(all(&data).unwrap(), data);
    assert!(all(b"").unwrap().is_empty());
    for (program, args) in [("gzip", ["-c", "-1"]), ("zstd", ["-c", "-1"])] {
        let Some(packed) = through(program, &args, &data) else { continue };
        assert_eq!(all(&packed).unwrap(), data, "{program}");
        // Members or frames in a row are one stream.
        assert_eq!(all(&[&packed[..], &packed].concat()).unwrap(), [&data[..], &data].concat(), "{program}");
        assert!(all(&packed[..packed.len() / 2]).is_err(), "{program}: cut");
        let mut bad = packed.clone();
        let middle = bad.len() / 2;
        bad[middle..middle + 64].fill(0xff);
        assert!(all(&bad).map_or(true, |out| out != data), "{program}: damaged");
        if program == "zstd" {
            let skip = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &packed].concat();
            assert_eq!(all(&skip).unwrap(), data, "a skippable frame");
            assert!(all(&skip[..10]).is_err());
        }
    }
    assert!(all(b"BZh9....").is_err());
    assert!(all(b"\xfd7zXZ\0..").is_err());
}
