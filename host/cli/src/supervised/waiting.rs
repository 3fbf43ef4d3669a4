//! Says that a start waits for memory, while it does.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use doppel_client::Client;

use crate::terminal::out::tell;

/// A start that takes longer is asked about.
const USUAL: Duration = Duration::from_millis(300);
/// Between two questions.
const AGAIN: Duration = Duration::from_secs(1);

/// Does something that lets a domain start or wake. If it has to wait for memory, standard error says so, once.
pub fn told<T>(client: &Client, domain: &str, act: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, over) = channel::<()>();
        scope.spawn(move || {
            let mut pause = USUAL;
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // Whether it fails, whoever waits will hear.
                if let Ok(found) = client.inspect(domain)
                    && let Some(waiting) = found.waiting
                {
                    let wanted = crate::standalone::image::bytes(waiting.memory_bytes);
                    let until = waiting.until.map(|at| format!(", until {at} at most")).unwrap_or_default();
                    tell!("doppel: domain {} waits for memory ({wanted}{until})", found.name);
                    return;
                }
                pause = AGAIN;
            }
        });
        let result = act();
        drop(done);
        result
    })
}
