//! Who is told of a change, and what.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flags::{FanMask, InitFlags, MarkFlags};
use super::group::{Event, Group, Question};
use super::marks::{MARKS, Mark, Place, of_inode};
use super::records::{Fid, Files};
use crate::Result;
use crate::core::sched::wait_until;
use crate::core::subject;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::{FileType, Inode};

/// A name in a directory.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The directory.
    pub dir: &'a Arc<Dentry>,
    /// The name.
    pub name: &'a [u8],
}

/// What has happened.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Events.
    pub mask: FanMask,
    /// What it happened to; of a name, what that stands for.
    pub object: &'a Arc<dyn Inode>,
    /// Where in the directory cache that is.
    pub at: Option<&'a Arc<Dentry>>,
    /// Where it was reached, if it was.
    pub path: Option<&'a Path>,
    /// The name it has, or that came or went.
    pub entry: Option<Entry<'a>>,
    /// The name that it got in a rename.
    pub renamed: Option<Entry<'a>>,
}

/// Marks that have to do with an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Of the file, or of the directory of a name.
    Itself,
    /// Of the directory of the file.
    Parent,
    /// Of the directory where a name went.
    Moved,
    Mount,
    FileSystem,
}

/// What a group wants of an event.
struct Listener {
    group: Arc<Group>,
    wanted: FanMask,
    unwanted: FanMask,
    ways: Vec<Way>,
}

/// Whether anything is marked.
#[inline]
pub fn marked() -> bool {
    MARKS.peek().is_some_and(|m| m.any())
}

/// Something happened to the file at a place.
pub fn path_change(path: &Path, mask: FanMask) {
    if marked() {
        path_told(path, mask, None);
    }
}

fn path_told(path: &Path, mask: FanMask, question: Option<&mut Vec<Arc<Question>>>) {
    let (parent, name) = (path.dentry().parent(), path.dentry().name());
    let entry = parent.as_ref().map(|dir| Entry { dir, name: &name });
    let at = Some(path.dentry());
    let change = Change { mask, object: path.inode(), at, path: Some(path), entry, renamed: None };
    deliver(&change, question);
}

/// Something is to be done to the file at a place: asks those who want to be. EPERM if one of them does not allow it.
pub fn ask(path: &Path, mask: FanMask) -> Result<()> {
    if !MARKS.asking() {
        return Ok(());
    }
    let mut questions = Vec::new();
    path_told(path, mask, Some(&mut questions));
    for q in questions {
        wait_until(&q.queue, None, || q.answer())??;
    }
    Ok(())
}

/// Tells of a change.
pub fn tell(change: &Change<'_>) {
    if marked() {
        deliver(change, None);
    }
}

impl Change<'_> {
    fn is_entry(&self) -> bool {
        self.mask.intersects(FanMask::ENTRY)
    }

    fn on_dir(&self) -> bool {
        self.object.kind() == FileType::Directory
    }

    /// The marks that have to do with it.
    fn marks(&self) -> Vec<(Way, Arc<Mark>)> {
        let mut all = Vec::new();
        let mut add = |way, marks: Vec<Arc<Mark>>| all.extend(marks.into_iter().map(|m| (way, m)));
        let dir = self.entry.map(|e| e.dir.inode());
        if !self.is_entry() {
            add(Way::Itself, of_inode(self.object));
        }
        if let Some(dir) = dir {
            add(if self.is_entry() { Way::Itself } else { Way::Parent }, of_inode(dir));
        }
        if let Some(to) = self.renamed {
            add(Way::Moved, of_inode(to.dir.inode()));
        }
        if let Some(p) = self.path {
            add(Way::Mount, MARKS.of(&Place::Mount(p.mount().id)));
        }
        add(Way::FileSystem, MARKS.of(&Place::FileSystem(self.object.place().0)));
        all
    }

    /// What the groups with such marks want of it.
    fn listeners(&self) -> Vec<Listener> {
        let mut all: Vec<Listener> = Vec::new();
        for (way, mark) in self.marks() {
            let Some(group) = mark.group.upgrade() else { continue };
            let wants = {
                let mut w = mark.wants.lock();
                if self.mask.contains(FanMask::MODIFY) && !w.flags.contains(MarkFlags::IGNORED_SURV_MODIFY) {
                    // What was not wanted is, once the file has changed.
                    w.ignored = FanMask::empty();
                }
                *w
            };
            let at = match all.iter().position(|l| Arc::ptr_eq(&l.group, &group)) {
                Some(at) => at,
                None => {
                    let none = FanMask::empty();
                    all.push(Listener { group, wanted: none, unwanted: none, ways: Vec::new() });
                    all.len() - 1
                }
            };
            let l = &mut all[at];
            let child = way == Way::Parent;
            let wanted = wants.wanted(self.on_dir(), child);
            l.wanted |= wanted;
            l.unwanted |= wants.unwanted(self.on_dir(), child);
            if wanted.intersects(self.mask) {
                l.ways.push(way);
            }
        }
        all
    }

    /// The files that a group is told of.
    fn files(&self, l: &Listener) -> Files {
        let how = l.group.flags;
        let fid = |d: &Arc<Dentry>| Fid::of(d.inode(), Some(d));
        let object = Fid::of(self.object, self.at);
        let named = how.contains(InitFlags::REPORT_NAME);
        if self.mask.contains(FanMask::RENAME) {
            let all = l.ways.contains(&Way::FileSystem);
            let told =
                |way, e: Entry<'_>| (all || l.ways.contains(&way)).then(|| (fid(e.dir), e.name.to_vec()));
            let old = self.entry.and_then(|e| told(Way::Itself, e));
            let target = how.contains(InitFlags::REPORT_TARGET_FID);
            return Files {
                dir: old.map(|(f, n)| (f, Some(n))),
                new: self.renamed.and_then(|e| told(Way::Moved, e)),
                object: target.then_some(object),
            };
        }
        let dir = self.entry.filter(|_| self.is_entry() || !self.on_dir());
        let Some(e) = dir.filter(|_| how.contains(InitFlags::REPORT_DIR_FID)) else {
            let of_dir = self.is_entry() && !how.contains(InitFlags::REPORT_TARGET_FID);
            let object = match self.entry {
                Some(e) if of_dir => fid(e.dir),
                _ => object,
            };
            return Files { object: Some(object), ..Files::default() };
        };
        let both = if self.is_entry() {
            how.contains(InitFlags::REPORT_TARGET_FID)
        } else {
            how.contains(InitFlags::REPORT_FID)
        };
        if !named && !both {
            return Files { object: Some(fid(e.dir)), ..Files::default() };
        }
        Files {
            dir: Some((fid(e.dir), named.then(|| e.name.to_vec()))),
            new: None,
            object: both.then_some(object),
        }
    }
}

fn deliver(change: &Change<'_>, mut questions: Option<&mut Vec<Arc<Question>>>) {
    for l in change.listeners() {
        let by_handle = l.group.by_handle();
        let mask = change.mask & (l.wanted - l.unwanted);
        let told = matches!(change.object.kind(), FileType::Regular | FileType::Directory);
        if mask.is_empty() || !by_handle && (change.path.is_none() || !told) {
            continue;
        }
        // Handles do not say whether a file is a directory.
        let on_dir = by_handle && change.on_dir();
        let (pid, tid) = (subject::pid(), subject::tid());
        let question = questions.as_mut().map(|all| {
            let q = Arc::new(Question::default());
            all.push(q.clone());
            q
        });
        l.group.push(Event {
            mask: if on_dir { mask | FanMask::ONDIR } else { mask },
            id: if l.group.flags.contains(InitFlags::REPORT_TID) { tid } else { pid },
            pid,
            path: change.path.filter(|_| !by_handle).cloned(),
            files: if by_handle { change.files(&l) } else { Files::default() },
            question,
        });
    }
    if change.mask.contains(FanMask::DELETE_SELF) {
        for mark in of_inode(change.object) {
            if let Some(g) = mark.group.upgrade() {
                g.forget(&mark);
            }
        }
    }
}
