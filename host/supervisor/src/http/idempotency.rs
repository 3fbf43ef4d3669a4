//! Answers kept for idempotency keys: a request that is sent again gets the first one's.

use std::collections::HashMap;
use std::sync::Mutex;

use doppel_api::{Code, Problem};
use serde::{Deserialize, Serialize};

use crate::locked;
use crate::state::{StateStore, Table};
use crate::time::seconds_now;

/// How long they are kept, in seconds.
const KEPT: f64 = 86_400.0;
/// Most that are kept; above it the oldest go.
const MOST: usize = 10_000;
/// Longest key.
pub(crate) const LONGEST: usize = 256;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Digest of the request.
    request: String,
    status: u16,
    body: String,
    /// Seconds since 1970.
    at: f64,
}

#[derive(Debug)]
pub(crate) struct IdempotencyKeys(Mutex<HashMap<String, Kept>>);

impl IdempotencyKeys {
    pub fn new(rows: Vec<(String, Kept)>) -> Self {
        Self(Mutex::new(rows.into_iter().collect()))
    }

    /// The answer to this request, if it was given before.
    pub fn get(&self, key: &str, request: &str) -> Result<Option<(u16, String)>, Problem> {
        if key.is_empty() || key.len() > LONGEST {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("an idempotency key has 1 to {LONGEST} characters"),
            ));
        }
        match locked(&self.0).get(key).filter(|k| seconds_now() - k.at < KEPT) {
            Some(kept) if kept.request == request => Ok(Some((kept.status, kept.body.clone()))),
            Some(_) => Err(Problem::new(
                Code::IdempotencyMismatch,
                "this idempotency key was used for another request; use a new one",
            )),
            None => Ok(None),
        }
    }

    /// Keeps an answer; the future is done when it is durable.
    pub fn put(
        &self,
        state: &StateStore,
        key: &str,
        request: &str,
        status: u16,
        body: &str,
    ) -> impl Future<Output = Result<(), Problem>> + use<> {
        let kept = Kept { request: request.into(), status, body: body.into(), at: seconds_now() };
        let saved = state.put(Table::Answers, key, &kept);
        locked(&self.0).insert(key.into(), kept);
        saved
    }

    /// Forgets those that are too old or too many.
    pub fn forget_old(&self, state: &StateStore) {
        let mut all = locked(&self.0);
        let mut oldest = seconds_now() - KEPT;
        if all.len() > MOST {
            let mut times: Vec<f64> = all.values().map(|k| k.at).collect();
            times.sort_by(f64::total_cmp);
            oldest = oldest.max(times[times.len() - MOST]);
        }
        all.retain(|key, kept| {
            let keep = kept.at >= oldest;
            if !keep {
                state.remove_soon(Table::Answers, key);
            }
            keep
        });
    }
}
