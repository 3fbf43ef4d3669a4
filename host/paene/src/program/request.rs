//! What the host asks to be run, read out of the control area.

pub(crate) use doppel_spec::Request;
use doppel_sys::shared::SharedMap;

/// Reads `len` bytes at `offset` of the control area. None if they are no request.
pub(crate) fn read(map: &SharedMap, offset: usize, len: u32, room: u64) -> Option<Request> {
    if u64::from(len) > room {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    map.read(offset, &mut bytes);
    Request::parse(&bytes)
}
