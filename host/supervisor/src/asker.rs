//! Who wants something of the supervisor.

tokio::task_local! {
    /// Who sent the request that is carried out, and its idempotency key and digest. What it makes is marked with that,
    /// so that it is not made twice if this process dies before it could keep the answer.
    pub(crate) static REQUEST: String;
    /// On whose behalf it is carried out.
    pub(crate) static OWNER: String;
}

/// The owner of what nobody says whose it is.
pub(crate) fn root() -> String {
    "uid 0".into()
}

/// Who wants something made.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// A user of this host, or whose a token is.
    pub owner: String,
    /// The request, if it may come again.
    pub request: Option<String>,
}

impl Asker {
    /// Of the request that is carried out.
    pub fn now() -> Self {
        let owner = OWNER.try_with(Clone::clone).unwrap_or_else(|_| root());
        Self { owner, request: REQUEST.try_with(Clone::clone).ok() }
    }
}
