//! Answers: what handlers give, as HTTP sees it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use doppel_api::{NDJSON, PROBLEM_JSON, Problem};
use futures_core::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::StatusCode;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use crate::{ByteStream, LineStream};

/// Body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Problem>;
/// An answer.
pub(super) type Response = hyper::Response<Body>;

/// Lines are put together up to this size while more are ready.
const PIECE: usize = 64 << 10;

/// What a handler gave.
pub(super) enum Answer {
    /// Nothing to say.
    Empty,
    /// JSON, as it may be kept for an idempotency key.
    Json { status: u16, body: String },
    /// Plain text.
    Text(String),
    /// A stream, of lines of JSON or of bytes.
    Stream { kind: &'static str, body: Body },
}

impl Answer {
    /// A value as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(value)
            .map_err(|e| Problem::new(doppel_api::Code::Internal, format!("the answer has no JSON: {e}")))?;
        Ok(Self::Json { status, body })
    }

    /// The status it is sent with.
    pub fn status(&self) -> u16 {
        match self {
            Self::Empty => 204,
            Self::Json { status, .. } => *status,
            Self::Text(_) | Self::Stream { .. } => 200,
        }
    }

    /// The answer as it is sent.
    pub fn into_response(self) -> Response {
        let status = self.status();
        let (kind, body) = match self {
            Self::Empty => (None, Empty::new().map_err(|e| match e {}).boxed_unsync()),
            Self::Json { body, .. } if status >= 400 => (Some(PROBLEM_JSON), whole(body)),
            Self::Json { body, .. } => (Some("application/json"), whole(body)),
            Self::Text(text) => (Some("text/plain; version=0.0.4; charset=utf-8"), whole(text)),
            Self::Stream { kind, body } => (Some(kind), body),
        };
        let mut response = hyper::Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(kind) = kind {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        response
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        // A problem is strings and numbers: it has JSON.
        let body = serde_json::to_string(&problem).unwrap_or_default();
        Self::Json { status: problem.status, body }
    }
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync()
}

/// A stream of values as lines of JSON.
pub(super) fn lines<T: Serialize + 'static>(stream: LineStream<T>) -> Answer {
    Answer::Stream { kind: NDJSON, body: Lines { stream, ended: false }.boxed_unsync() }
}

/// A stream of bytes.
pub(super) fn bytes(kind: &'static str, stream: ByteStream) -> Answer {
    Answer::Stream { kind, body: Pieces(stream).boxed_unsync() }
}

/// Lines of JSON; polled only when the connection can take more, which is what holds the producer back.
struct Lines<T> {
    stream: LineStream<T>,
    ended: bool,
}

impl<T: Serialize> hyper::body::Body for Lines<T> {
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let mut piece = BytesMut::new();
        while !self.ended && piece.len() < PIECE {
            match self.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(value)) => {
                    if let Err(e) = serde_json::to_writer((&mut piece).writer(), &value) {
                        let text = format!("a line has no JSON: {e}");
                        return Poll::Ready(Some(Err(Problem::new(doppel_api::Code::Internal, text))));
                    }
                    piece.extend_from_slice(b"\n");
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Pending if piece.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        match piece.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Ready(Some(Ok(Frame::data(piece.freeze())))),
        }
    }
}

struct Pieces(ByteStream);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        self.0.as_mut().poll_next(cx).map(|next| next.map(|piece| piece.map(Frame::data)))
    }
}

/// The body of a request as the supervisor takes it.
pub(super) struct Incoming<B>(pub B);

impl<B> Stream for Incoming<B>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    type Item = Result<Bytes, Problem>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match Pin::new(&mut self.0).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(e))) => {
                    let text = format!("the body ended early: {e}");
                    let problem = Problem::new(doppel_api::Code::InvalidRequest, text);
                    return Poll::Ready(Some(Err(problem)));
                }
                // Trailers say nothing to us.
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}
