//! Input on its way to a keeper.

/// Most bytes of input, of a domain or an exec, sent to the keeper at a time.
pub(crate) const PIECE: usize = 64 << 10;

/// Bytes of a piece, which has [`PIECE`] at most.
pub(crate) fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("a piece is short")
}

/// Bytes of input that a run of a domain was given, modulo 2^32, as far as that is known.
pub(crate) type Given = Option<(u64, u32)>;
