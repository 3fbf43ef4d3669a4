//! The crates of the workspace and the trees of their modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::source::{Import, Source};

/// All crates, in the order of their folders.
pub struct Workspace {
    pub crates: Vec<Crate>,
    pub modules: Vec<Module>,
}

/// One package.
pub struct Crate {
    /// Its folder, as `host/domain`.
    pub dir: String,
    /// The name by which others import it, as `doppel_domain`.
    pub name: String,
    /// Its files below `src`, tests left out.
    pub files: Vec<String>,
    /// The module of lib.rs, or of main.rs where there is no library.
    pub root: usize,
}

/// A module: a file, or a part of one.
pub struct Module {
    pub krate: usize,
    pub file: usize,
    pub parent: Option<usize>,
    /// The root of its tree: main.rs stands beside lib.rs.
    pub root: usize,
    pub children: BTreeMap<String, usize>,
    /// What it defines, and in which file: exported macros belong to the root and stand elsewhere.
    pub items: BTreeMap<String, usize>,
    pub imports: Vec<Import>,
    pub paths: Vec<Vec<String>>,
}

/// Where a module is put.
struct ModulePath {
    krate: usize,
    file: usize,
    parent: Option<usize>,
    /// The folder its modules in files of their own stand in.
    folder: PathBuf,
}

impl Workspace {
    /// Reads every package of the workspace at `root`.
    pub fn read(root: &Path) -> Result<Workspace, String> {
        let manifest = text(&root.join("Cargo.toml"))?;
        let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
        let mut dirs: Vec<&str> =
            members.ok_or("no members in Cargo.toml")?.split('"').skip(1).step_by(2).collect();
        dirs.sort_unstable();
        let mut workspace = Workspace { crates: Vec::new(), modules: Vec::new() };
        for dir in dirs {
            workspace.package(root, dir)?;
        }
        Ok(workspace)
    }

    fn package(&mut self, root: &Path, dir: &str) -> Result<(), String> {
        let manifest = text(&root.join(dir).join("Cargo.toml"))?;
        let name = manifest.split("name = \"").nth(1).and_then(|rest| rest.split('"').next());
        let name = name.ok_or_else(|| format!("{dir}: no name"))?.replace('-', "_");
        let krate = self.crates.len();
        self.crates.push(Crate { dir: dir.into(), name, files: Vec::new(), root: self.modules.len() });
        let src = root.join(dir).join("src");
        for file in ["lib.rs", "main.rs"] {
            if src.join(file).exists() {
                self.file(
                    &src,
                    ModulePath { krate, file: 0, parent: None, folder: src.clone() },
                    &src.join(file),
                )?;
            }
        }
        Ok(())
    }

    /// Reads a file and the files of its modules; returns its module.
    fn file(&mut self, src: &Path, at: ModulePath, path: &Path) -> Result<usize, String> {
        let source = Source::read(&text(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        let files = &mut self.crates[at.krate].files;
        files.push(path.strip_prefix(src).unwrap_or(path).to_string_lossy().into_owned());
        let file = files.len() - 1;
        self.module(src, ModulePath { file, ..at }, source)
    }

    fn module(&mut self, src: &Path, at: ModulePath, source: Source) -> Result<usize, String> {
        let id = self.modules.len();
        let ModulePath { krate, file, parent, folder } = at;
        let root = parent.map_or(id, |parent| self.modules[parent].root);
        self.modules.push(Module {
            krate,
            file,
            parent,
            root,
            children: BTreeMap::new(),
            items: source.items.into_iter().map(|name| (name, file)).collect(),
            imports: source.imports,
            paths: source.paths.into_iter().collect(),
        });
        self.modules[root].items.extend(source.exported.into_iter().map(|name| (name, file)));
        for name in source.outside {
            let flat = folder.join(format!("{name}.rs"));
            let path = if flat.exists() { flat } else { folder.join(&name).join("mod.rs") };
            let at = ModulePath { krate, file: 0, parent: Some(id), folder: folder.join(&name) };
            let child = self.file(src, at, &path)?;
            self.modules[id].children.insert(name, child);
        }
        for (name, inner) in source.inside {
            let at = ModulePath { krate, file, parent: Some(id), folder: folder.join(&name) };
            let child = self.module(src, at, inner)?;
            self.modules[id].children.insert(name, child);
        }
        Ok(id)
    }
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
