use proptest::prelude::*;

use super::*;

fn descriptor(extra: &str) -> String {
    format!(r#"{{"mediaType":"{OCI_LAYER}+gzip","digest":"sha256:{}","size":5{extra}}}"#, "0".repeat(64))
}

fn manifest(layers: &str) -> String {
    format!(r#"{{"schemaVersion":2,"config":{},"layers":[{layers}]}}"#, descriptor(""))
}

#[test]
fn kinds() {
    let good = manifest(&descriptor(""));
    assert!(matches!(Document::parse(good.as_bytes(), "x"), Ok(Document::Image(m)) if m.layers.len() == 1));
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, descriptor(""));
    assert!(matches!(Document::parse(index.as_bytes(), "x"), Ok(Document::Index(m)) if m.len() == 1));
}

#[test]
fn refused() {
    let both = format!(r#"{{"schemaVersion":2,"config":{0},"layers":[],"manifests":[{0}]}}"#, descriptor(""));
    let typed = manifest("")
        .replace(r#""schemaVersion":2"#, &format!(r#""schemaVersion":2,"mediaType":"{OCI_INDEX}""#));
    let many = manifest(&vec![descriptor(""); 513].join(","));
    let negative = manifest(&descriptor("").replace("\"size\":5", "\"size\":-5"));
    let huge = manifest(&descriptor("").replace("\"size\":5", "\"size\":99999999999999999999"));
    let escape = manifest(&descriptor("").replace("sha256:0", "sha256:../../0"));
    let sha512 = manifest(&descriptor("").replace("sha256:", "sha512:"));
    let foreign =
        manifest(&descriptor("").replace(OCI_LAYER, "application/vnd.docker.image.rootfs.foreign.diff.tar"));
    let other = manifest(&descriptor("").replace(OCI_LAYER, "text/html"));
    let long = format!("{}{}", " ".repeat(5 << 20), manifest(""));
    let deep = "[".repeat(100_000);
    for bad in [
        "",
        "{}",
        "null",
        "[]",
        r#"{"schemaVersion":1,"fsLayers":[]}"#,
        r#"{"schemaVersion":2}"#,
        &both,
        &typed,
        &many,
        &negative,
        &huge,
        &escape,
        &sha512,
        &foreign,
        &other,
        &long,
        &deep,
    ] {
        assert!(Document::parse(bad.as_bytes(), "x").is_err(), "{}", &bad[..bad.len().min(200)]);
    }
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
        "0".repeat(64)
    );
    assert!(Config::parse(config.as_bytes(), 1, "x").is_ok());
    assert!(Config::parse(config.as_bytes(), 2, "x").is_err());
    assert!(Config::parse(b"{}", 0, "x").is_err());
}

#[test]
fn platforms() {
    let entry = |os: &str, architecture: &str, variant: &str| {
        let platform =
            format!(r#","platform":{{"os":"{os}","architecture":"{architecture}","variant":"{variant}"}}"#);
        serde_json::from_str::<Descriptor>(&descriptor(&platform)).unwrap()
    };
    let index = [
        entry("unknown", "unknown", ""),
        entry("linux", "arm64", "v8"),
        entry("linux", "arm", "v7"),
        entry("linux", "amd64", ""),
    ];
    let pick = |text: &str| {
        let chosen = text.parse::<Platform>().unwrap().choose(&index, "x").ok()?;
        index.iter().position(|d| std::ptr::eq(d, chosen))
    };
    assert_eq!(pick("linux/amd64"), Some(3));
    assert_eq!(pick("amd64"), Some(3));
    assert_eq!(pick("linux/x86_64"), Some(3));
    assert_eq!(pick("linux/arm64"), Some(1));
    assert_eq!(pick("linux/arm/v7"), Some(2));
    assert_eq!(pick("linux/arm/v6"), None);
    assert_eq!(pick("windows/amd64"), None);
    assert!(
        "a/b/c/d".parse::<Platform>().is_err()
            && "".parse::<Platform>().is_err()
            && "a b".parse::<Platform>().is_err()
    );
}

proptest! {
    /// Damage anywhere in a manifest gives an error or a checked manifest, never a panic.
    #[test]
    fn damaged_manifests(at in 0usize..400, byte in any::<u8>(), cut in 0usize..500) {
        let mut bytes = manifest(&descriptor("")).into_bytes();
        let n = bytes.len();
        bytes[at % n] = byte;
        bytes.truncate(cut.max(1));
        if let Ok(Document::Image(m)) = Document::parse(&bytes, "x") {
            prop_assert!(m.blobs().all(|b| b.digest.hex().len() == 64));
        }
        let _ = Config::parse(&bytes, 1, "x");
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Document::parse(&bytes, "x");
        let _ = Config::parse(&bytes, 1, "x");
    }
}
