use super::*;
use crate::Data;

/// Entries: `name/` a directory, `name=text` a file, `name>target` a symbolic link, `name~target` a hard link.
fn apply(tree: &mut Tree, entries: &[&str]) -> Result<()> {
    let mut layer = Layer::new(tree);
    for entry in entries {
        let meta = || Meta { mode: 0o755, ..Meta::default() };
        if let Some((name, text)) = entry.split_once('=') {
            layer.put(name.as_bytes(), meta(), Content::File(Data::Bytes(text.into())))?;
        } else if let Some((name, target)) = entry.split_once('>') {
            layer.put(name.as_bytes(), meta(), Content::Symlink(target.into()))?;
        } else if let Some((name, target)) = entry.split_once('~') {
            layer.link(name.as_bytes(), target.as_bytes())?;
        } else {
            layer.put(entry.as_bytes(), meta(), Content::dir())?;
        }
    }
    Ok(())
}

/// All paths, in order.
fn list(tree: &Tree) -> String {
    let mut lines = Vec::new();
    let mut todo = vec![(0, String::new())];
    while let Some((node, path)) = todo.pop() {
        match &tree.nodes[node].content {
            Content::Dir(children) => {
                if children.is_empty() {
                    lines.push(format!("{path}/"));
                }
                for (name, child) in children {
                    todo.push((*child, format!("{path}/{}", String::from_utf8_lossy(name))));
                }
            }
            Content::File(Data::Bytes(b)) => lines.push(format!("{path}={}", String::from_utf8_lossy(b))),
            Content::Symlink(t) => lines.push(format!("{path}>{}", String::from_utf8_lossy(t))),
            other => lines.push(format!("{path} {other:?}")),
        }
    }
    lines.sort();
    lines.join(" ")
}

fn layers(layers: &[&[&str]]) -> String {
    let mut tree = Tree::new(Limits::default());
    for layer in layers {
        apply(&mut tree, layer).unwrap();
    }
    list(&tree)
}

const BASE: &[&str] = &["a/", "a/x=1", "a/y=2", "a/d/", "a/d/z=3", "b=4"];

#[test]
fn later_layers_replace() {
    assert_eq!(layers(&[BASE, &["b=5", "a/", "a/x=6"]]), "/a/d/z=3 /a/x=6 /a/y=2 /b=5");
    assert_eq!(layers(&[BASE, &["a=7"]]), "/a=7 /b=4", "a file replaces a directory of a lower layer");
    assert_eq!(layers(&[BASE, &["b/", "b/c=8"]]), "/a/d/z=3 /a/x=1 /a/y=2 /b/c=8");
    assert_eq!(layers(&[BASE, &[]]), layers(&[BASE]));
}

#[test]
fn whiteouts() {
    assert_eq!(layers(&[BASE, &["a/.wh.x=", ".wh.b="]]), "/a/d/z=3 /a/y=2");
    assert_eq!(layers(&[BASE, &["a/.wh.d="]]), "/a/x=1 /a/y=2 /b=4");
    assert_eq!(layers(&[BASE, &["a/.wh.no=", "no/.wh.no=", "b/.wh.x="]]), layers(&[BASE]), "nothing to hide");
    let opaque = "/a/new=9 /b=4";
    assert_eq!(layers(&[BASE, &["a/", "a/.wh..wh..opq=", "a/new=9"]]), opaque);
    assert_eq!(layers(&[BASE, &["a/", "a/new=9", "a/.wh..wh..opq="]]), opaque, "in any order");
    // What the layer brings into a hidden directory stays, what was there goes.
    assert_eq!(layers(&[BASE, &["a/d/n=9", "a/.wh..wh..opq="]]), "/a/d/n=9 /b=4");
    assert_eq!(layers(&[BASE, &["a/d/n=9", ".wh.a="]]), "/a/d/n=9 /b=4");
    assert_eq!(layers(&[BASE, &[".wh.a=", "a/d/n=9"]]), "/a/d/n=9 /b=4");
    assert_eq!(layers(&[BASE, &[".wh..wh.plnk/", ".wh..wh.plnk/1.2=x", ".wh..wh.aufs="]]), layers(&[BASE]));
    for bad in [".wh.=", ".wh..=", ".wh...=", ".wh.x/y=1", "b~.wh.b", ".wh.q~b"] {
        let mut tree = Tree::new(Limits::default());
        apply(&mut tree, BASE).unwrap();
        assert!(apply(&mut tree, &[bad]).is_err(), "{bad}");
    }
}

#[test]
fn hard_links_reach_lower_layers() {
    let mut tree = Tree::new(Limits::default());
    apply(&mut tree, BASE).unwrap();
    apply(&mut tree, &["c~a/x", "a/.wh.x="]).unwrap();
    assert_eq!(list(&tree), "/a/d/z=3 /a/y=2 /b=4 /c=1");
    for bad in ["q~nothing", "q~a", "q~../b", "q~/b", "../q~b", "a/d/../q~b"] {
        assert!(apply(&mut tree, &[bad]).is_err(), "{bad}");
    }
}

#[test]
fn links_of_lower_layers_lead_inside() {
    let base: &[&str] =
        &["usr/lib/", "lib>usr/lib", "abs>/usr", "up>usr/../usr/lib", "out>../../x", "loop>loop"];
    let with = |entry: &[&str]| {
        let mut tree = Tree::new(Limits::default());
        apply(&mut tree, base).unwrap();
        apply(&mut tree, entry).map(|()| list(&tree))
    };
    for entry in ["lib/f=1", "abs/lib/f=1", "up/f=1"] {
        assert!(with(&[entry]).unwrap().contains("/usr/lib/f=1"), "{entry}");
    }
    assert!(with(&["lib/", "lib/f=1"]).unwrap().contains("/lib/f=1"), "a directory replaces a link");
    assert!(with(&["usr/lib/g=1", "h~lib/g"]).unwrap().contains("/h=1"));
    for bad in [&["out/f=1"][..], &["loop/f=1"], &["new>usr", "new/f=1"], &["usr/f=1", "usr/f/g=1"]] {
        assert!(with(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn hostile_names() {
    let long = "x".repeat(256) + "=1";
    let deep = "d/".repeat(2100) + "x=1";
    for bad in ["/etc/passwd=1", "../x=1", "a/../../x=1", "a/..", &long, &deep] {
        let mut tree = Tree::new(Limits::default());
        assert!(apply(&mut tree, &[bad]).is_err(), "{bad}");
    }
    let mut tree = Tree::new(Limits::default());
    assert!(apply(&mut tree, &["a/", "a/b=1", "a=2"]).is_err(), "over a full directory of its own");
    // A link makes a path as long as one likes: 300 names more at every turn.
    let (mut tree, mut link) = (Tree::new(Limits::default()), String::from("l0>."));
    let mut failed = false;
    for i in 0..12 {
        let deeper = format!("l{i}/{}", "d/".repeat(300));
        failed |= apply(&mut tree, &[&link]).and_then(|()| apply(&mut tree, &[&deeper])).is_err();
        link = format!("l{}>{}", i + 1, deeper.trim_end_matches('/'));
    }
    assert!(failed);
}
