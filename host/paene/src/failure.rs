//! Errors in words: they go to the domain's log.

/// Why something could not be done, in words.
pub(crate) type Failure = String;

/// Says what an error is about.
pub(crate) fn cannot<E: std::fmt::Display>(doing: &str) -> impl FnOnce(E) -> Failure + '_ {
    move |error| format!("cannot {doing}: {error}")
}
