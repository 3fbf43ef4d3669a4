//! The same asked of many domains: of some at a time, with the answers in the order of their names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

/// How many are asked at a time.
const AT_A_TIME: usize = 8;

/// Asks all of them, and has `take` hear the answers in order, until it fails: then no further ones are asked.
pub fn in_order<T: Send, E>(
    names: &[String],
    ask: impl Fn(&str) -> T + Sync,
    mut take: impl FnMut(&str, T) -> Result<(), E>,
) -> Result<(), E> {
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (said, heard) = channel();
    let work = |said: Sender<(usize, T)>| {
        while !over.load(Ordering::Relaxed) {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(i) else { break };
            if said.send((i, ask(name))).is_err() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(names.len()) {
            let said = said.clone();
            // Fewer do as well; without any, each is asked below.
            if std::thread::Builder::new().spawn_scoped(scope, || work(said)).is_err() {
                break;
            }
        }
        drop(said);
        let mut early = BTreeMap::new();
        for (i, name) in names.iter().enumerate() {
            let answer = loop {
                if let Some(answer) = early.remove(&i) {
                    break answer;
                }
                match heard.recv() {
                    Ok((at, answer)) => drop(early.insert(at, answer)),
                    Err(_) => break ask(name),
                }
            };
            let taken = take(name, answer);
            if taken.is_err() {
                over.store(true, Ordering::Relaxed);
                return taken;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| i.to_string()).collect()
    }

    #[test]
    fn answers_come_in_order() {
        for n in [0, 1, 7, 100] {
            let mut heard = Vec::new();
            let ask = |name: &str| {
                // The first take longest.
                std::thread::sleep(std::time::Duration::from_micros(500 / (1 + name.len() as u64)));
                format!("{name}!")
            };
            let done = in_order(&names(n), ask, |name, answer| {
                assert_eq!(answer, format!("{name}!"));
                heard.push(name.to_owned());
                Ok::<_, ()>(())
            });
            assert_eq!((done, heard), (Ok(()), names(n)));
        }
    }

    #[test]
    fn none_is_asked_after_a_failure() {
        let asked = AtomicUsize::new(0);
        let ask = |_: &str| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            asked.fetch_add(1, Ordering::Relaxed)
        };
        assert_eq!(in_order(&names(1000), ask, |_, _| Err(5)), Err(5));
        assert!(asked.into_inner() <= 3 * AT_A_TIME);
    }
}
