//! Which domains there are, of many.

use doppel_api::{self as api, Code, DomainState, Problem};

use crate::core::Core;
use crate::domains::{Age, Row, age, is_live};
use crate::locked;
use crate::telemetry::accounting::state_name;

/// Whether a domain is one of those that are asked for.
fn is_wanted(row: &Row, options: &api::ListOptions, labels: &[&str]) -> bool {
    let has = |label: &&str| match label.split_once('=') {
        Some((key, value)) => row.config.labels.get(key).is_some_and(|v| v == value),
        None => row.config.labels.contains_key(*label),
    };
    // One that hibernates or waits for memory goes on when it is wanted.
    let goes_on = matches!(row.state, DomainState::Restarting | DomainState::Hibernated);
    let shown = options.all || is_live(row.state) || goes_on || row.pending.is_some();
    options.state.as_deref().map_or(shown, |s| state_name(row.state) == s)
        && labels.iter().all(has)
        && options.name.as_ref().is_none_or(|n| row.name.contains(n.as_str()))
}

/// As many are looked at before others have a turn with the table.
const CHUNK: usize = 1024;

impl Core {
    /// Those that are asked for, the newest first. Only these are described, and those before `after` are not looked at.
    pub fn list(&self, options: &api::ListOptions) -> Result<Vec<api::Domain>, Problem> {
        let labels: Vec<&str> = options.label.iter().flat_map(|l| l.split(',')).collect();
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut place = options.after.as_ref().map(|after| self.place_of(after)).transpose()?;
        let mut page = Vec::new();
        loop {
            let chunk = locked(&self.domains).behind(place.as_ref(), CHUNK);
            for entry in &chunk {
                if page.len() == limit {
                    return Ok(page);
                }
                let wanted = is_wanted(&locked(&entry.row), options, &labels);
                if wanted {
                    page.push(entry.describe(&self.volumes));
                }
            }
            match chunk.last() {
                Some(last) if chunk.len() == CHUNK => place = Some(age(last)),
                _ => return Ok(page),
            }
        }
    }

    fn place_of(&self, after: &str) -> Result<Age, Problem> {
        let none = || {
            Problem::new(
                Code::DomainNotFound,
                format!("after: no domain {after:?} among these; list from the first on"),
            )
        };
        locked(&self.domains).age_of(after).ok_or_else(none)
    }
}
