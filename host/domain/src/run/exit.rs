//! How a domain ended, and wait statuses.

/// How a domain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended: its exit code, or 128 + the signal that ended it.
    Exited(u8),
    /// The domain ended without the program ending.
    Ended {
        /// Why, in words.
        reason: String,
        /// The host killed it for want of memory.
        out_of_memory: bool,
    },
}

/// A shell's view of a wait status.
pub(crate) fn exit_code(status: i32) -> u8 {
    let [low, high, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => high,
        signal => 128 + signal,
    }
}

/// A wait status in words.
pub(crate) fn describe(status: i32) -> String {
    let [low, high, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => format!("ended with exit code {high}"),
        signal => format!("killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(127 << 8), 127);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(11 | 0x80), 139);
        assert_eq!(describe(9), "killed by signal 9");
    }
}
