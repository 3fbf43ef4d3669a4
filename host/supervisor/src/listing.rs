//! Which domains there are, of many.

use std::cmp::Reverse;
use std::sync::Arc;

use doppel_api::{self as api, Code, DomainState, Problem};

use crate::core::Core;
use crate::domains::{Entry, Row, is_live};
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

impl Core {
    /// Those that are asked for, the newest first. Only these are described, which is most of the work.
    pub fn list(&self, options: &api::ListOptions) -> Result<Vec<api::Domain>, Problem> {
        let labels: Vec<&str> = options.label.iter().flat_map(|l| l.split(',')).collect();
        let mut found: Vec<(Reverse<String>, Arc<Entry>)> = Vec::new();
        for entry in locked(&self.domains).by_id.values() {
            let row = locked(&entry.row);
            if is_wanted(&row, options, &labels) {
                found.push((Reverse(row.created_at.clone()), entry.clone()));
            }
        }
        found.sort_by(|(a, one), (b, other)| (a, &one.id).cmp(&(b, &other.id)));
        let behind = match &options.after {
            None => 0,
            Some(after) => {
                let at = found.iter().position(|(_, entry)| entry.id == *after).ok_or_else(|| {
                    Problem::new(
                        Code::DomainNotFound,
                        format!("after: no domain {after:?} among these; list from the first on"),
                    )
                })?;
                at + 1
            }
        };
        let page = found.into_iter().skip(behind).take(options.limit.unwrap_or(usize::MAX));
        Ok(page.map(|(_, entry)| entry.describe(&self.volumes)).collect())
    }
}
