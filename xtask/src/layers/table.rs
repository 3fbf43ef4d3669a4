//! The table of allowed arrows. Each line is one of:
//!
//! - `crates NAME = FOLDERS : NAMES`: crates of these folders may use one another and those of the named lines.
//! - `order CRATE = LAYER < LAYER …`: layers inside a crate; a file may use its own layer and lower ones.
//! - `layer LAYER = MODULES`: which modules a layer of the last order consists of; the longest match counts.
//! - `limit CRATE|workspace|* arrows N circle M folder K`: how many arrows may go against the table, how large a circle may
//!   be, how many files may stand side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Crate, Workspace};

/// A line `crates`.
struct Group {
    name: String,
    folders: Vec<String>,
    below: Vec<String>,
}

/// A line `order` with its lines `layer`.
struct Order {
    krate: String,
    layers: Vec<String>,
    /// From a module's path, as `fs/io`, to the place of its layer.
    modules: BTreeMap<String, usize>,
}

/// A line `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    pub arrows: usize,
    pub circle: usize,
    pub folder: usize,
}

/// The table.
#[derive(Default)]
pub struct Table {
    groups: Vec<Group>,
    orders: Vec<Order>,
    limits: BTreeMap<String, Limit>,
}

impl Table {
    /// Reads its text.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut table = Table::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            table.line(line).ok_or_else(|| format!("layers.txt: not understood: {line}"))?;
        }
        Ok(table)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        if kind == "limit" {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [name, "arrows", arrows, "circle", circle, "folder", folder] = words[..] else {
                return None;
            };
            let number = |word: &str| word.parse().ok();
            let limit = Limit { arrows: number(arrows)?, circle: number(circle)?, folder: number(folder)? };
            self.limits.insert(name.into(), limit);
            return Some(());
        }
        let (name, rest) = rest.split_once('=')?;
        let name = name.trim().to_string();
        match kind {
            "crates" => {
                let (folders, below) = rest.split_once(':')?;
                self.groups.push(Group { name, folders: words(folders), below: words(below) });
            }
            "order" => {
                let layers = rest.split('<').map(|layer| layer.trim().into()).collect();
                self.orders.push(Order { krate: name, layers, modules: BTreeMap::new() });
            }
            "layer" => {
                let order = self.orders.last_mut()?;
                let layer = order.layers.iter().position(|layer| *layer == name)?;
                order.modules.extend(words(rest).into_iter().map(|module| (module, layer)));
            }
            _ => return None,
        }
        Some(())
    }

    /// The limit of a crate, or that of `*`; nothing is allowed where neither stands.
    pub fn limit(&self, krate: &str) -> Limit {
        let limit = self.limits.get(krate).or_else(|| self.limits.get("*"));
        limit.copied().unwrap_or(Limit { arrows: 0, circle: 0, folder: 0 })
    }

    /// Arrows between crates that no line allows.
    pub fn between_crates(
        &self,
        workspace: &Workspace,
        arrows: &BTreeSet<(usize, usize)>,
    ) -> Result<Vec<String>, String> {
        let groups: Vec<&Group> =
            workspace.crates.iter().map(|krate| self.group(&krate.dir)).collect::<Result<_, _>>()?;
        let allowed = |from: &Group, to: &Group| from.name == to.name || from.below.contains(&to.name);
        let against = arrows.iter().filter(|&&(from, to)| !allowed(groups[from], groups[to]));
        Ok(against
            .map(|&(from, to)| format!("{} → {}", workspace.crates[from].dir, workspace.crates[to].dir))
            .collect())
    }

    fn group(&self, dir: &str) -> Result<&Group, String> {
        let holds = |folder: &String| match folder.strip_suffix("/*") {
            Some(parent) => dir.rsplit_once('/').is_some_and(|(own, _)| own == parent),
            None => folder == dir,
        };
        let named = |group: &&Group| group.folders.iter().any(|folder| folder == dir);
        let found = self.groups.iter().find(named);
        found
            .or_else(|| self.groups.iter().find(|group| group.folders.iter().any(holds)))
            .ok_or_else(|| format!("layers.txt: no line `crates` holds {dir}"))
    }

    /// Arrows inside a crate from a layer to a higher one.
    pub fn inside_crate(
        &self,
        krate: &Crate,
        arrows: &BTreeSet<(usize, usize)>,
    ) -> Result<Vec<String>, String> {
        let Some(order) = self.orders.iter().find(|order| order.krate == krate.dir) else {
            return Ok(Vec::new());
        };
        let layers: Vec<usize> =
            krate.files.iter().map(|file| order.layer(file)).collect::<Result<_, _>>()?;
        let against = arrows.iter().filter(|&&(from, to)| layers[from] < layers[to]);
        let named = |file: usize| format!("{} ({})", krate.files[file], order.layers[layers[file]]);
        Ok(against.map(|&(from, to)| format!("{} → {}", named(from), named(to))).collect())
    }
}

impl Order {
    /// The layer of a file. The crate's root only declares, and is the highest.
    fn layer(&self, file: &str) -> Result<usize, String> {
        let mut module = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs")).unwrap_or(file);
        if module == "lib" || module == "main" {
            return Ok(self.layers.len() - 1);
        }
        loop {
            if let Some(&layer) = self.modules.get(module) {
                return Ok(layer);
            }
            let parent = module
                .rsplit_once('/')
                .ok_or_else(|| format!("layers.txt: no line `layer` of {} holds {file}", self.krate))?;
            module = parent.0;
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}
