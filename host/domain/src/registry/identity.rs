//! Who a domain is on its host: an id, which stands for one host uid, and perhaps a name.

use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::lock::lock;
use crate::registry::Registry;
use crate::run::state::Core;

/// A live domain's id, and its name if it was given one; released when dropped.
#[derive(Debug)]
pub(crate) struct Identity {
    pub id: u32,
    name: Option<String>,
    holder: Arc<Registry>,
}

impl Identity {
    /// Claims a free id, and `name` for it.
    pub fn claim(name: Option<&str>) -> Result<Self, Error> {
        let holder = Registry::get()?;
        if let Some(name) = name
            && !holder.claim_name(name)?
        {
            return Err(taken(name));
        }
        // Dropping it gives the name back, and an id that was not taken is nobody's.
        let mut identity = Self { id: 0, name: name.map(str::to_owned), holder };
        identity.id = identity.holder.take_id()?;
        Ok(identity)
    }

    /// That of a domain that is taken over, which `holder` has claimed.
    pub fn adopt(id: u32, name: Option<String>, holder: Arc<Registry>) -> Self {
        holder.retake(id, name.as_deref());
        Self { id, name, holder }
    }

    /// Says that what this process has claimed stays claimed as long as records in `dir` are of living domains.
    pub fn kept_in(&self, dir: &Path) -> Result<(), Error> {
        self.holder.kept_in(dir)
    }

    /// Under which name this process has claimed it.
    pub fn holder(&self) -> &str {
        self.holder.name()
    }

    /// The given name.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The domain's name: the given one, or one made of its id.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("d{}", self.id))
    }

    /// The name of its control group.
    pub fn cgroup(&self) -> String {
        match &self.name {
            Some(name) => format!("d{}-{name}", self.id),
            None => format!("d{}", self.id),
        }
    }

    /// Gives a domain that was held its name, if it is to have one, and lets it be asked.
    pub fn take_name(&mut self, name: Option<&str>, core: &Arc<Core>) -> Result<(), Error> {
        if let Some(name) = name {
            if !self.holder.claim_name(name)? {
                return Err(taken(name));
            }
            self.name = Some(name.to_owned());
            name.clone_into(&mut lock(&core.label));
        }
        self.holder.open_door(core);
        Ok(())
    }

    /// Lets the domain be asked from outside; says why if it cannot.
    pub fn open_door(&self, core: &Arc<Core>) -> Result<(), String> {
        self.holder.open_door(core);
        self.holder.deaf().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

fn taken(name: &str) -> Error {
    Error::State(format!("a domain named {name:?} is running; choose another --name"))
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.holder.close_door(&self.label());
        if let Some(name) = &self.name {
            self.holder.give_name(name);
        }
        self.holder.give_id(self.id);
    }
}
