//! Arbitrary bytes as the configuration file of doppeld: refused, or good enough to be written and read again.
#![no_main]

#[allow(dead_code, reason = "the supervisor uses the rest")]
#[path = "../../host/supervisor/src/daemon/config.rs"]
mod config;

use config::{Overrides, Settings};

fn read(text: &[u8]) -> Result<Settings, String> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("room in memory");
    std::fs::write(file.path(), text).expect("room in memory");
    Settings::read(Some(file.path()), &Overrides::default())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(settings) = read(bytes) {
        let text = settings.to_toml();
        let again = read(text.as_bytes()).expect("what was written can be read");
        assert_eq!(again.to_toml(), text);
    }
});
