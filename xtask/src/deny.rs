//! What dependencies may be: permissive licence, from crates.io, one version of the ones that carry types
//! across crates, nothing on the forbidden list. Reads `cargo metadata`; no tool to install.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;

/// Licences that ask for no more than attribution.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that must not come in, and why.
const FORBIDDEN: [(&str, &str); 2] = [
    ("openssl-sys", "links the host's OpenSSL"),
    ("libseccomp-sys", "links the host's libseccomp; filters are built by our own code"),
];

/// Crates that ours must not use themselves, and why. Others may: iced-x86 uses lazy_static, libcontainer nix, and they
/// cannot do without.
const NOT_OURS: [(&str, &str); 2] = [
    ("lazy_static", "the standard library has LazyLock"),
    ("nix", "rustix and libc already cover system calls"),
];

/// Crates of which one version only may be in the tree.
const SINGLE: [&str; 6] = ["clap", "libc", "rustix", "serde", "serde_json", "sha2"];

/// Crates whose licence is none of those and is taken all the same: name, what they state, and why.
const TAKEN: [(&str, Option<&str>, &str); 2] = [
    (
        "pathrs",
        Some("MPL-2.0 OR LGPL-3.0-or-later"),
        "libcontainer's; MPL asks for changes to its own files, we make none",
    ),
    ("rust-criu", None, "libcontainer's; its LICENSE file is MIT's, its manifest is silent"),
];

/// Versions that do not count for that, and why.
const BESIDE: [(&str, &str, &str); 1] =
    [("rustix", "0.38", "builds libcontainer's protocol of CRIU, and is in no program of ours")];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
}

/// Runs the check; the error lists everything that failed.
pub fn run() -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"])
        .output()
        .map_err(|e| format!("deny: cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("deny: cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("deny: cargo metadata: {e}"))?;
    let problems = problems(&metadata);
    if problems.is_empty() {
        println!("deny: {} packages, all as they should be", metadata.packages.len());
        return Ok(());
    }
    Err(problems.iter().map(|p| format!("deny: {p}")).collect::<Vec<_>>().join("\n"))
}

fn problems(metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        let Package { name, version, license, source, id, dependencies } = package;
        if metadata.workspace_members.contains(id) {
            let used = |n: &str| dependencies.iter().any(|d| d.name == n);
            for (n, why) in NOT_OURS.iter().filter(|(n, _)| used(n)) {
                problems.push(format!("{name}: must not use {n} ({why})"));
            }
            continue;
        }
        if !BESIDE.iter().any(|(n, v, _)| n == name && version.starts_with(v)) {
            versions.entry(name).or_default().push(version);
        }
        match license {
            Some(expression) if allowed(expression) => {}
            stated if TAKEN.iter().any(|(n, l, _)| n == name && *l == stated.as_deref()) => {}
            Some(expression) => {
                problems.push(format!("{name} {version}: licence {expression:?} is not allowed"))
            }
            None => problems.push(format!("{name} {version}: states no licence")),
        }
        // The registry in the lock file is crates.io even where a mirror serves it.
        if !source
            .as_deref()
            .is_some_and(|s| s.starts_with("registry+https://github.com/rust-lang/crates.io-index"))
        {
            problems.push(format!("{name} {version}: comes from {}", source.as_deref().unwrap_or("a path")));
        }
        if let Some((_, why)) = FORBIDDEN.iter().find(|(n, _)| n == name) {
            problems.push(format!("{name} {version}: forbidden ({why})"));
        }
    }
    for (name, versions) in versions {
        if versions.len() > 1 && SINGLE.contains(&name) {
            problems.push(format!("{name}: several versions ({})", versions.join(", ")));
        }
    }
    problems
}

/// Whether an SPDX expression can be satisfied with allowed licences. Parentheses, AND, OR, and the old `/`
/// for OR are understood; AND binds tighter.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&tokens, &mut at) == Some(true) && at == tokens.len()
}

/// Alternatives; `None` where the expression is malformed.
fn either(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let mut good = both(tokens, at)?;
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        good |= both(tokens, at)?;
    }
    Some(good)
}

fn both(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let mut good = single(tokens, at)?;
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        good &= single(tokens, at)?;
    }
    Some(good)
}

fn single(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let token = tokens.get(*at)?;
    *at += 1;
    if *token == "(" {
        let good = either(tokens, at)?;
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return closed.then_some(good);
    }
    if tokens.get(*at) == Some(&"WITH") {
        let exception = tokens.get(*at + 1)?;
        *at += 2;
        return Some(ALLOWED.contains(&format!("{token} WITH {exception}").as_str()));
    }
    Some(ALLOWED.contains(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT)",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "MIT OR",
        ] {
            assert!(!allowed(bad), "{bad}");
        }
    }

    #[test]
    fn problems_are_named() {
        let package = |name: &str, license: Option<&str>, source: Option<&str>| Package {
            id: name.into(),
            name: name.into(),
            version: "1.0.0".into(),
            license: license.map(Into::into),
            source: source.map(Into::into),
            dependencies: Vec::new(),
        };
        let index = Some("registry+https://github.com/rust-lang/crates.io-index");
        let mut ours = package("ours", None, None);
        ours.dependencies.push(Dependency { name: "lazy_static".into() });
        let metadata = Metadata {
            packages: vec![
                ours,
                package("lazy_static", Some("MIT"), index),
                package("good", Some("MIT"), index),
                package("gpl", Some("GPL-3.0"), index),
                package("git", Some("MIT"), Some("git+https://example.org/x")),
                package("openssl-sys", Some("MIT"), index),
                package("libc", Some("MIT"), index),
                package("libc", Some("MIT"), index),
            ],
            workspace_members: vec!["ours".into()],
        };
        let found = problems(&metadata);
        assert_eq!(found.len(), 5, "{found:?}");
    }
}
