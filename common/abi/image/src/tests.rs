//! Encode and decode are inverse; device numbers and the checksum match known values.
use super::*;

#[test]
fn structures_round_trip() {
    let bytes: [u8; 128] = core::array::from_fn(|i| (i * 7 + 3) as u8);
    assert_eq!(Superblock::decode(&bytes).encode(), bytes);
    let bytes: [u8; 64] = core::array::from_fn(|i| (i * 5 + 1) as u8);
    assert_eq!(ExtendedInode::decode(&bytes).encode(), bytes);
    let bytes: [u8; 32] = core::array::from_fn(|i| (i * 3 + 9) as u8);
    assert_eq!(CompactInode::decode(&bytes).encode(), bytes);
    let bytes: [u8; 12] = core::array::from_fn(|i| (i + 200) as u8);
    assert_eq!(Dirent::decode(&bytes).encode(), bytes);
    assert_eq!(XattrHeader::decode(&bytes).encode(), bytes);
    assert_eq!(XattrEntry::decode(&[1, 2, 3, 4]).encode(), [1, 2, 3, 4]);
}

#[test]
fn device_numbers() {
    assert_eq!(encode_rdev(1, 3), Some(0x103));
    assert_eq!(decode_rdev(0x103), (1, 3));
    let big = encode_rdev(0xfff, 0xf_ffff);
    assert_eq!(big.map(decode_rdev), Some((0xfff, 0xf_ffff)));
    assert_eq!(encode_rdev(0x1000, 0), None);
    assert_eq!(encode_rdev(0, 0x10_0000), None);
}

#[test]
fn crc_check_value() {
    // The catalogue's check value for CRC-32C includes the final inversion.
    assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
}
