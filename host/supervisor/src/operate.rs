//! Operations are started.

use std::sync::Arc;

use doppel_api::{Operation, OperationState, Problem, Progress};

use crate::core::Core;
use crate::domains::names;
use crate::operations::Handle;
use crate::state::Table;

impl Core {
    /// Starts an operation; `job` does it, and says what it gave.
    pub async fn operate<F>(
        self: &Arc<Self>,
        kind: &str,
        job: impl FnOnce(Handle) -> F,
    ) -> Result<Operation, Problem>
    where
        F: Future<Output = Result<serde_json::Value, Problem>> + Send + 'static,
    {
        let operation = Operation {
            id: names::id(),
            kind: kind.into(),
            state: OperationState::Running,
            progress: Progress::default(),
            result: None,
            problem: None,
        };
        self.state.put(Table::Operations, &operation.id, &operation).await?;
        let known = self.operations.add(operation.clone());
        let job = job(Handle::new(&known));
        let core = self.clone();
        tokio::spawn(async move {
            let result = job.await;
            core.operations.conclude(&core.state, &known, result);
        });
        Ok(operation)
    }

    /// Notes how an operation ended that the program before has begun.
    pub fn conclude(&self, id: &str, result: Result<serde_json::Value, Problem>) {
        match self.operations.get(id) {
            Ok(known) => self.operations.conclude(&self.state, &known, result),
            Err(problem) => tracing::error!("{problem}"),
        }
    }
}
