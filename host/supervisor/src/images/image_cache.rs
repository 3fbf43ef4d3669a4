//! Root images and their users as they were found last, so that a domain of an image that was used before starts
//! without reading the store again: two looks at files tell whether it is still the same.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use doppel_image::{NameVersion, Store};

use crate::domains::User;
use crate::images::root::Root;
use crate::locked;

/// Most images, and most users, that are remembered; with more, all are looked for again.
const MOST: usize = 256;

#[derive(Debug, Default)]
struct Known {
    roots: HashMap<String, (NameVersion, u64, Root)>,
    /// By digest of the image, which says all about them, and how they were asked for.
    users: HashMap<(String, String), User>,
}

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct ImageCache(Mutex<Known>);

fn size(image: &Path) -> Option<u64> {
    Some(std::fs::metadata(image).ok()?.len())
}

impl ImageCache {
    /// The image that has this name, if that is known and has not changed.
    pub fn get(&self, store: &Store, name: &str) -> Option<Root> {
        let (version, bytes, root) = locked(&self.0).roots.get(name)?.clone();
        (store.version(name) == Some(version) && size(&root.path) == Some(bytes)).then_some(root)
    }

    /// Remembers the image of a name; `version` is from before it was read.
    pub fn put(&self, name: &str, version: Option<NameVersion>, root: &Root) {
        if let (Some(version), Some(bytes)) = (version, size(&root.path)) {
            let mut known = locked(&self.0);
            if known.roots.len() >= MOST {
                known.roots.clear();
            }
            known.roots.insert(name.to_owned(), (version, bytes, root.clone()));
        }
    }

    /// A user of an image.
    pub fn user(&self, root: &Root, who: &str) -> Option<User> {
        locked(&self.0).users.get(&(root.digest.clone(), who.to_owned())).cloned()
    }

    /// Remembers a user.
    pub fn put_user(&self, root: &Root, who: &str, user: &User) {
        let mut known = locked(&self.0);
        if known.users.len() >= MOST {
            known.users.clear();
        }
        known.users.insert((root.digest.clone(), who.to_owned()), user.clone());
    }
}
