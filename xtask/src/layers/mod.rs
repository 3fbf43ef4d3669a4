//! `xtask layers`: who uses whom in the workspace, held against the table of layers.txt.
//!
//! An *arrow* goes from the file that names something to the file that defines it; re-exports are followed. Code for
//! tests does not count. A *circle* is a set of files each of which reaches each other one by arrows.

mod arrows;
mod circle;
mod resolve;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrows::Arrows;
use table::Table;
use tree::Workspace;

/// What was counted in one crate.
struct Count<'a> {
    krate: &'a str,
    files: usize,
    inner: usize,
    against: Vec<String>,
    circle: Vec<String>,
    /// Each file of the circle with those of it that it uses.
    inside: Vec<String>,
    /// Files that stand side by side in its fullest folder.
    folder: usize,
}

/// Prints arrows against the table, the largest circle and the fullest folder by crate. With `list` it names them all.
///
/// # Errors
/// The table or a source cannot be read, or a count is above its limit in the table.
pub fn run(list: bool) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let text =
        std::fs::read_to_string(root.join("xtask/layers.txt")).map_err(|e| format!("layers.txt: {e}"))?;
    let table = Table::parse(&text)?;
    let workspace = Workspace::read(root)?;
    let (report, faults) = check(&workspace, &table, list)?;
    print!("{report}");
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Prints the largest circle of the crate in folder `dir`: its files, each with those of the circle that it uses.
///
/// # Errors
/// There is no such crate, or a source cannot be read.
pub fn show_circle(dir: &str) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    print!("{}", circle_of(&Workspace::read(root)?, dir)?);
    Ok(())
}

fn circle_of(workspace: &Workspace, dir: &str) -> Result<String, String> {
    let found = workspace.crates.iter().position(|krate| krate.dir == dir);
    let krate = found.ok_or_else(|| format!("no crate stands in {dir}"))?;
    let files = &workspace.crates[krate].files;
    let arrows = &Arrows::draw(workspace).files[krate];
    let circle = circle::largest(files.len(), arrows);
    let mut report = String::new();
    for from in &circle {
        let inner = circle.iter().filter(|to| arrows.contains(&(*from, **to)));
        let used: Vec<&str> = inner.map(|to| files[*to].as_str()).collect();
        report += &format!("{} → {}\n", files[*from], used.join(" "));
    }
    Ok(report)
}

/// The report, and what is above its limit.
fn check(workspace: &Workspace, table: &Table, list: bool) -> Result<(String, Vec<String>), String> {
    let arrows = Arrows::draw(workspace);
    let mut report = String::new();
    let mut faults = Vec::new();
    let between = table.between_crates(workspace, &arrows.crates)?;
    report +=
        &format!("{} arrows between crates, {} against the table\n", arrows.crates.len(), between.len());
    if list {
        between.iter().for_each(|line| report += &format!("    {line}\n"));
    }
    if between.len() > table.limit("workspace").arrows {
        faults.push(format!("arrows between crates against the table:\n    {}", between.join("\n    ")));
    }
    report += "crate                files  arrows  against  circle  folder\n";
    for krate in 0..workspace.crates.len() {
        let count = count(workspace, table, &arrows.files[krate], krate)?;
        report += &format!(
            "{:20} {:5} {:7} {:8} {:7} {:7}\n",
            count.krate,
            count.files,
            count.inner,
            count.against.len(),
            count.circle.len(),
            count.folder
        );
        if list {
            count.against.iter().for_each(|line| report += &format!("    {line}\n"));
            count.inside.iter().for_each(|line| report += &format!("    circle: {line}\n"));
        }
        faults.extend(above(table, &count));
    }
    Ok((report, faults))
}

fn count<'a>(
    workspace: &'a Workspace,
    table: &Table,
    arrows: &BTreeSet<(usize, usize)>,
    krate: usize,
) -> Result<Count<'a>, String> {
    let files = &workspace.crates[krate].files;
    let circle = circle::largest(files.len(), arrows);
    let inside = circle.iter().map(|&file| {
        let used = circle.iter().filter(|&&other| arrows.contains(&(file, other)));
        let used: Vec<_> = used.map(|&other| files[other].as_str()).collect();
        format!("{} -> {}", files[file], used.join(" "))
    });
    Ok(Count {
        krate: &workspace.crates[krate].dir,
        files: files.len(),
        inner: arrows.len(),
        against: table.inside_crate(&workspace.crates[krate], arrows)?,
        inside: inside.collect(),
        circle: circle.iter().map(|&file| files[file].clone()).collect(),
        folder: fullest(files),
    })
}

/// How many of these files stand side by side in the folder that has most.
fn fullest(files: &[String]) -> usize {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        *folders.entry(file.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
    }
    folders.into_values().max().unwrap_or(0)
}

fn above(table: &Table, count: &Count<'_>) -> Vec<String> {
    let limit = table.limit(count.krate);
    let mut faults = Vec::new();
    let counts = [
        ("arrows against the table", count.against.len(), limit.arrows),
        ("files in a circle", count.circle.len(), limit.circle),
        ("files side by side", count.folder, limit.folder),
    ];
    for (what, have, allowed) in counts {
        if have > allowed {
            let krate = count.krate;
            faults.push(format!(
                "{krate}: {have} {what}, allowed are {allowed} (`xtask layers --arrows` and `--circle {krate}` name them)"
            ));
        }
    }
    faults
}
