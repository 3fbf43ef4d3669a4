//! The OpenAPI 3.1 document, made from the routes and the schemas of their types.

use std::collections::BTreeMap;

use doppel_api::Problem;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::route::Route;

/// Schemas the document refers to, by name.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// A reference to the schema of a type, which is put among the components with all it needs.
    pub fn refer<T: ToSchema>(&mut self) -> Value {
        let name = T::name().into_owned();
        if !self.0.contains_key(&name) {
            self.0.insert(name.clone(), json!(T::schema()));
            let mut needed = Vec::new();
            T::schemas(&mut needed);
            for (name, schema) in needed {
                self.0.entry(name).or_insert_with(|| json!(schema));
            }
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }
}

/// A field whose default its own bounds refuse has none: it must be given.
fn require_without_default(schema: &mut Value) {
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let mut required = Vec::new();
    for (name, field) in fields {
        let empty = field["default"] == "" && field["minLength"].as_u64() > Some(0)
            || field["default"] == json!([]) && field["minItems"].as_u64() > Some(0);
        if let (true, Some(field)) = (empty, field.as_object_mut()) {
            field.remove("default");
            required.push(json!(name));
        }
    }
    if required.is_empty() {
        return;
    }
    match schema.get_mut("required").and_then(Value::as_array_mut) {
        Some(others) => others.extend(required),
        None => schema["required"] = json!(required),
    }
}

/// The document.
pub(super) fn document<S: Send + Sync + 'static>(routes: &[Route<S>]) -> Value {
    let mut schemas = Schemas::default();
    let problem = schemas.refer::<Problem>();
    let mut paths: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for route in routes {
        let told = (route.describe)(&mut schemas);
        let mut parameters: Vec<Value> = route
            .path
            .split('/')
            .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}}))
            .collect();
        parameters.extend(told.query);
        if matches!(route.method.as_str(), "POST" | "PUT") {
            parameters.push(json!({
                "name": "Idempotency-Key", "in": "header", "required": false,
                "schema": {"type": "string", "minLength": 1, "maxLength": crate::http::idempotency::LONGEST},
                "description": "The request may be sent again with this key within a day: the answer is the first one's.",
            }));
        }
        let mut success = json!({"description": "done"});
        if let Some(content) = told.answer {
            success["content"] = content;
        }
        let mut operation = json!({
            "operationId": operation_id(route.method.as_str(), route.path),
            "summary": route.summary,
            "tags": [tag(route.path)],
            "responses": {
                told.status.to_string(): success,
                "default": {
                    "description": "refused; `code` says why",
                    "content": {doppel_api::PROBLEM_JSON: {"schema": problem.clone()}},
                },
            },
        });
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        if let Some(body) = told.body {
            operation["requestBody"] = body;
        }
        paths.entry(route.path).or_default().insert(route.method.as_str().to_lowercase(), operation);
    }
    schemas.0.values_mut().for_each(require_without_default);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Doppel",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Domain 0 of Doppel. Streams are lines of JSON; errors are problem+json with a stable `code`.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "On TCP only; `doppeld token add` makes one. The Unix socket goes by its permissions.",
            }},
        },
    })
}

/// `GET /v1/domains/{domain}/files/info` becomes `get_domains_domain_files_info`: unique, as method and path are.
fn operation_id(method: &str, path: &str) -> String {
    let mut id = method.to_lowercase();
    for segment in path.trim_start_matches("/v1").split('/').filter(|s| !s.is_empty()) {
        id.push('_');
        id.extend(segment.chars().filter(|c| !"{}".contains(*c)).map(|c| if c == '.' { '_' } else { c }));
    }
    id
}

/// Groups operations by what they are about.
fn tag(path: &str) -> &str {
    match path.trim_start_matches("/v1").split('/').nth(1) {
        Some(first @ ("domains" | "execs" | "frozen" | "images" | "operations")) => first,
        _ => "system",
    }
}
