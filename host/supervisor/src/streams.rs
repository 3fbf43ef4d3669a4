//! Streams that a task feeds.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use doppel_api::Problem;
use futures_core::Stream;
use tokio::sync::mpsc;

/// Lines of a stream; each becomes one line of JSON.
pub type LineStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;
/// Bytes in pieces: bodies, tar streams. A failure ends it.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, Problem>> + Send>>;

/// How far a task may be ahead of its reader.
const AHEAD: usize = 64;

/// Where a task puts what the reader gets.
#[derive(Debug)]
pub(crate) struct Out<T>(mpsc::Sender<T>);

impl<T> Out<T> {
    /// Gives an item, when the reader is ready for it; false if there is no reader any more.
    pub async fn give(&self, item: T) -> bool {
        self.0.send(item).await.is_ok()
    }

    /// From another thread.
    pub fn give_blocking(&self, item: T) -> bool {
        self.0.blocking_send(item).is_ok()
    }

    /// Waits until there is no reader any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

struct Fed<T>(mpsc::Receiver<T>);

impl<T> Stream for Fed<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}

/// A stream of what `task` gives; ends with it.
pub(crate) fn produce<T, F>(task: impl FnOnce(Out<T>) -> F) -> LineStream<T>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    produce_ahead(AHEAD, task)
}

/// The same of large items, of which only so many may be on their way.
pub(crate) fn produce_ahead<T, F>(ahead: usize, task: impl FnOnce(Out<T>) -> F) -> LineStream<T>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(ahead);
    tokio::spawn(task(Out(sender)));
    Box::pin(Fed(receiver))
}

/// The next item of a stream.
pub(crate) async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin + ?Sized)) -> Option<T> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Sleeps so long; for ever without a time.
pub(crate) async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
