//! Who a domain is on its host: an id, which stands for one host uid, and perhaps a name.

use std::sync::Arc;

use crate::Error;
use crate::core::Core;
use crate::holder::Holder;

/// A live domain's id, and its name if it was given one; released when dropped.
#[derive(Debug)]
pub(crate) struct Identity {
    pub id: u32,
    name: Option<String>,
    holder: Arc<Holder>,
}

impl Identity {
    /// Claims a free id, and `name` for it.
    pub fn claim(name: Option<&str>) -> Result<Self, Error> {
        let holder = Holder::get()?;
        if let Some(name) = name
            && !holder.claim_name(name)?
        {
            return Err(Error::Config(format!("a domain named {name:?} is running; choose another --name")));
        }
        // Dropping it gives the name back, and an id that was not taken is nobody's.
        let mut identity = Self { id: 0, name: name.map(str::to_owned), holder };
        identity.id = identity.holder.take_id()?;
        Ok(identity)
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

    /// Lets the domain be asked from outside; says why if it cannot.
    pub fn open_door(&self, core: &Arc<Core>) -> Result<(), String> {
        self.holder.open_door(core);
        self.holder.deaf().map_or(Ok(()), |why| Err(why.to_owned()))
    }
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
