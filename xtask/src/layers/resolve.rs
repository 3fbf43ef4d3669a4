//! From a path in a module to the file that defines what it names.

use super::tree::Workspace;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// A module itself.
    Module(usize),
    /// Something that a file of the same crate defines.
    File(usize),
    /// Another crate of the workspace.
    Crate(usize),
    /// Something outside of the workspace.
    Outside,
}

/// Re-exports of re-exports; more are a circle.
const DEPTH: usize = 16;

impl Workspace {
    /// Follows `path` from module `from`; `None` where it leaves the workspace or names something local.
    pub fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, DEPTH)
    }

    fn follow(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(self.modules[from].root),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.lookup(from, name, depth).or_else(|| self.by_name(from, name))?,
        };
        for name in rest {
            let Target::Module(module) = target else { break };
            if name == "super" {
                target = Target::Module(self.modules[module].parent?);
                continue;
            }
            let found = self.lookup(module, name, depth);
            target = found.unwrap_or(Target::File(self.modules[module].file));
        }
        Some(target)
    }

    fn by_name(&self, from: usize, name: &str) -> Option<Target> {
        let krate = self.crates.iter().position(|krate| krate.name == name)?;
        let own = krate == self.modules[from].krate;
        Some(if own { Target::Module(self.crates[krate].root) } else { Target::Crate(krate) })
    }

    /// What `name` is in a module.
    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let here = &self.modules[module];
        if let Some(&child) = here.children.get(name) {
            return Some(Target::Module(child));
        }
        if let Some(&file) = here.items.get(name) {
            return Some(Target::File(file));
        }
        if let Some(import) = here.imports.iter().find(|import| import.name.as_deref() == Some(name)) {
            if import.path.len() == 1 && import.path[0] == name {
                return self.by_name(module, name).or(Some(Target::Outside));
            }
            return self.follow(module, &import.path, depth).or(Some(Target::Outside));
        }
        let globs = here.imports.iter().filter(|import| import.name.is_none());
        globs.into_iter().find_map(|glob| match self.follow(module, &glob.path, depth)? {
            Target::Module(other) if other != module => self.lookup(other, name, depth),
            _ => None,
        })
    }
}
