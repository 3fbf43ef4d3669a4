//! Datagrams to and from outside the domain: the network service executes them (`net::outside`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::net::{DatagramHeader, ErrorRecord, SocketOption};
use doppel_algo::net::ports::unmapped;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};

use crate::core::sched::PollEvents;
use crate::core::time;
use crate::objects::net::common::{MSG_OVERHEAD, wait};
use crate::objects::net::consts::Shutdown;
use crate::objects::net::errqueue::Problem;
use crate::objects::net::inet::udp::{Datagram, Inner, Udp};
use crate::objects::net::inet::{End, is_local, is_own, own_address};
use crate::objects::net::outside::{self, Grams, Network, Outside, of_common};
use crate::objects::net::socket::Marks;
use crate::{Errno, Result};

/// Most bytes of what was sent that are kept with an error: as many as ICMP tells.
const MOST_TOLD: usize = 1280;
/// Room for any datagram.
const ANY: usize = u16::MAX as usize;

impl Udp {
    /// Has the service receive for it, if it is bound to what can be reached from outside.
    pub(crate) fn bind_far(&self) {
        let local = self.inner.lock().local;
        if outside::network().is_some() && (local.is_any() || is_own(&local.ip)) {
            // Without a number it takes what comes from inside.
            let _ = self.open_far();
        }
    }

    /// Its socket in the service, made when it is first wanted. The port is bound.
    fn open_far(&self) -> Result<Arc<Grams>> {
        if let Some(far) = self.inner.lock().far.clone() {
            return Ok(far);
        }
        let network = outside::network().ok_or(Errno::ENETUNREACH)?;
        let number = network.number(self.weak())?;
        let far = Arc::new(Grams::new(number));
        far.wait_for_more();
        let mut i = self.inner.lock();
        if let Some(first) = i.far.clone() {
            drop(i);
            network.forget(number);
            return Ok(first);
        }
        i.far = Some(far.clone());
        // Under the lock: whatever is asked of it comes after this.
        self.register(network, number, &i.local);
        drop(i);
        self.want_marks();
        // This socket of the service's has not been asked for any.
        self.told_errors.store(0, Ordering::SeqCst);
        self.tell_options();
        Ok(far)
    }

    fn register(&self, network: &Network, number: u32, local: &End) {
        if self.is_echo() {
            network.echo(number, (*local).into());
        } else {
            network.datagrams(number, (*local).into());
        }
    }

    /// Has the service say with how many hops and which class datagrams came, if a program wants to know.
    pub(crate) fn want_marks(&self) {
        let far = {
            let i = self.inner.lock();
            if !i.ip.wants_marks() {
                return;
            }
            i.far.clone()
        };
        if let (Some(far), Some(network)) = (far, outside::network()) {
            network.set(far.number(), SocketOption::ReceiveMarks, 1);
        }
    }

    /// Tells the service of options that the host's sockets have too: of all that were set.
    pub(crate) fn tell_options(&self) {
        let Some(network) = outside::network() else { return };
        let (far, set, errors) = {
            let i = self.inner.lock();
            let Some(far) = i.far.clone() else { return };
            let errors = u32::from(i.ip.keeps_errors(AF_INET)) | u32::from(i.ip.keeps_errors(AF_INET6)) << 1;
            (far, i.ip.discovers(), errors)
        };
        for (option, value) in set.chain(of_common(&self.common)) {
            network.set(far.number(), option, value);
        }
        // Once told of, it is told when it is over, too.
        if self.told_errors.swap(errors, Ordering::SeqCst) != errors {
            network.set(far.number(), SocketOption::ReceiveErrors, errors);
        }
    }

    /// A connect to an address outside: waits for the service to say whether it can be reached.
    pub(crate) fn connect_far(&self, to: End) -> Result<()> {
        self.autobind()?;
        let far = self.open_far()?;
        let network = outside::network().ok_or(Errno::ENETUNREACH)?;
        {
            let mut i = self.inner.lock();
            (i.asked, i.told) = (Some(to), None);
        }
        network.peer(far.number(), self.weak(), to.into());
        let told = wait(&self.common.wq, false, None, || self.inner.lock().told.take());
        let mut i = self.inner.lock();
        if let Err(e) = told {
            i.asked = None;
            return Err(e);
        }
        if i.local.is_any() {
            i.local.ip = own_address(&to.ip);
        }
        i.remote = Some(to);
        Ok(())
    }

    /// It has no peer outside any more.
    pub(crate) fn disconnect_far(&self) {
        let (far, asked) = {
            let mut i = self.inner.lock();
            (i.far.clone(), i.asked.take())
        };
        if let (Some(far), Some(_), Some(network)) = (far, asked, outside::network()) {
            network.no_peer(far.number());
        }
    }

    /// Gives up what it has outside.
    pub(crate) fn leave_far(&self) {
        let far = {
            let mut i = self.inner.lock();
            i.asked = None;
            i.far.take()
        };
        if let (Some(far), Some(network)) = (far, outside::network()) {
            network.close(far.number(), false);
        }
    }

    /// Sends to an address outside.
    pub(crate) fn send_far(&self, to: End, data: &[u8], marks: Marks, nonblock: bool) -> Result<()> {
        let local = self.inner.lock().local;
        if !local.is_any() && !is_own(&local.ip) {
            // From the loopback there is no way out.
            return Err(Errno::EINVAL);
        }
        let far = self.open_far()?;
        wait(&self.common.wq, nonblock, self.common.send_deadline(), || {
            if let Some(e) = self.common.take_error() {
                return Some(Err(e));
            }
            (far.fits_or_tell(data.len()) && far.send(to.into(), marks, data)).then_some(Ok(()))
        })
    }

    /// Takes what the service has for it, as far as the socket's buffer goes.
    pub(crate) fn pull(&self, i: &mut Inner) {
        let Some(far) = i.far.clone() else { return };
        let room = self.common.rcvbuf.load(Ordering::Relaxed);
        while i.used < room {
            match far.next() {
                Some((head, data)) if head.is_record() => self.take_record(&head, &data),
                Some((head, data)) => {
                    let marks = Marks { hops: head.hops.into(), class: head.class.into() };
                    self.take_in(i, head.peer.into(), marks, data);
                }
                None if far.wait_for_more() => return,
                None => {}
            }
        }
    }

    /// Notes an error of a datagram that was sent, if a program wants to know; who waits is woken without the lock ([`Self::news`]).
    fn take_record(&self, head: &DatagramHeader, data: &[u8]) {
        let Some((record, sent)) = ErrorRecord::decode(data) else { return };
        let to = End::from(head.peer);
        let errors = self.told_errors.load(Ordering::SeqCst);
        let wanted = errors & if unmapped(&to.ip).is_some() { 1 } else { 2 } != 0;
        // What is no error of Linux' says nothing.
        if !wanted || !(1..4096).contains(&record.errno) {
            return;
        }
        let offender = End { ip: record.offender, port: 0 };
        self.common.note(Problem {
            errno: record.errno,
            origin: record.origin,
            kind: record.kind,
            code: record.code,
            info: record.info,
            data: 0,
            offender: (record.offender != [0; 16]).then(|| offender.show(self.common.domain)),
            to: Some(to.show(self.common.domain)),
            payload: Arc::new(sent[..sent.len().min(MOST_TOLD)].to_vec()),
        });
    }

    /// The longest packet to the peer, if that is outside and the host knows it.
    pub(crate) fn far_mtu(&self) -> Option<u32> {
        let far = {
            let i = self.inner.lock();
            i.asked?;
            i.far.clone()?
        };
        let said = outside::network()?.measure(far.number())?;
        (said.mtu > 0).then_some(said.mtu)
    }

    fn take_in(&self, i: &mut Inner, from: End, marks: Marks, data: Vec<u8>) {
        let unwanted = i.shut.contains(Shutdown::RECEIVE)
            || !self.is_wanted_from(i, &from, &data)
            || i.ip.v6only && unmapped(&from.ip).is_some();
        if !unwanted {
            let to = End { ip: own_address(&from.ip), port: i.local.port };
            let at = time::realtime_ns();
            let mut d = Datagram { data: Arc::new(data), from, to, marks, index: 0, segment: 0, at };
            if self.passes(&mut d) {
                i.used += d.data.len() + MSG_OVERHEAD;
                i.queue.push_back(d);
            }
        }
    }

    /// Whether it is for this socket. As on Linux, one of ICMP echo hears whomever it has asked.
    fn is_wanted_from(&self, i: &Inner, from: &End, data: &[u8]) -> bool {
        if self.is_echo() {
            Self::is_answered(&i.local, from, data)
        } else {
            i.remote.is_none_or(|r| r == *from)
        }
    }

    /// Whether poll says that something can be sent.
    pub(crate) fn far_writable(i: &Inner) -> bool {
        i.far.as_ref().is_none_or(|far| far.fits_or_tell(ANY))
    }
}

impl Outside for Udp {
    /// What became of [`Self::connect_far`].
    fn connected(&self, result: Result<()>) {
        self.inner.lock().told = Some(result);
        self.common.wake_write(PollEvents::OUT);
    }

    fn news(&self) {
        let Some(far) = self.inner.lock().far.clone() else { return };
        if let Some(e) = far.take_error() {
            self.common.set_error(e);
        }
        let some = {
            let mut i = self.inner.lock();
            self.pull(&mut i);
            !i.queue.is_empty()
        };
        if some {
            self.common.wake_read(PollEvents::READABLE);
        }
        if self.common.has_error() {
            self.common.wake_all(PollEvents::ERR);
        }
        if !self.common.wq.is_empty() && far.fits(ANY) {
            self.common.wake_write(PollEvents::WRITABLE | PollEvents::WRBAND);
        }
    }

    fn stays(&self) -> bool {
        true
    }

    fn again(&self, network: &Network, n: u32) {
        let asked = {
            let i = self.inner.lock();
            let Some(far) = &i.far else { return };
            far.restart();
            far.wait_for_more();
            self.told_errors.store(0, Ordering::SeqCst);
            self.register(network, n, &i.local);
            i.asked
        };
        self.want_marks();
        self.tell_options();
        if let Some(to) = asked {
            network.peer(n, self.weak(), to.into());
        }
        self.common.wake_write(PollEvents::WRITABLE | PollEvents::WRBAND);
    }

    fn lost(&self) {
        let was = {
            let mut i = self.inner.lock();
            i.told = Some(Err(Errno::ENETUNREACH));
            i.far.take().is_some() && i.remote.is_some_and(|r| !is_local(&r.ip))
        };
        if was {
            self.common.set_error(Errno::ENETUNREACH);
        }
        self.common.wake_all(PollEvents::IN | PollEvents::OUT);
    }
}
