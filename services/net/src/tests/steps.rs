//! The longest steps of work that domains can ask for are far below what the watchdog calls a hang.

use doppel_service::Heartbeat;
use rustix::process::Resource;
use rustix::time::ClockId;

use super::datagrams::{Gram, any, host, host_socket};
use super::*;

/// The watchdog's budget is twice as much of a process' own CPU time.
const MOST: Duration = Duration::from_millis(25);
const SOCKETS: u32 = 8000;
const RULES: usize = 4096;

/// How often the rules are set: the host's own work, or another machine's, may fall into a step and count as its CPU time.
const ROUNDS: usize = 5;

/// CPU time since the last call.
fn step(last: &mut Duration) -> Duration {
    let now = Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    now - std::mem::replace(last, now)
}

/// As many rules as may be, of which the last one fits.
fn many() -> Rules {
    let other = |n: usize| format!("192.0.{}.{}", 2 + n / 256, n % 256).parse().unwrap();
    let mut outbound: Vec<Rule> = (0..RULES - 1).map(|n| Rule::new(other(n), Action::Deny)).collect();
    outbound.push(Rule::new("10.88.0.1".parse().unwrap(), Action::Allow));
    Rules { outbound, ..Rules::default() }
}

#[test]
fn thousands_of_closes_and_rules_at_once_are_short_steps() {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let sockets = limit.maximum.map_or(SOCKETS, |most| SOCKETS.min(u32::try_from(most / 2).unwrap()));
    let (_ear, port) = host_socket();
    let mut engine = Engine::new().unwrap();
    let mut g = Guest::new(&mut engine, 1, allowed("10.88.0.1"), Vec::new());
    for n in 0..sockets {
        let mut gram = Gram::new(&mut engine, &mut g, n, any(5000));
        gram.send(&g, host(port), b"hello");
    }
    until(&mut engine, |_| (g.counts.read().sent.packets == u64::from(sockets)).then_some(()));
    let mut last = Duration::ZERO;
    let (mut longest, mut beats) = (Duration::MAX, 0);
    for _ in 0..ROUNDS {
        // The rules are an order, in which there are steps.
        let client = engine.clients.iter_mut().flatten().next().unwrap();
        let mut most = Duration::ZERO;
        step(&mut last);
        client.set_rules(many(), &mut || {
            most = most.max(step(&mut last));
            beats += 1;
        });
        longest = longest.min(most.max(step(&mut last)));
    }
    assert!(beats >= ROUNDS * sockets as usize / 8, "{beats} beats");
    assert!(longest < MOST, "rules: {longest:?}");
    let (mut asked, mut closed, mut turns) = (0, 0, Vec::new());
    let end = Instant::now() + Duration::from_secs(60);
    while closed < sockets {
        while asked < sockets && asked - closed < 250 {
            g.ask(Request::Close { socket: asked, reset: false });
            asked += 1;
        }
        step(&mut last);
        engine.turn(Some(Duration::ZERO)).unwrap();
        turns.push(step(&mut last));
        while g.answer().is_some() {
            closed += 1;
        }
        assert!(Instant::now() < end, "{closed} are closed");
    }
    // All but the few into which something else may have fallen.
    turns.sort_unstable();
    let long = turns[turns.len() * 9 / 10];
    assert!(long < MOST, "closes: {long:?} of {} turns", turns.len());
}

#[test]
fn the_longest_step_is_told() {
    let heart = Heartbeat::new().unwrap();
    let alarm = heart.alarm().try_clone_to_owned().unwrap();
    let mut theirs = Heartbeat::open(heart.file().try_clone_to_owned().unwrap(), alarm).unwrap();
    theirs.beat();
    std::thread::sleep(Duration::from_millis(2));
    theirs.rest();
    let longest = heart.longest();
    assert!(longest >= Duration::from_millis(2));
    std::thread::sleep(longest + Duration::from_millis(2));
    theirs.beat();
    assert_eq!(heart.longest(), longest, "to wait for work is no step");
    heart.begin();
    assert_eq!(heart.longest(), Duration::ZERO);
}
