//! Rates of a domain's files: what it may read and write in a second, by device. Requests beyond that are held back here, and no
//! thread waits for them; what is not read or written goes on.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Operation, Request};
use serde::{Deserialize, Serialize};

/// Of what was not used so long ago at most more may be used at once.
const BURST: Duration = Duration::from_millis(100);

/// What a domain may do in a second with its files on a device, and how it stands to other domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Its weight beside others', 1 to 10,000; 100 is usual.
    pub weight: u32,
    /// By device.
    pub rates: Vec<Rate>,
}

/// Most in a second; none: as much as it wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Number of the device, as `stat(2)` has it.
    pub device: u64,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
    /// Requests that read.
    pub reads: Option<u64>,
    /// Requests that write, or change anything else.
    pub writes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { weight: 100, rates: Vec::new() }
    }
}

/// One figure of a device: a rate, and when it is paid for what was done.
#[derive(Debug)]
struct Bucket {
    rate: u64,
    paid: Instant,
}

impl Bucket {
    fn pay(&mut self, n: u64, now: Instant) {
        let cost = Duration::try_from_secs_f64(n as f64 / self.rate.max(1) as f64).unwrap_or(FOREVER);
        let since = now.checked_sub(BURST).map_or(now, |since| self.paid.max(since));
        self.paid = since.checked_add(cost).unwrap_or(now + FOREVER);
    }
}

/// No request costs more time than this.
const FOREVER: Duration = Duration::from_secs(3600);

/// A device's rates: of bytes and of requests, read and written.
#[derive(Debug)]
struct Device {
    number: u64,
    bytes: [Option<Bucket>; 2],
    requests: [Option<Bucket>; 2],
}

/// What a domain may do now, and what it has to wait for.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    devices: Vec<Device>,
    /// By volume: the device it is on, and the disk of that.
    places: Vec<[u64; 2]>,
    held: VecDeque<(usize, Request)>,
}

/// Whether a request reads or writes what a rate counts, and how many bytes.
fn kind(request: &Request) -> Option<(usize, u64)> {
    const READ: usize = 0;
    const WRITE: usize = 1;
    Some(match request.operation {
        Operation::Read => (READ, request.b),
        Operation::ReadDir => (READ, 0),
        Operation::Write => (WRITE, request.b),
        Operation::SetAttr
        | Operation::Make
        | Operation::Symlink
        | Operation::Unlink
        | Operation::RmDir
        | Operation::Rename
        | Operation::Link
        | Operation::Allocate
        | Operation::SetXattr
        | Operation::RemoveXattr
        | Operation::TmpFile
        | Operation::Batch => (WRITE, 0),
        _ => return None,
    })
}

impl Throttle {
    /// Of a domain whose volumes are on these devices.
    pub fn new(places: Vec<[u64; 2]>) -> Self {
        Self { places, ..Self::default() }
    }

    /// From here on it has these rates.
    pub fn set(&mut self, rates: &[Rate], now: Instant) {
        let bucket = |rate: Option<u64>| rate.filter(|r| *r > 0).map(|rate| Bucket { rate, paid: now });
        let device = |rate: &Rate| Device {
            number: rate.device,
            bytes: [bucket(rate.read_bytes), bucket(rate.written_bytes)],
            requests: [bucket(rate.reads), bucket(rate.writes)],
        };
        self.devices = rates.iter().map(device).collect();
    }

    /// Whether there is any rate, or anything is held back.
    pub fn is_any(&self) -> bool {
        !self.devices.is_empty() || !self.held.is_empty()
    }

    fn buckets(&mut self, volume: usize, kind: usize) -> impl Iterator<Item = (&mut Bucket, bool)> {
        let place = self.places.get(volume).copied().unwrap_or_default();
        self.devices.iter_mut().filter(move |device| place.contains(&device.number)).flat_map(move |device| {
            let bytes = device.bytes[kind].iter_mut().map(|bucket| (bucket, true));
            bytes.chain(device.requests[kind].iter_mut().map(|bucket| (bucket, false)))
        })
    }

    /// When a request of this volume may be done.
    fn when(&mut self, volume: usize, kind: usize) -> Option<Instant> {
        self.buckets(volume, kind).map(|(bucket, _)| bucket.paid).max()
    }

    /// Lets a request of this volume go on, or holds it back; true: it goes on.
    pub fn admit(&mut self, volume: usize, request: &Request, now: Instant) -> bool {
        let Some((kind, bytes)) = kind(request) else { return true };
        if self.when(volume, kind).is_some_and(|when| when > now) {
            self.held.push_back((volume, *request));
            return false;
        }
        self.buckets(volume, kind)
            .for_each(|(bucket, counts)| bucket.pay(if counts { bytes } else { 1 }, now));
        true
    }

    /// A request that was held back and may go on now.
    pub fn ready(&mut self, now: Instant) -> Option<Request> {
        let at = (0..self.held.len()).find(|at| {
            let (volume, request) = self.held[*at];
            kind(&request).is_none_or(|(kind, _)| self.when(volume, kind).is_none_or(|when| when <= now))
        })?;
        let (volume, request) = self.held.remove(at)?;
        // It has looked already.
        let _ = self.admit(volume, &request, now);
        Some(request)
    }

    /// When one of those that are held back may go on.
    pub fn next(&mut self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for at in 0..self.held.len() {
            let (volume, request) = self.held[at];
            let when = kind(&request).and_then(|(kind, _)| self.when(volume, kind));
            // What has no rate any more goes at once.
            let Some(when) = when else { return Some(Instant::now()) };
            next = Some(next.map_or(when, |next| next.min(when)));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, bytes: u64) -> Request {
        Request { b: bytes, ..Request::new(operation, 0) }
    }

    fn throttle(rate: Rate, begun: Instant) -> Throttle {
        let mut throttle = Throttle::new(vec![[7, 8], [9, 9]]);
        throttle.set(&[rate], begun);
        throttle
    }

    #[test]
    fn bytes_take_as_long_as_they_may() {
        let begun = Instant::now();
        let rate = Rate { device: 8, read_bytes: Some(1 << 20), ..Rate::default() };
        let mut throttle = throttle(rate, begun);
        let read = request(Operation::Read, 256 << 10);
        let (mut now, mut done) = (begun, 0);
        while now < begun + Duration::from_secs(10) {
            if throttle.held.is_empty() {
                done += u64::from(throttle.admit(0, &read, now)) * read.b;
            }
            if let Some(next) = throttle.next() {
                now = next;
                done += throttle.ready(now).unwrap().b;
            }
        }
        let most = 10 * (1 << 20);
        assert!((most..most + (512 << 10)).contains(&done), "{done}");
    }

    #[test]
    fn what_a_rate_does_not_count_goes_on() {
        let begun = Instant::now();
        let rate = Rate { device: 7, writes: Some(1), ..Rate::default() };
        let mut throttle = throttle(rate, begun);
        let write = request(Operation::Write, 1);
        assert!(throttle.admit(0, &write, begun) && !throttle.admit(0, &write, begun));
        assert!(throttle.admit(0, &request(Operation::Read, 1 << 20), begun));
        assert!(throttle.admit(0, &request(Operation::GetAttr, 0), begun));
        assert!(throttle.admit(1, &write, begun), "another device");
        assert!(!throttle.admit(0, &request(Operation::Unlink, 0), begun));
        assert_eq!(throttle.ready(begun + Duration::from_millis(500)), None);
        assert_eq!(
            throttle.ready(begun + Duration::from_secs(1)).map(|r| r.operation),
            Some(Operation::Write)
        );
        assert_eq!(throttle.ready(begun + Duration::from_secs(1)), None);
    }

    #[test]
    fn rates_that_go_hold_nothing_back() {
        let begun = Instant::now();
        let mut throttle = throttle(Rate { device: 9, writes: Some(1), ..Rate::default() }, begun);
        let write = request(Operation::Write, 1);
        assert!(throttle.admit(1, &write, begun) && !throttle.admit(1, &write, begun));
        throttle.set(&[], begun);
        assert!(throttle.is_any());
        assert_eq!(throttle.ready(begun), Some(write));
        assert!(!throttle.is_any());
    }

    #[test]
    fn what_was_not_used_is_not_kept_for_long() {
        let begun = Instant::now();
        let mut throttle = throttle(Rate { device: 7, reads: Some(100), ..Rate::default() }, begun);
        let later = begun + Duration::from_secs(60);
        let read = request(Operation::Read, 1);
        let at_once = (0..1000).take_while(|_| throttle.admit(0, &read, later)).count();
        assert!((10..=12).contains(&at_once), "{at_once}");
    }
}
