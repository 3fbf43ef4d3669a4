//! The arrows of the workspace.

use std::collections::BTreeSet;

use super::resolve::Target;
use super::tree::Workspace;

/// Who uses whom.
pub struct Arrows {
    /// By crate: from file to file, as places in [`super::tree::Crate::files`].
    pub files: Vec<BTreeSet<(usize, usize)>>,
    /// From crate to crate.
    pub crates: BTreeSet<(usize, usize)>,
}

impl Arrows {
    /// Draws them all.
    ///
    /// A private import counts as use. A public one is a door to others, and counts only where its name stands in the
    /// same file once more.
    pub fn draw(workspace: &Workspace) -> Arrows {
        let files = vec![BTreeSet::new(); workspace.crates.len()];
        let mut arrows = Arrows { files, crates: BTreeSet::new() };
        for (id, module) in workspace.modules.iter().enumerate() {
            for import in module.imports.iter() {
                let glob = import.name.is_none();
                arrows.add(workspace, id, &import.path, glob && !import.public, import.public);
            }
            for path in &module.paths {
                let door = |name| module.imports.iter().any(|i| i.public && i.name.as_ref() == Some(name));
                if path.len() > 1 || door(&path[0]) {
                    arrows.add(workspace, id, path, false, false);
                }
            }
        }
        arrows
    }

    /// Adds what `path` in module `id` leads to. A module by itself counts where all its names are imported.
    fn add(&mut self, workspace: &Workspace, id: usize, path: &[String], whole: bool, door: bool) {
        let from = &workspace.modules[id];
        let file = match workspace.resolve(id, path) {
            Some(Target::Crate(krate)) => {
                self.crates.insert((from.krate, krate));
                return;
            }
            Some(Target::File(file)) => file,
            Some(Target::Module(module)) if whole => workspace.modules[module].file,
            _ => return,
        };
        if !door && file != from.file {
            self.files[from.krate].insert((from.file, file));
        }
    }
}
