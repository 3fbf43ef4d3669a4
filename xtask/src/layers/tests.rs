//! Small workspaces and what is drawn of them.

use std::path::PathBuf;

use super::arrows::Arrows;
use super::circle;
use super::source::Source;
use super::table::{Limit, Table};
use super::tree::Workspace;

/// A workspace in a temporary folder.
struct Fixture(PathBuf);

impl Fixture {
    /// Writes packages `low` and `high` with these files.
    fn new(name: &str, files: &[(&str, &str)]) -> Fixture {
        let root = std::env::temp_dir().join(format!("layers-{}-{name}", std::process::id()));
        let fixture = Fixture(root);
        fixture.write("Cargo.toml", "[workspace]\nmembers = [\"a/low\", \"b/high\"]\n");
        for dir in ["a/low", "b/high"] {
            let name = dir.split('/').next_back().unwrap();
            fixture.write(&format!("{dir}/Cargo.toml"), &format!("[package]\nname = \"the-{name}\"\n"));
            fixture.write(&format!("{dir}/src/lib.rs"), "");
        }
        files.iter().for_each(|(path, text)| fixture.write(path, text));
        fixture
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self) -> Workspace {
        Workspace::read(&self.0).unwrap()
    }

    /// Arrows of `low`, as `from → to`.
    fn arrows(&self) -> Vec<String> {
        let workspace = self.read();
        let files = &workspace.crates[0].files;
        let arrows = Arrows::draw(&workspace);
        arrows.files[0].iter().map(|&(from, to)| format!("{} → {}", files[from], files[to])).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn imports_and_inline_paths_lead_to_the_defining_file_through_re_exports() {
    let fixture = Fixture::new(
        "reexports",
        &[
            ("a/low/src/lib.rs", "pub mod door; mod user; mod inline;"),
            ("a/low/src/door/mod.rs", "mod inner; pub use inner::{Thing as Known, other};"),
            ("a/low/src/door/inner.rs", "pub struct Thing; pub fn other() {}"),
            ("a/low/src/user.rs", "use crate::door::Known;"),
            ("a/low/src/inline.rs", "fn f() { log!(\"{}\", super::door::other()); }"),
        ],
    );
    assert_eq!(fixture.arrows(), ["user.rs → door/inner.rs", "inline.rs → door/inner.rs"]);
}

#[test]
fn a_module_imported_for_its_names_counts_by_what_is_used_of_it() {
    let fixture = Fixture::new(
        "modules",
        &[
            ("a/low/src/lib.rs", "mod a; mod b; mod c;"),
            ("a/low/src/a.rs", "use crate::b; fn f() { b::g(); }"),
            ("a/low/src/b.rs", "pub use crate::c::g;"),
            ("a/low/src/c.rs", "pub fn g() {}"),
        ],
    );
    assert_eq!(fixture.arrows(), ["a.rs → c.rs"]);
}

#[test]
fn a_re_export_counts_where_its_name_is_used_beside_it() {
    let files = [
        ("a/low/src/lib.rs", "mod a; mod b;"),
        ("a/low/src/a.rs", "pub use crate::b::B; fn f(_: &B) {}"),
        ("a/low/src/b.rs", "pub struct B;"),
    ];
    assert_eq!(Fixture::new("door", &files).arrows(), ["a.rs → b.rs"]);
}

#[test]
fn tests_do_not_count() {
    let fixture = Fixture::new(
        "tests",
        &[
            ("a/low/src/lib.rs", "mod a; mod b;"),
            (
                "a/low/src/a.rs",
                "#[cfg(test)] mod tests; #[cfg(test)] use crate::b::{g}; #[cfg(test)] mod t { use crate::b::g; }
                 #[cfg(not(test))] use crate::b::h; pub fn f() { h() }",
            ),
            ("a/low/src/a/tests.rs", "use crate::b::g;"),
            ("a/low/src/b.rs", "#[test] fn t() { crate::a::f() } pub fn g() {} pub fn h() {}"),
        ],
    );
    assert_eq!(fixture.arrows(), ["a.rs → b.rs"]);
    assert_eq!(fixture.read().crates[0].files, ["lib.rs", "a.rs", "b.rs"]);
}

#[test]
fn words_of_texts_comments_methods_and_locals_are_no_paths() {
    let source = Source::read(
        "fn f<'a>(x: &'a T) { /* crate::a */ x.door().b; let s = \"crate::c::d\"; X::<u8>::new(); }",
    );
    let paths = source.unwrap().paths;
    assert!(paths.iter().all(|path| path.len() == 1), "{paths:?}");
    assert!(!paths.iter().any(|path| ["door", "b", "a", "new"].contains(&path[0].as_str())), "{paths:?}");
}

#[test]
fn what_stands_behind_a_static_lifetime_is_no_item() {
    let source = Source::read("fn f() -> &'static Thing { loop {} } static S: &'static Other = &O;").unwrap();
    assert_eq!(source.items.iter().map(String::as_str).collect::<Vec<_>>(), ["S", "f"]);
}

#[test]
fn arrows_between_crates_are_held_against_the_groups() {
    let fixture = Fixture::new("crates", &[("a/low/src/lib.rs", "use the_high::X;")]);
    let workspace = fixture.read();
    let arrows = Arrows::draw(&workspace).crates;
    let table =
        |low: &str| Table::parse(&format!("crates low = a/* : {low}\ncrates high = b/high :")).unwrap();
    assert_eq!(table("").between_crates(&workspace, &arrows).unwrap(), ["a/low → b/high"]);
    assert!(table("high").between_crates(&workspace, &arrows).unwrap().is_empty());
    let missing = Table::parse("crates low = a/* :").unwrap();
    assert!(missing.between_crates(&workspace, &arrows).unwrap_err().contains("b/high"));
}

#[test]
fn a_lower_layer_may_not_use_a_higher_one_and_the_longest_match_names_the_layer() {
    let fixture = Fixture::new(
        "layers",
        &[
            ("a/low/src/lib.rs", "mod core; mod fs;"),
            ("a/low/src/core.rs", "use crate::fs::F; use crate::fs::io::I;"),
            ("a/low/src/fs/mod.rs", "pub mod io; pub struct F; use crate::core::C;"),
            ("a/low/src/fs/io.rs", "pub struct I;"),
        ],
    );
    let workspace = fixture.read();
    let arrows = Arrows::draw(&workspace);
    let table = |layers: &str| Table::parse(&format!("order a/low = base < files\n{layers}")).unwrap();
    let whole = table("layer base = core fs/io\nlayer files = fs");
    let against = whole.inside_crate(&workspace.crates[0], &arrows.files[0]).unwrap();
    assert_eq!(against, ["core.rs (base) → fs/mod.rs (files)"]);
    let missing = table("layer base = core").inside_crate(&workspace.crates[0], &arrows.files[0]);
    assert!(missing.unwrap_err().contains("fs/mod.rs"));
}

#[test]
fn a_count_above_its_limit_is_a_fault_and_one_at_its_limit_is_none() {
    let fixture = Fixture::new(
        "limits",
        &[
            ("a/low/src/lib.rs", "mod a; mod b;"),
            ("a/low/src/a.rs", "use crate::b::B; pub struct A;"),
            ("a/low/src/b.rs", "use crate::a::A; pub struct B;"),
        ],
    );
    let faults = |limits: &str| {
        let lines = "crates all = a/* b/* :\norder a/low = one < two\nlayer one = a\nlayer two = b\n";
        let table = Table::parse(&format!("{lines}{limits}")).unwrap();
        super::check(&fixture.read(), &table, true).unwrap().1
    };
    let others = "limit * arrows 0 circle 0 folder 1";
    assert!(faults(&format!("limit a/low arrows 1 circle 2 folder 3\n{others}")).is_empty());
    assert_eq!(faults("limit * arrows 0 circle 1 folder 2").len(), 3);
}

#[test]
fn the_largest_circle_is_found() {
    let arrows = [(0, 1), (1, 0), (2, 3), (3, 4), (4, 2), (1, 2), (5, 0)].into_iter().collect();
    assert_eq!(circle::largest(6, &arrows), [2, 3, 4]);
    assert!(circle::largest(3, &[(0, 1), (1, 2)].into_iter().collect()).is_empty());
}

#[test]
fn a_circle_is_shown_with_who_uses_whom_in_it() {
    let fixture = Fixture::new(
        "circle",
        &[
            ("a/low/src/lib.rs", "mod a; mod b; mod c;"),
            ("a/low/src/a.rs", "use crate::b::B; use crate::c::C; pub struct A;"),
            ("a/low/src/b.rs", "use crate::a::A; pub struct B;"),
            ("a/low/src/c.rs", "pub struct C;"),
        ],
    );
    let shown = super::circle_of(&fixture.read(), "a/low").unwrap();
    assert_eq!(shown, "a.rs → b.rs\nb.rs → a.rs\n");
}

#[test]
fn the_table_of_this_repository_is_short_and_allows_nothing_between_crates() {
    let text = include_str!("../../layers.txt");
    assert!(text.lines().count() <= 40);
    assert_eq!(Table::parse(text).unwrap().limit("workspace"), Limit { arrows: 0, circle: 0, folder: 0 });
}
