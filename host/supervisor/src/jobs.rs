//! Work that others may give up on, or that blocks; and failures of the host as problems.

use std::io;
use std::path::Path;

use doppel_api::{Code, Problem};

/// Whether the disk is full, wherever that was noticed first.
pub(crate) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::StorageFull)
}

/// A failure of the host.
pub(crate) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Problem + 'a {
    move |error| {
        let code = match error.kind() {
            io::ErrorKind::StorageFull => Code::StorageFull,
            io::ErrorKind::PermissionDenied => Code::Forbidden,
            _ => Code::Internal,
        };
        let hint =
            if code == Code::Forbidden { "; run doppeld as root or name a store of your own" } else { "" };
        Problem::new(code, format!("cannot {doing} {}: {error}{hint}", path.display()))
    }
}

/// Does something that blocks, on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => Err(Problem::new(Code::Internal, format!("a thread failed: {error}"))),
    }
}

/// Does something whole although whoever asked may go away.
pub(crate) async fn whole<T: Send + 'static>(
    job: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(job).await {
        Ok(result) => result,
        Err(error) => Err(Problem::new(Code::Internal, format!("a task failed: {error}"))),
    }
}
