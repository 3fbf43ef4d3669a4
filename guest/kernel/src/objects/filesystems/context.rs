//! File systems that are made, or changed, in steps (`fsopen(2)`, `fspick(2)`).
//!
//! Key type: [`Context`], and the messages it has for who reads its descriptor.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use super::Settings;
use crate::core::sched::Mutex;
use crate::core::subject::Cred;
use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::perm::cap;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::mount::Superblock;
use crate::objects::vfs::{File, FileOps, Output};
use crate::{Errno, Result};

/// Most messages that are kept: older ones go.
const MESSAGES: usize = 8;
/// Longest message.
const LONGEST: usize = 256;

enum Phase {
    /// Told how the file system is to be.
    Making,
    /// It is there, and in no mount yet.
    Made(Arc<Superblock>, Arc<Dentry>),
    /// Told how this one is to change.
    Changing(Arc<Superblock>),
    /// It is mounted: it may be changed from here on.
    Mounted(Arc<Superblock>),
    Failed,
}

struct State {
    phase: Phase,
    settings: Settings,
    messages: VecDeque<String>,
}

/// A file system on its way.
pub struct Context {
    state: Mutex<Option<alloc::boxed::Box<State>>>,
}

impl State {
    fn say(&mut self, (e, text): (Errno, String)) -> Errno {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        let mut text = alloc::format!("e {text}");
        while text.len() > LONGEST {
            text.pop();
        }
        text.push('\n');
        self.messages.push_back(text);
        e
    }

    /// A context whose file system is mounted can be told of changes.
    fn go_on(&mut self, cred: &Cred) -> Result<()> {
        if let Phase::Mounted(sb) = &self.phase {
            let sb = sb.clone();
            self.settings = Settings::of(&sb, cred)?;
            self.phase = Phase::Changing(sb);
        }
        Ok(())
    }

    fn create(&mut self, caller: &Caller, exclusive: bool) -> Result<()> {
        if !matches!(self.phase, Phase::Making) {
            return Err(Errno::EBUSY);
        }
        self.settings.allowed(&caller.cred)?;
        match self.settings.create(caller, exclusive) {
            Ok((sb, root)) => {
                self.phase = Phase::Made(sb, root);
                Ok(())
            }
            Err(e) => {
                self.phase = Phase::Failed;
                Err(e)
            }
        }
    }

    fn change(&mut self, caller: &Caller) -> Result<()> {
        let Phase::Changing(sb) = &self.phase else { return Err(Errno::EBUSY) };
        let sb = sb.clone();
        if !caller.cred.capable_in(&sb.owner, cap::SYS_ADMIN) {
            self.phase = Phase::Failed;
            return Err(Errno::EPERM);
        }
        let done = self.settings.apply(&sb);
        match done {
            Ok(()) => self.phase = Phase::Mounted(sb),
            Err(_) => self.phase = Phase::Failed,
        }
        done
    }
}

impl Context {
    fn with(phase: Phase, settings: Settings) -> Arc<Self> {
        let state = State { phase, settings, messages: VecDeque::new() };
        let this = Self { state: Mutex::default() };
        *this.state.lock() = Some(alloc::boxed::Box::new(state));
        Arc::new(this)
    }

    /// For a new file system.
    pub fn new(settings: Settings) -> Arc<Self> {
        Self::with(Phase::Making, settings)
    }

    /// For changing one that is mounted.
    pub fn pick(sb: Arc<Superblock>, settings: Settings) -> Arc<Self> {
        Self::with(Phase::Changing(sb), settings)
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        f(self.state.lock().as_mut().ok_or(Errno::EIO)?)
    }

    /// Sets an option. EBUSY if it is not the time for that.
    pub fn set(&self, key: &str, value: Option<&str>, cred: &Cred) -> Result<()> {
        self.state(|s| {
            s.go_on(cred)?;
            if !matches!(s.phase, Phase::Making | Phase::Changing(_)) {
                return Err(Errno::EBUSY);
            }
            s.settings.set(key, value, cred).map_err(|e| s.say(e))
        })
    }

    /// Refuses an option that is neither a flag nor a string.
    pub fn refuse(&self, key: &str, cred: &Cred) -> Result<()> {
        self.state(|s| {
            s.go_on(cred)?;
            if !matches!(s.phase, Phase::Making | Phase::Changing(_)) {
                return Err(Errno::EBUSY);
            }
            let kind = s.settings.kind;
            let said = match key {
                "source" => (Errno::EINVAL, "Non-string source".into()),
                _ => super::unknown(kind, key),
            };
            Err(s.say(said))
        })
    }

    /// Makes the file system.
    pub fn create(&self, caller: &Caller, exclusive: bool) -> Result<()> {
        self.state(|s| {
            s.go_on(&caller.cred)?;
            s.create(caller, exclusive)
        })
    }

    /// Changes the file system.
    pub fn change(&self, caller: &Caller) -> Result<()> {
        self.state(|s| {
            s.go_on(&caller.cred)?;
            s.change(caller)
        })
    }

    /// Has `mount` mount what was made: EINVAL if nothing was; EBUSY if it was mounted before.
    pub fn mount(
        &self,
        mount: impl FnOnce(&Settings, Arc<Superblock>, Arc<Dentry>) -> Result<Arc<File>>,
    ) -> Result<Arc<File>> {
        self.state(|s| {
            let (sb, root) = match &s.phase {
                Phase::Made(sb, root) => (sb.clone(), root.clone()),
                Phase::Changing(_) | Phase::Mounted(_) => return Err(Errno::EBUSY),
                _ => return Err(Errno::EINVAL),
            };
            let file = mount(&s.settings, sb.clone(), root)?;
            s.messages.clear();
            s.phase = Phase::Mounted(sb);
            Ok(file)
        })
    }
}

impl FileOps for Context {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    /// The oldest message.
    fn read(&self, _file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let room = out.remaining();
        let text = self.state(|s| {
            if s.messages.front().is_some_and(|text| text.len() > room) {
                return Err(Errno::EMSGSIZE);
            }
            s.messages.pop_front().ok_or(Errno::ENODATA)
        })?;
        out.write(text.as_bytes())
    }
}
