//! Reads the beginning of a file of the host's in one call: a look at CPU time reads many that are short.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any line that is looked for.
const MOST: usize = 1024;

/// Its first bytes, up to [`MOST`]. None if it cannot be read.
pub(super) fn brief(path: impl AsRef<Path>) -> Option<String> {
    let mut buffer = [0; MOST];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_whole_read_does() {
        let whole = std::fs::read_to_string("/proc/self/limits").unwrap();
        assert!(whole.starts_with(&brief("/proc/self/limits").unwrap()));
        assert_eq!(brief("/proc/version"), std::fs::read_to_string("/proc/version").ok());
        assert_eq!(brief("/nowhere"), None);
    }
}
