//! Routes: a method, a path, and a handler with the types it takes and gives.
//!
//! A handler is a function of ([`Called`], query, body). What query, body and answer are, their types say: [`Query`],
//! [`Take`] and [`Give`] read, write and describe them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use doppel_api::{Code, NDJSON, Problem, Validate};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::answer::{self, Answer};
use super::openapi::Schemas;
use crate::{ByteStream, LineStream};

/// A request on its way to a handler.
pub(super) struct Called<S> {
    /// What it is asked of.
    pub state: Arc<S>,
    /// The variable part of the path, decoded; empty if it has none.
    pub name: String,
}

/// Largest body that is read whole.
pub(super) const MAX_JSON: usize = 1 << 20;

/// How a handler wants the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// Not at all.
    None,
    /// Whole, at most [`MAX_JSON`].
    Whole,
    /// As it comes.
    Stream,
}

/// The body as [`BodyKind`] asked.
pub(super) enum Taken {
    /// Read whole, or none.
    Whole(Bytes),
    /// As it comes.
    Stream(ByteStream),
}

type Pending = Pin<Box<dyn Future<Output = Result<Answer, Problem>> + Send>>;

/// Carries a request out: query and body are read, the handler called, its answer made.
type Carry<S> = dyn Fn(Called<S>, &str, Taken) -> Pending + Send + Sync;

/// One method of one path.
pub(super) struct Route<S> {
    pub method: Method,
    pub path: &'static str,
    pub summary: &'static str,
    pub body: BodyKind,
    /// Parameters, body and answers for the document.
    pub describe: fn(&mut Schemas) -> Described,
    /// Carries a request out.
    pub call: Box<Carry<S>>,
}

/// What the document says of a route.
pub(super) struct Described {
    pub query: Vec<Value>,
    pub body: Option<Value>,
    pub status: u16,
    pub answer: Option<Value>,
}

impl<S: Send + Sync + 'static> Route<S> {
    /// A route of a handler.
    pub fn new<Q, B, G, F, R>(method: Method, path: &'static str, summary: &'static str, handler: F) -> Self
    where
        Q: Query,
        B: Take,
        G: Give,
        F: Fn(Called<S>, Q, B) -> R + Send + Sync + 'static,
        R: Future<Output = Result<G, Problem>> + Send + 'static,
    {
        let call = move |called: Called<S>, query: &str, taken: Taken| -> Pending {
            let read = Q::read(query).and_then(|q| B::take(taken).map(|b| (q, b)));
            match read {
                Ok((query, body)) => {
                    let answer = handler(called, query, body);
                    Box::pin(async move { answer.await?.give() })
                }
                Err(problem) => Box::pin(std::future::ready(Err(problem))),
            }
        };
        Self { method, path, summary, body: B::KIND, describe: describe::<Q, B, G>, call: Box::new(call) }
    }

    /// How well a path fits: the number of literal segments, and the variable one.
    pub fn fits<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let (mut ours, mut theirs) = (self.path.split('/'), path.split('/'));
        let (mut literal, mut variable) = (0, "");
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some((literal, variable)),
                (Some(our), Some(their)) if our == their => literal += 1,
                (Some(our), Some(their)) if our.starts_with('{') && !their.is_empty() => variable = their,
                _ => return None,
            }
        }
    }
}

fn describe<Q: Query, B: Take, G: Give>(schemas: &mut Schemas) -> Described {
    Described {
        query: Q::describe(),
        body: B::describe(schemas),
        status: G::STATUS,
        answer: G::describe(schemas),
    }
}

/// What comes behind the question mark.
pub(super) trait Query: Sized + Send + 'static {
    /// Reads it.
    fn read(text: &str) -> Result<Self, Problem>;
    /// Parameters for the document.
    fn describe() -> Vec<Value>;
}

/// Nothing.
impl Query for () {
    fn read(text: &str) -> Result<Self, Problem> {
        match text.split(['=', '&']).next() {
            None | Some("") => Ok(()),
            Some(name) => Err(Problem::new(
                Code::InvalidRequest,
                format!("{name:?} in the query: this path takes no parameters"),
            )),
        }
    }
    fn describe() -> Vec<Value> {
        Vec::new()
    }
}

/// The fields of a structure.
pub(super) struct Options<T>(pub T);

impl<T: DeserializeOwned + IntoParams + Send + 'static> Query for Options<T> {
    fn read(text: &str) -> Result<Self, Problem> {
        let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
        serde_path_to_error::deserialize(reader).map(Self).map_err(|e| {
            let text = format!("in the query: {}{}", field(e.path()), e.inner());
            Problem::new(Code::InvalidRequest, text)
        })
    }
    fn describe() -> Vec<Value> {
        let needed = serde_urlencoded::from_str::<T>("").is_err();
        let mut list = Vec::new();
        for parameter in T::into_params(|| Some(utoipa::openapi::path::ParameterIn::Query)) {
            let mut value = json!(parameter);
            if !needed {
                value["required"] = json!(false);
            }
            list.push(value);
        }
        list
    }
}

/// Where a fault is, to put before what it is.
fn field(path: &serde_path_to_error::Path) -> String {
    match path.to_string().as_str() {
        "." | "?" => String::new(),
        field => format!("{field}: "),
    }
}

/// The body of a request.
pub(super) trait Take: Sized + Send + 'static {
    /// How it is wanted.
    const KIND: BodyKind;
    /// Reads it.
    fn take(taken: Taken) -> Result<Self, Problem>;
    /// The request body for the document.
    fn describe(schemas: &mut Schemas) -> Option<Value>;
}

/// None, or one that is ignored.
impl Take for () {
    const KIND: BodyKind = BodyKind::None;
    fn take(_: Taken) -> Result<Self, Problem> {
        Ok(())
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        None
    }
}

/// A value as JSON.
pub(super) struct Json<T>(pub T);

impl<T: DeserializeOwned + ToSchema + Validate + Send + 'static> Take for Json<T> {
    const KIND: BodyKind = BodyKind::Whole;
    fn take(taken: Taken) -> Result<Self, Problem> {
        let body = match taken {
            Taken::Whole(body) => body,
            Taken::Stream(_) => Bytes::new(),
        };
        // Where all has a default, nothing may be sent.
        let text = if body.is_empty() { b"{}" as &[u8] } else { &body };
        // Serde would take an array of the fields' values too.
        if text.trim_ascii_start().first().is_some_and(|b| *b != b'{') {
            return Err(Problem::new(Code::InvalidRequest, "the body is no JSON object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value: T = serde_path_to_error::deserialize(&mut reader)
            .map_err(|e| Problem::new(Code::InvalidRequest, format!("{}{}", field(e.path()), e.inner())))?;
        reader
            .end()
            .map_err(|e| Problem::new(Code::InvalidRequest, format!("behind the JSON of the body: {e}")))?;
        value.validate()?;
        Ok(Self(value))
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        let required = serde_json::from_str::<T>("{}").is_err();
        Some(json!({
            "required": required,
            "content": {"application/json": {"schema": schemas.refer::<T>()}},
        }))
    }
}

/// Bytes as they come.
pub(super) struct Raw(pub ByteStream);

impl Take for Raw {
    const KIND: BodyKind = BodyKind::Stream;
    fn take(taken: Taken) -> Result<Self, Problem> {
        match taken {
            Taken::Stream(stream) => Ok(Self(stream)),
            Taken::Whole(_) => Err(Problem::new(Code::Internal, "the body was read before")),
        }
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        Some(
            json!({"required": true, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}),
        )
    }
}

/// What a handler gives.
pub(super) trait Give: Send + 'static {
    /// Status of success.
    const STATUS: u16 = 200;
    /// The answer.
    fn give(self) -> Result<Answer, Problem>;
    /// Content of the answer for the document.
    fn describe(schemas: &mut Schemas) -> Option<Value>;
}

impl Give for () {
    const STATUS: u16 = 204;
    fn give(self) -> Result<Answer, Problem> {
        Ok(Answer::Empty)
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        None
    }
}

impl<T: Serialize + ToSchema + Send + 'static> Give for Json<T> {
    fn give(self) -> Result<Answer, Problem> {
        Answer::json(Self::STATUS, &self.0)
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        Some(json!({"application/json": {"schema": schemas.refer::<T>()}}))
    }
}

/// A value as JSON with a status of its own: 201, 202.
pub(super) struct With<const STATUS: u16, T>(pub T);

impl<const STATUS: u16, T: Serialize + ToSchema + Send + 'static> Give for With<STATUS, T> {
    const STATUS: u16 = STATUS;
    fn give(self) -> Result<Answer, Problem> {
        Answer::json(STATUS, &self.0)
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        Json::<T>::describe(schemas)
    }
}

/// A list of values as a JSON array.
pub(super) struct List<T>(pub Vec<T>);

impl<T: Serialize + ToSchema + Send + 'static> Give for List<T> {
    fn give(self) -> Result<Answer, Problem> {
        Answer::json(200, &self.0)
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        Some(json!({"application/json": {"schema": {"type": "array", "items": schemas.refer::<T>()}}}))
    }
}

/// Any JSON.
pub(super) struct AnyJson(pub Value);

impl Give for AnyJson {
    fn give(self) -> Result<Answer, Problem> {
        Answer::json(200, &self.0)
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        Some(json!({"application/json": {"schema": {"type": "object"}}}))
    }
}

/// Plain text.
pub(super) struct Text(pub String);

impl Give for Text {
    fn give(self) -> Result<Answer, Problem> {
        Ok(Answer::Text(self.0))
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        Some(json!({"text/plain": {"schema": {"type": "string"}}}))
    }
}

/// A stream of values, one line of JSON each.
pub(super) struct Lines<T>(pub LineStream<T>);

impl<T: Serialize + ToSchema + Send + 'static> Give for Lines<T> {
    fn give(self) -> Result<Answer, Problem> {
        Ok(answer::lines(self.0))
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        Some(json!({NDJSON: {"schema": schemas.refer::<T>()}}))
    }
}

/// A stream of bytes.
pub(super) struct Octets(pub ByteStream);

impl Give for Octets {
    fn give(self) -> Result<Answer, Problem> {
        Ok(answer::bytes("application/octet-stream", self.0))
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        Some(json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}))
    }
}

/// A tar of a tree.
pub(super) struct Tar(pub ByteStream);

impl Give for Tar {
    fn give(self) -> Result<Answer, Problem> {
        Ok(answer::bytes("application/x-tar", self.0))
    }
    fn describe(_: &mut Schemas) -> Option<Value> {
        Some(json!({"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}))
    }
}

/// One thing or another, as a parameter says.
pub(super) enum Either<A, B> {
    One(A),
    Other(B),
}

impl<A: Give, B: Give> Give for Either<A, B> {
    const STATUS: u16 = A::STATUS;
    fn give(self) -> Result<Answer, Problem> {
        match self {
            Self::One(a) => a.give(),
            Self::Other(b) => b.give(),
        }
    }
    fn describe(schemas: &mut Schemas) -> Option<Value> {
        let mut all = A::describe(schemas).unwrap_or_else(|| json!({}));
        if let (Some(all), Some(Value::Object(more))) = (all.as_object_mut(), B::describe(schemas)) {
            all.extend(more);
        }
        Some(all)
    }
}
