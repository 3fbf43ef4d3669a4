//! Names and mirrors. Building itself is tested by `make image`.
use super::*;

#[test]
fn words() {
    let build = |word: &str| Build { suite: "bookworm".into(), packages: vec![word.into()], mirror: None };
    for good in ["git", "g++", "libc6-dev", "python3.11", "git=1:2.39", "x~1"] {
        build(good).check().unwrap();
    }
    for bad in ["", "-x", "a b", "a,b", "$(x)", "../x", "?essential"] {
        assert!(build(bad).check().is_err(), "{bad}");
    }
}

#[test]
fn mirrors() {
    let modern = "Types: deb\n# comment\nURIs: http://mirror.example/debian\nSuites: bookworm\n";
    assert_eq!(mirror_in(modern).as_deref(), Some("http://mirror.example/debian"));
    let classic = "deb [signed-by=/x] https://mirror.example/debian/ bookworm main\n";
    assert_eq!(mirror_in(classic).as_deref(), Some("https://mirror.example/debian/"));
    assert_eq!(mirror_in("deb http://mirror.example/debian-security bookworm-security main\n"), None);
    assert_eq!(mirror_in("# deb http://mirror.example/debian bookworm main\n"), None);
}
