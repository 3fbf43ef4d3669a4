use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Reference {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn docker_defaults() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (text, host, repository, manifest, familiar) in [
        ("debian", "registry-1.docker.io", "library/debian", "latest", "debian:latest"),
        ("debian:12", "registry-1.docker.io", "library/debian", "12", "debian:12"),
        ("docker.io/library/debian:12", "registry-1.docker.io", "library/debian", "12", "debian:12"),
        ("index.docker.io/me/x", "registry-1.docker.io", "me/x", "latest", "me/x:latest"),
        ("me/x__y.z-w", "registry-1.docker.io", "me/x__y.z-w", "latest", "me/x__y.z-w:latest"),
        ("localhost/x", "localhost", "x", "latest", "localhost/x:latest"),
        ("localhost:5000/a/b:t", "localhost:5000", "a/b", "t", "localhost:5000/a/b:t"),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", "[::1]:5000/a:latest"),
        ("quay.io/a/b/c", "quay.io", "a/b/c", "latest", "quay.io/a/b/c:latest"),
        (&format!("x@{digest}"), "registry-1.docker.io", "library/x", &digest, &format!("x@{digest}")),
        (&format!("x:t@{digest}"), "registry-1.docker.io", "library/x", &digest, &format!("x:t@{digest}")),
    ] {
        let r = parse(text);
        assert_eq!((r.host(), r.repository(), r.manifest().as_str()), (host, repository, manifest), "{text}");
        assert_eq!(r.familiar(), familiar, "{text}");
        assert_eq!(parse(&r.familiar()), r, "{text}");
    }
}

#[test]
fn loopback() {
    for (text, is) in [
        ("localhost/x", true),
        ("127.0.0.1:5000/x", true),
        ("127.9.9.9/x", true),
        ("[::1]:80/x", true),
        ("10.0.0.1/x", false),
        ("localhost.example.org/x", false),
        ("x", false),
    ] {
        assert_eq!(parse(text).is_loopback(), is, "{text}");
    }
}

#[test]
fn refused() {
    let long = "a".repeat(300);
    for text in [
        "",
        "/",
        "x/",
        "/x",
        "Debian",
        "x//y",
        "x:",
        "x:-t",
        "x:a/b:",
        "a b",
        "x@",
        "x@sha256:12",
        "../x",
        "x/..",
        "x._y",
        "x.",
        "_x",
        "x___y",
        "host.:1/x",
        "host:99999/x",
        "host:/x",
        "[::g]/x",
        "[::1/x",
        "a.b/x?y",
        "x#y",
        "x\n",
        "a.b@c/x",
        "x@sha512:aa",
        &long,
        "x@sha256:ABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCD",
    ] {
        assert!(text.parse::<Reference>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_accepted_is_stable_and_safe(text in "[a-zA-Z0-9:/@._\\[\\]-]{0,60}") {
        if let Ok(r) = text.parse::<Reference>() {
            prop_assert_eq!(r.familiar().parse::<Reference>().unwrap(), r.clone());
            prop_assert!(!r.repository().split('/').any(|c| c.is_empty() || c.starts_with('.')));
            prop_assert!(!r.host().contains(['/', '@', '?', '#']));
        }
    }

    #[test]
    fn any_text(text in ".{0,80}") {
        let _ = text.parse::<Reference>();
    }
}
