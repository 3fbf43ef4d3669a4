//! Images made by hand, damaged in every byte: each damage is an error, never a panic.

use std::path::PathBuf;

use doppel_abi_machine::frozen::{HEADER_SIZE, MAGIC, PAGEFILE, VERSION};
use doppel_abi_machine::layout::{PAGE, USER_START};
use proptest::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::*;
use crate::format::{hash_page, header_bytes, is_zero, parse_header, segment_bytes};

/// A sound image of three segments, one of them with a page of zeros.
fn sound_image() -> Vec<u8> {
    let page = PAGE as usize;
    let segments = [
        Segment { space: PAGEFILE, file: 0, addr: 0, len: PAGE, offset: PAGE },
        Segment { space: ARENA, file: 0, addr: PAGE, len: 2 * PAGE, offset: 2 * PAGE },
        Segment { space: 7, file: 0, addr: USER_START, len: PAGE, offset: 4 * PAGE },
    ];
    let mut header = parse_header(&[0; HEADER_SIZE as usize]);
    (header.magic, header.version) = (MAGIC, VERSION);
    (header.tables_len, header.file_len, header.segments, header.chunks) = (PAGE, 5 * PAGE, 3, 1);
    header.data_at = PAGE;
    (header.arena_size, header.pagefile_size) = (4 * PAGE, PAGE);
    let mut data = vec![0; 4 * page];
    for (i, byte) in data.iter_mut().enumerate().filter(|(i, _)| i / page != 2) {
        *byte = (i * 7 % 251) as u8;
    }
    let mut hash = Xxh3::new();
    for (i, p) in data.chunks(page).enumerate().filter(|(_, p)| !is_zero(p)) {
        hash_page(&mut hash, i * page, p);
    }
    let mut tables = header_bytes(&header);
    tables.extend(segments.iter().flat_map(segment_bytes));
    tables.extend(hash.digest().to_le_bytes());
    tables.resize(page, 0);
    header.checksum = xxh3_64(&tables);
    tables[..HEADER_SIZE as usize].copy_from_slice(&header_bytes(&header));
    tables.extend(data);
    tables
}

/// Makes header and tables match their checksum again, as a forger would.
fn forge(bytes: &mut [u8]) {
    let at = std::mem::offset_of!(Header, checksum);
    let tables = (PAGE as usize).min(bytes.len());
    bytes[at..at + 8].fill(0);
    let sum = xxh3_64(&bytes[..tables]);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
}

fn opened(dir: &tempfile::TempDir, bytes: &[u8]) -> Result<FrozenImage> {
    let path: PathBuf = dir.path().join("i.frozen");
    std::fs::write(&path, bytes).unwrap();
    FrozenImage::open(&path)
}

#[test]
fn every_damaged_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let good = sound_image();
    opened(&dir, &good).unwrap();
    let sample = (PAGE as usize..good.len()).step_by(61);
    for at in (0..PAGE as usize).chain(sample) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let error = opened(&dir, &bad).expect_err("damage must be found");
        assert!(matches!(error, Error::Damaged { .. }), "byte {at}: {error}");
    }
}

#[test]
fn every_shorter_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = sound_image();
    for len in (0..good.len()).step_by(37) {
        assert!(opened(&dir, &good[..len]).is_err(), "{len} bytes");
    }
}

type Change<'a> = &'a dyn Fn(&mut Header);

/// Header of a sound image, changed and with its checksum made right.
fn changed(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut bytes = sound_image();
    let mut header = parse_header(bytes[..HEADER_SIZE as usize].try_into().unwrap());
    change(&mut header);
    bytes[..HEADER_SIZE as usize].copy_from_slice(&header_bytes(&header));
    forge(&mut bytes);
    bytes
}

/// A header that fits this host.
fn at_home(h: &mut Header) {
    (h.machine_version, h.kernel, h.image) = (doppel_abi_machine::VERSION, [1; 32], [2; 32]);
    (h.cpu, h.vdso) = (*doppel_sys::cpu::features(), host::vdso().unwrap());
}

#[test]
fn what_does_not_fit_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let said = |change: Change<'_>| {
        let bytes = changed(|h| {
            at_home(h);
            change(h);
        });
        opened(&dir, &bytes).unwrap().check_fit(&[1; 32], &[2; 32]).err().map(|e| {
            assert!(matches!(e, Error::Unfit { .. }), "{e}");
            e.to_string()
        })
    };
    assert_eq!(said(&|_| {}), None);
    // A CPU that has more than was there is right.
    assert_eq!(said(&|h| h.cpu[0] = 0), None);
    let refusals: [(Change<'_>, &str); 6] = [
        (
            &|h| h.kernel[0] ^= 1,
            "another guest kernel (000101010101…, here 010101010101…); use the doppel that froze it",
        ),
        (&|h| h.machine_version += 1, "another guest kernel"),
        (&|h| h.image[31] ^= 1, "has changed since the freeze; restore it, or freeze again"),
        (&|h| h.vdso[5] ^= 1, "another host kernel (its vDSO differs); freeze again under this one"),
        (
            &|h| h.cpu = [u32::MAX; 10],
            "this CPU lacks features the programs may use: CPUID 0x1.0 ecx bits 0x",
        ),
        (&|h| h.cpu[9] |= 1 << 31, "XCR0 bits 0x80000000"),
    ];
    for (change, text) in refusals {
        let error = said(change).expect(text);
        assert!(error.starts_with("frozen image i does not fit: ") && error.contains(text), "{error}");
    }
}

#[test]
fn another_format_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let error = opened(&dir, &changed(|h| h.version += 1)).unwrap_err().to_string();
    assert!(
        error.contains("format version 3; this program knows version 2. Freeze the domain again"),
        "{error}"
    );
    let error = opened(&dir, b"\x7fELF, but long enough to have a header".repeat(20).as_slice()).unwrap_err();
    assert!(error.to_string().ends_with("not a frozen image"), "{error}");
}

#[test]
fn the_monotonic_clock_goes_on() {
    const HOUR: u64 = 3_600_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let offset =
        |change: Change<'_>| opened(&dir, &changed(|h| change(h))).unwrap().monotonic_offset().unwrap();
    let boot = host::boot_id().unwrap();
    // The same boot: both clocks run on.
    assert_eq!(offset(&|h| (h.host_boot, h.monotonic_offset) = (boot, 77)), 77);
    // After a reboot of the host, an hour later by the wall clock; its own clock has gone back.
    let then = 5 * HOUR;
    let now = offset(&|h| {
        h.realtime_ns = host::realtime_ns() - HOUR;
        (h.host_monotonic_ns, h.monotonic_offset) = (then, 0);
    });
    let guest = host::monotonic_ns().wrapping_add(now);
    assert!((then + HOUR..then + HOUR + HOUR / 60).contains(&guest), "{guest}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Tables whose checksum is right but whose numbers are anything: refused or sound, never a panic.
    #[test]
    fn forged_tables_do_no_harm(changes in prop::collection::vec((16usize..808, any::<u8>()), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = sound_image();
        for (at, value) in changes {
            bytes[at] = value;
        }
        forge(&mut bytes);
        if let Ok(image) = opened(&dir, &bytes) {
            for s in &image.segments {
                prop_assert!(s.offset + s.len <= bytes.len() as u64 && s.len > 0);
            }
            prop_assert_eq!(image.describe().segments, image.segments.len() as u64);
        }
    }
}
