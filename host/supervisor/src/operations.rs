//! Things that take long: started, watched, cancelled.
//!
//! An operation runs in a task of its own and outlives the request that started it, but not the supervisor: one that ran
//! when the supervisor died is found failed by the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use doppel_api::{Code, Operation, OperationState, Problem, Progress};
use tokio::sync::watch;

use crate::locked;
use crate::state::{StateStore, Table};

/// How many that have ended are kept.
const KEPT: usize = 1000;

#[derive(Debug)]
pub(crate) struct Known {
    order: u64,
    status: watch::Sender<Operation>,
    cancel: watch::Sender<bool>,
}

/// All operations.
#[derive(Debug)]
pub(crate) struct Operations(Mutex<(u64, BTreeMap<String, Arc<Known>>)>);

/// How an operation tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct Handle(Arc<Known>);

impl Handle {
    /// Of an operation that runs.
    pub fn new(known: &Arc<Known>) -> Self {
        Self(known.clone())
    }

    /// Says how far it is.
    pub fn progress(&self, progress: Progress) {
        self.0.status.send_modify(|operation| operation.progress = progress);
    }

    /// Its id.
    pub fn id(&self) -> String {
        self.0.status.borrow().id.clone()
    }

    /// Waits until it is to end.
    pub async fn cancelled(&self) {
        // The sender lives as long as this.
        let _ = self.0.cancel.subscribe().wait_for(|c| *c).await;
    }
}

impl Operations {
    /// With what is left of former ones; one may go on.
    pub fn new(state: &StateStore, rows: Vec<(String, Operation)>, goes_on: Option<&str>) -> Self {
        let operations = Self(Mutex::default());
        for (_, mut operation) in rows {
            if operation.state == OperationState::Running && goes_on != Some(&operation.id) {
                operation.state = OperationState::Failed;
                operation.problem = Some(Problem::new(
                    Code::Internal,
                    "the supervisor ended before it was done; start it again",
                ));
                state.put_soon(Table::Operations, &operation.id, &operation);
            }
            operations.add(operation);
        }
        operations
    }

    /// One more.
    pub fn add(&self, operation: Operation) -> Arc<Known> {
        let mut all = locked(&self.0);
        all.0 += 1;
        let id = operation.id.clone();
        let known = Arc::new(Known {
            order: all.0,
            status: watch::channel(operation).0,
            cancel: watch::channel(false).0,
        });
        all.1.insert(id, known.clone());
        known
    }

    /// The one with this id.
    pub fn get(&self, id: &str) -> Result<Arc<Known>, Problem> {
        let none = || Problem::new(Code::OperationNotFound, format!("no operation {id:?}"));
        locked(&self.0).1.get(id).cloned().ok_or_else(none)
    }

    /// How many of a kind run.
    pub fn under_way_of(&self, kind: &str) -> u64 {
        let is = |o: &Operation| o.state == OperationState::Running && o.kind == kind;
        locked(&self.0).1.values().filter(|k| is(&k.status.borrow())).count() as u64
    }

    /// How many run but those of a kind.
    pub fn under_way(&self, but: &str) -> u64 {
        let is = |o: &Operation| o.state == OperationState::Running && o.kind != but;
        locked(&self.0).1.values().filter(|k| is(&k.status.borrow())).count() as u64
    }

    pub fn list(&self) -> Vec<Operation> {
        let all = locked(&self.0);
        let mut known: Vec<_> = all.1.values().collect();
        known.sort_by_key(|k| std::cmp::Reverse(k.order));
        known.into_iter().map(|k| k.status.borrow().clone()).collect()
    }

    /// An operation; if asked, when it has ended.
    pub async fn status(&self, id: &str, wait: bool) -> Result<Operation, Problem> {
        let known = self.get(id)?;
        let mut status = known.status.subscribe();
        if wait {
            // The sender lives as long as `known`.
            let _ = status.wait_for(|o| o.state != OperationState::Running).await;
        }
        let operation = status.borrow().clone();
        Ok(operation)
    }

    /// Asks an operation to end.
    pub fn cancel(&self, id: &str) -> Result<Operation, Problem> {
        let known = self.get(id)?;
        known.cancel.send_replace(true);
        let operation = known.status.borrow().clone();
        Ok(operation)
    }

    /// Notes how one ended; the oldest beyond what is kept are forgotten.
    pub fn conclude(&self, state: &StateStore, known: &Known, result: Result<serde_json::Value, Problem>) {
        known.status.send_modify(|o| match result {
            Ok(value) => {
                o.state = OperationState::Succeeded;
                o.result = Some(value);
            }
            Err(problem) => {
                let cancelled = problem.code == Code::Cancelled;
                o.state = if cancelled { OperationState::Cancelled } else { OperationState::Failed };
                o.problem = Some(problem);
            }
        });
        let done = known.status.borrow().clone();
        state.put_soon(Table::Operations, &done.id, &done);
        self.forget_old(state);
    }

    fn forget_old(&self, state: &StateStore) {
        let mut all = locked(&self.0);
        let ended = |k: &&Arc<Known>| k.status.borrow().state != OperationState::Running;
        let mut orders: Vec<u64> = all.1.values().filter(ended).map(|k| k.order).collect();
        if orders.len() <= KEPT {
            return;
        }
        orders.sort_unstable();
        let oldest = orders[orders.len() - KEPT];
        all.1.retain(|id, known| {
            let keep = known.order >= oldest || known.status.borrow().state == OperationState::Running;
            if !keep {
                state.remove_soon(Table::Operations, id);
            }
            keep
        });
    }
}
