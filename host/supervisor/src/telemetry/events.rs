//! What happened: the last ten thousand events, and those who listen.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::SystemTime;

use doppel_api::{Event, EventKind, EventOptions};
use tokio::sync::broadcast;

use crate::streams::{self, LineStream};
use crate::{locked, time};

/// How many are kept.
const KEPT: usize = 10_000;
/// By how many a listener may be behind before it misses some.
const BEHIND: usize = 4096;

#[derive(Debug)]
pub(crate) struct Events {
    kept: Mutex<(u64, VecDeque<Event>)>,
    listeners: broadcast::Sender<Event>,
}

impl Events {
    pub fn new() -> Self {
        Self { kept: Mutex::default(), listeners: broadcast::channel(BEHIND).0 }
    }

    /// Notes that something happened.
    pub fn add(&self, kind: EventKind, subject: &str, name: Option<&str>, attributes: &[(&str, String)]) {
        let mut kept = locked(&self.kept);
        kept.0 += 1;
        let attributes: BTreeMap<String, String> =
            attributes.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let event = Event {
            sequence: kept.0,
            at: time::now(),
            kind,
            subject: subject.to_owned(),
            name: name.map(str::to_owned),
            attributes,
        };
        tracing::debug!(?kind, subject, "event");
        if kept.1.len() == KEPT {
            kept.1.pop_front();
        }
        kept.1.push_back(event.clone());
        // Nobody may be listening. Sent under the lock, so that they come in order.
        let _ = self.listeners.send(event);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        locked(&self.kept).0
    }

    /// Events as `which` says; `subject` is resolved already.
    pub fn listen(&self, which: &EventOptions) -> LineStream<Event> {
        let since = which.since.as_deref().and_then(time::parse);
        let until = which.until.as_deref().and_then(time::parse);
        let subject = which.subject.clone();
        let wanted =
            move |e: &Event| subject.as_ref().is_none_or(|s| e.subject == *s || e.name.as_ref() == Some(s));
        let kept = locked(&self.kept);
        let mut live = self.listeners.subscribe();
        let past: Vec<Event> = match since {
            Some(since) => {
                let after = |e: &&Event| time::parse(&e.at).is_some_and(|at| at >= since);
                kept.1.iter().filter(after).filter(|e| wanted(e)).cloned().collect()
            }
            None => Vec::new(),
        };
        drop(kept);
        streams::produce(move |out| async move {
            for event in past {
                if until.is_some_and(|u| time::parse(&event.at).is_some_and(|at| at > u))
                    || !out.give(event).await
                {
                    return;
                }
            }
            loop {
                let next = live.recv();
                let left = until.map(|u| u.duration_since(SystemTime::now()).unwrap_or_default());
                let event = tokio::select! {
                    event = next => event,
                    () = streams::sleep(left) => return,
                    () = out.closed() => return,
                };
                match event {
                    Ok(event) if wanted(&event) => {
                        if !out.give(event).await {
                            return;
                        }
                    }
                    // A gap in the sequence says it.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        })
    }
}
