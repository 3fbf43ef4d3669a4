//! The interface over HTTP/1.1: carries requests to [`crate::Supervisor`] and its answers back, and nothing but that.
//!
//! [`table`] is the interface as data: one [`route::Route`] a path and method, made of the types its handler takes and
//! gives. The router, the OpenAPI document and the request metrics all come from it, so they cannot disagree.
//! [`server`] accepts connections (Unix socket, TCP with TLS), [`service`] is the way of one request.
//!
//! Boundary: everything that comes in is bounded here (headers, bodies, times, connections) and checked
//! (`doppel_api::Validate`) before the supervisor sees it; every refusal leaves as problem+json.
//! No lock is held over an await.

mod answer;
mod meter;
mod openapi;
mod route;
mod server;
mod service;
mod table;
pub mod token;

pub mod idempotency;
#[cfg(test)]
mod tests;

/// The interface as an OpenAPI 3.1 document.
#[must_use]
pub fn document() -> serde_json::Value {
    openapi::document(&table::routes())
}

pub use server::{Ending, Listen, Listener, Server, Source, Tls};
