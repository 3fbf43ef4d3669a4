//! `doppel image` as a user sees it: output, JSON, exit codes and messages.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn doppel(store: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_doppel"))
        .args(args)
        .env("DOPPEL_STORE", store)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn life_of_an_image() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let root = temp.path().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();

    let empty = doppel(&store, &["image", "ls"]);
    assert_eq!((empty.code, empty.err.as_str()), (Some(0), ""));
    assert!(empty.out.starts_with("NAME") && empty.out.lines().count() == 1, "{}", empty.out);
    assert_eq!(doppel(&store, &["image", "ls", "--json"]).out, "");

    let made = doppel(&store, &["image", "import", root.to_str().unwrap(), "mine"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(made.out.starts_with("mine: ") && made.out.contains("3 files, sha256:"), "{}", made.out);

    // One image: one line.
    let list: serde_json::Value =
        serde_json::from_str(&doppel(&store, &["image", "ls", "--json"]).out).unwrap();
    assert_eq!(list["name"], "mine");
    assert_eq!(list["source"]["kind"], "directory");
    let shown = doppel(&store, &["image", "inspect", "--json", "mine"]).out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["verified"]["counts"]["files"], 1);
    assert_eq!(shown["digest"], list["digest"]);
    assert!(doppel(&store, &["image", "inspect", "mine"]).out.contains("every inode"));

    let image = shown["path"].as_str().unwrap();
    let mut bytes = fs::read(image).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(image).unwrap();
    fs::write(image, bytes).unwrap();
    let damaged = doppel(&store, &["image", "inspect", "mine"]);
    assert_eq!(damaged.code, Some(125));
    assert!(damaged.err.contains("is damaged") && damaged.err.contains("import it again"), "{}", damaged.err);

    assert_eq!(doppel(&store, &["image", "rm", "mine"]).code, Some(0));
    assert!(!Path::new(image).exists());
}

#[test]
fn mistakes_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let text = temp.path().join("text");
    fs::write(&text, "this is no archive\n".repeat(100)).unwrap();
    let text = text.to_str().unwrap();
    for (args, says) in [
        (&["image", "rm", "none"][..], "no image named \"none\""),
        (&["image", "inspect", "none"], "no image named \"none\""),
        (&["image", "import", "/no/such/file", "x"], "/no/such/file"),
        (&["image", "import", text, "x"], "not a tar archive"),
        (&["image", "import", "/etc", "../x"], "bad image name"),
        (&["image", "build", "x", "no;package"], "not the name of a Debian package"),
        (&["image", "import", "-", "x"], "not a tar archive"),
        (&["image"], "Usage"),
        (&["image", "fly"], "unrecognized subcommand"),
    ] {
        let ran = doppel(&store, args);
        assert_eq!(ran.code, Some(125), "{args:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "");
    }
}
