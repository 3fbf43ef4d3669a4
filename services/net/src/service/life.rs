//! Who needs a service domain that does not end with its supervisor.
//!
//! It has a pipe whose other end only the supervisor has, and a descriptor of each domain's process. When the supervisor
//! has ended, it waits for another one as long as domains run, and a while longer.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// How long it waits for a supervisor when no domain runs: some may sleep, and be woken by the next one.
const GRACE: Duration = Duration::from_secs(60);
/// How long if it serves nobody.
const UNUSED: Duration = Duration::from_secs(2);
/// Between two looks whether domains run.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Life {
    supervisor: OwnedFd,
    /// Tells which domains have ended.
    ends: OwnedFd,
    /// Processes of domains.
    domains: HashMap<u64, OwnedFd>,
    /// Since when it has no supervisor, or none and no domain that runs.
    alone: Option<Instant>,
}

impl Life {
    /// Of a process that [`crate::manager::resources::ServiceResources::estate`] was given to.
    pub fn born() -> io::Result<Self> {
        let [supervisor] = doppel_sys::inherited::next_to_streams();
        let ends = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { supervisor: supervisor?, ends, domains: HashMap::new(), alone: None })
    }

    /// To wait for: readable when the supervisor has ended.
    pub fn supervisor(&self) -> BorrowedFd<'_> {
        self.supervisor.as_fd()
    }

    /// Another supervisor has taken over.
    pub fn taken_over(&mut self, supervisor: OwnedFd) {
        self.supervisor = supervisor;
        self.alone = None;
    }

    /// The domain with this key is this process.
    pub fn runs(&mut self, key: u64, process: OwnedFd) -> io::Result<()> {
        epoll::add(&self.ends, &process, EventData::new_u64(key), EventFlags::IN)?;
        // One before it is closed, and so not waited for any more.
        self.domains.insert(key, process);
        Ok(())
    }

    /// A domain is not served any more.
    pub fn left(&mut self, key: u64) {
        self.domains.remove(&key);
    }

    /// When to look again.
    pub fn patience(&self) -> Option<Duration> {
        self.alone.map(|_| LOOK)
    }

    /// Whether nobody needs it any more. `unused`: it serves no domain.
    pub fn is_over(&mut self, unused: bool) -> bool {
        // Nobody writes to the pipe: what can be read is its end.
        if self.alone.is_none() && !matches!(rustix::io::read(&self.supervisor, &mut [0; 1]), Ok(0)) {
            return false;
        }
        self.forget_ended();
        let now = Instant::now();
        if !self.domains.is_empty() {
            self.alone = Some(now);
            return false;
        }
        let since = *self.alone.get_or_insert(now);
        now - since >= if unused { UNUSED } else { GRACE }
    }

    fn forget_ended(&mut self) {
        let mut events = Vec::with_capacity(64);
        while let Ok(1..) =
            epoll::wait(&self.ends, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()))
        {
            for event in events.drain(..) {
                self.domains.remove(&event.data.u64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::pipe::{PipeFlags, pipe_with};
    use rustix::process::{Pid, PidfdFlags};

    use super::*;

    fn life() -> (Life, OwnedFd) {
        let (supervisor, alive) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let ends = epoll::create(CreateFlags::CLOEXEC).unwrap();
        (Life { supervisor, ends, domains: HashMap::new(), alone: None }, alive)
    }

    /// Its supervisor ends. What another test forks has the pipe's end too until it executes its program.
    fn end(life: &Life, alive: OwnedFd) {
        drop(alive);
        let mut fds = [PollFd::new(&life.supervisor, PollFlags::IN)];
        assert_eq!(poll(&mut fds, None), Ok(1));
    }

    fn domain() -> (Child, OwnedFd) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        (child, rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn long_ago(life: &mut Life, time: Duration) {
        life.alone = life.alone.map(|since| since.checked_sub(time).unwrap());
    }

    #[test]
    fn it_is_needed_as_long_as_it_has_a_supervisor_or_a_domain() {
        let (mut life, alive) = life();
        let (mut child, process) = domain();
        life.runs(7, process).unwrap();
        assert!(!life.is_over(true) && life.patience().is_none());
        end(&life, alive);
        assert!(!life.is_over(false) && life.patience().is_some());
        long_ago(&mut life, GRACE);
        assert!(!life.is_over(false), "its domain runs");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!life.is_over(false), "it waits a while");
        long_ago(&mut life, UNUSED);
        assert!(!life.is_over(false) && life.is_over(true));
        long_ago(&mut life, GRACE);
        assert!(life.is_over(false));
    }

    #[test]
    fn another_supervisor_takes_over() {
        let (mut one, alive) = life();
        end(&one, alive);
        assert!(!one.is_over(false) && one.patience().is_some());
        let (other, alive) = life();
        one.taken_over(other.supervisor);
        long_ago(&mut one, GRACE);
        assert!(!one.is_over(true) && one.patience().is_none());
        end(&one, alive);
        assert!(!one.is_over(true));
        long_ago(&mut one, UNUSED);
        assert!(one.is_over(true));
    }

    #[test]
    fn a_domain_that_left_or_is_another_process_is_not_waited_for() {
        let (mut life, alive) = life();
        let ((mut a, first), (mut b, second)) = (domain(), domain());
        life.runs(7, first).unwrap();
        life.runs(7, second).unwrap();
        a.kill().unwrap();
        a.wait().unwrap();
        end(&life, alive);
        life.is_over(false);
        assert!(life.domains.contains_key(&7));
        life.left(7);
        life.is_over(false);
        long_ago(&mut life, GRACE);
        assert!(life.is_over(false));
        b.kill().unwrap();
        b.wait().unwrap();
    }
}
