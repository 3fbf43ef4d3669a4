//! Values checked against the schema of their type: the bounds that a client reads in the OpenAPI document are those that
//! count, and stand nowhere else.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::{Code, Problem};

/// Longest string of a request in bytes, unless its schema has a bound: a command's argument, a variable, a path.
const LONGEST: u64 = 128 << 10;
/// Most entries of a list or map, unless its schema has a bound.
const MOST: u64 = 4096;

/// Refuses a value that its type's schema does not allow, naming the field, what is wrong with it and what may be there.
///
/// Beside the schema's bounds, no string has a NUL and no map an empty key.
pub fn check<T: ToSchema + Serialize + ?Sized + 'static>(value: &T) -> Result<(), Problem> {
    let value = serde_json::to_value(value).map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
    schema::<T>().check("", &json!({"$ref": T::name()}), &value)
}

/// Whether values of a type may have a field at this path, whose names are compared by `same` (the type's, the path's).
pub fn has_field<T: ToSchema + 'static>(path: &[String], same: fn(&str, &str) -> bool) -> bool {
    schema::<T>().leads(&json!({"$ref": T::name()}), path, same)
}

/// Drops fields that values of a type do not have, down to the innermost: what one of a newer version says more.
pub fn keep_known<T: ToSchema + 'static>(value: &mut Value) {
    schema::<T>().keep(&json!({"$ref": T::name()}), value);
}

/// A schema as JSON.
type Made = LazyLock<Value, Box<dyn FnOnce() -> Value + Send>>;

/// The schemas of a type and of all that it is made of, by name, and their patterns. Each is made when it is first looked
/// at: a command that checks one value needs few of them, and all patterns take longer than the command.
#[derive(Default)]
struct Schema {
    named: HashMap<String, Made>,
    patterns: Mutex<HashMap<String, Option<Regex>>>,
}

/// The schema of a type; it is made once.
fn schema<T: ToSchema + ?Sized + 'static>() -> Arc<Schema> {
    static MADE: Mutex<Option<HashMap<TypeId, Arc<Schema>>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.get_or_insert_default()
        .entry(TypeId::of::<T>())
        .or_insert_with(|| Arc::new(Schema::of::<T>()))
        .clone()
}

fn refuse(field: &str, why: impl Display) -> Problem {
    Problem::new(
        Code::InvalidRequest,
        if field.is_empty() { why.to_string() } else { format!("{field}: {why}") },
    )
}

impl Schema {
    fn of<T: ToSchema + ?Sized>() -> Self {
        let mut needed = Vec::new();
        T::schemas(&mut needed);
        needed.push((T::name().into_owned(), T::schema()));
        let mut all = Self::default();
        for (name, schema) in needed {
            all.named.insert(name, LazyLock::new(Box::new(move || json!(schema))));
        }
        all
    }

    fn check(&self, field: &str, schema: &Value, value: &Value) -> Result<(), Problem> {
        if value.is_null() || value.is_boolean() {
            return Ok(());
        }
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or(name);
            return self.named.get(name).map_or(Ok(()), |schema| self.check(field, schema, value));
        }
        // An optional struct is null or a reference.
        if let Some(parts) = schema["oneOf"].as_array().or_else(|| schema["allOf"].as_array()) {
            let mut references = parts.iter().filter(|part| part.get("$ref").is_some());
            return match (references.next(), references.next()) {
                (Some(part), None) => self.check(field, part, value),
                _ => Ok(()),
            };
        }
        match value {
            Value::Number(number) => in_range(field, schema, number),
            Value::String(text) => self.string(field, schema, text),
            Value::Array(list) => {
                bounded(field, schema, ["minItems", "maxItems"], list.len(), MOST, "entries")?;
                let mut each = list.iter().enumerate();
                each.try_for_each(|(i, entry)| self.check(&format!("{field}[{i}]"), &schema["items"], entry))
            }
            Value::Object(fields) => self.object(field, schema, fields),
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn leads(&self, schema: &Value, path: &[String], same: fn(&str, &str) -> bool) -> bool {
        let Some((name, rest)) = path.split_first() else { return true };
        if let Some(reference) = schema["$ref"].as_str() {
            let reference = reference.rsplit('/').next().unwrap_or(reference);
            return self.named.get(reference).is_some_and(|schema| self.leads(schema, path, same));
        }
        if let Some(parts) = schema["oneOf"].as_array().or_else(|| schema["allOf"].as_array()) {
            return parts.iter().any(|part| self.leads(part, path, same));
        }
        if schema["additionalProperties"].is_object() {
            return self.leads(&schema["additionalProperties"], rest, same);
        }
        let mut fields = schema["properties"].as_object().into_iter().flatten();
        fields.any(|(field, schema)| same(field, name) && self.leads(schema, rest, same))
    }

    fn keep(&self, schema: &Value, value: &mut Value) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or(name);
            return self.named.get(name).map_or((), |schema| self.keep(schema, value));
        }
        if let Some(parts) = schema["oneOf"].as_array().or_else(|| schema["allOf"].as_array()) {
            let references: Vec<_> = parts.iter().filter(|part| part.get("$ref").is_some()).collect();
            if let [part] = references[..] {
                self.keep(part, value);
            }
            return;
        }
        match value {
            Value::Array(all) => all.iter_mut().for_each(|value| self.keep(&schema["items"], value)),
            Value::Object(fields) => {
                let known = &schema["properties"];
                fields.retain(|name, _| !known.is_object() || known.get(name).is_some());
                fields.iter_mut().for_each(|(name, value)| self.keep(&known[name], value));
            }
            _ => {}
        }
    }

    fn string(&self, field: &str, schema: &Value, text: &str) -> Result<(), Problem> {
        bounded(field, schema, ["minLength", "maxLength"], text.len(), LONGEST, "bytes")?;
        if text.contains('\0') {
            return Err(refuse(field, format!("{text:?} has a NUL character")));
        }
        match schema["pattern"].as_str() {
            Some(pattern) if !self.matches(pattern, text) => {
                Err(refuse(field, format!("{text:?} does not match {pattern}{}", told(schema))))
            }
            _ => Ok(()),
        }
    }

    /// Whether a text is as a pattern wants it; one that cannot be read, of which a test knows none, wants nothing.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut patterns = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        let regex = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }

    fn object(&self, field: &str, schema: &Value, fields: &Map<String, Value>) -> Result<(), Problem> {
        let inside = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
        let entries = &schema["additionalProperties"];
        if !entries.is_object() {
            let mut each = fields.iter();
            return each
                .try_for_each(|(name, value)| self.check(&inside(name), &schema["properties"][name], value));
        }
        bounded(field, schema, ["minProperties", "maxProperties"], fields.len(), MOST, "entries")?;
        for (key, value) in fields {
            if key.is_empty() {
                return Err(refuse(field, "has an entry without a name"));
            }
            self.string(field, &schema["propertyNames"], key)?;
            self.check(&inside(key), entries, value)?;
        }
        Ok(())
    }
}

/// What a field is, behind what is wrong with it.
fn told(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .map_or_else(String::new, |text| format!(" ({})", text.trim_end_matches('.').replace('\n', " ")))
}

fn in_range(field: &str, schema: &Value, number: &serde_json::Number) -> Result<(), Problem> {
    let value = number.as_f64().unwrap_or(f64::NAN);
    let (least, most) = (&schema["minimum"], &schema["maximum"]);
    let above = least.as_f64().is_none_or(|least| value >= least);
    let below = most.as_f64().is_none_or(|most| value <= most);
    if above && below {
        return Ok(());
    }
    let bounds = match (least, most) {
        (least, Value::Null) => format!("is less than {least}"),
        (Value::Null, most) => format!("is more than {most}"),
        (least, most) => format!("is not between {least} and {most}"),
    };
    Err(refuse(field, format!("{number} {bounds}{}", told(schema))))
}

fn bounded(
    field: &str,
    schema: &Value,
    names: [&str; 2],
    n: usize,
    most: u64,
    of: &str,
) -> Result<(), Problem> {
    let n = n as u64;
    let [least, most] = [schema[names[0]].as_u64().unwrap_or(0), schema[names[1]].as_u64().unwrap_or(most)];
    if n == 0 && least > 0 {
        return Err(refuse(field, format!("is missing{}", told(schema))));
    }
    if n < least || n > most {
        return Err(refuse(field, format!("{n} {of}, but {least} to {most} are possible{}", told(schema))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CloneFrozen, CreateDomain, CreateExec, KillOptions, Rename, StopOptions, UpdateDomain};

    fn find_patterns(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                found.extend(fields.get("pattern").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|schema| find_patterns(schema, found));
            }
            Value::Array(all) => all.iter().for_each(|schema| find_patterns(schema, found)),
            _ => {}
        }
    }

    #[test]
    fn only_what_is_looked_at_is_made() {
        let schema = Schema::of::<CreateDomain>();
        let plain = json!(CreateDomain { image: "b".into(), ..CreateDomain::default() });
        schema.check("", &json!({"$ref": CreateDomain::name()}), &plain).unwrap();
        assert!(schema.patterns.lock().unwrap().is_empty());
    }

    #[test]
    fn all_patterns_can_be_read() {
        fn of<T: ToSchema + 'static>() -> usize {
            let schema = schema::<T>();
            let mut found = Vec::new();
            schema.named.values().for_each(|s| find_patterns(s, &mut found));
            assert!(found.iter().all(|p| Regex::new(p).is_ok()), "{found:?}");
            found.len()
        }
        for (n, name) in [
            (of::<CreateDomain>(), "CreateDomain"),
            (of::<CloneFrozen>(), "CloneFrozen"),
            (of::<CreateExec>(), "CreateExec"),
            (of::<KillOptions>(), "KillOptions"),
            (of::<Rename>(), "Rename"),
            (of::<StopOptions>(), "StopOptions"),
            (of::<UpdateDomain>(), "UpdateDomain"),
        ] {
            assert!(n > 0, "{name}");
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_and_what_may_be_there() {
        let of =
            |json: Value| check(&serde_json::from_value::<CreateDomain>(json).unwrap()).unwrap_err().detail;
        for (json, said) in [
            (json!({}), "image: is missing (Name of the root image, or the path of an EROFS file)"),
            (
                json!({"image": "b", "resources": {"io_weight": 0}}),
                "resources.io_weight: 0 is not between 1 and 10000 (Share of block I/O, 1 to 10,000)",
            ),
            (json!({"image": "b", "timeout_seconds": 0}), "timeout_seconds: 0 is less than 1"),
            (
                json!({"image": "b", "hostname": "a b"}),
                "hostname: \"a b\" does not match ^[A-Za-z0-9_.-]{1,64}$",
            ),
            (json!({"image": "b", "labels": {"": "x"}}), "labels: has an entry without a name"),
            (
                json!({"image": "b", "command": vec!["x"; 4097]}),
                "command: 4097 entries, but 0 to 4096 are possible",
            ),
            (json!({"image": "b", "env": {"A": "b\0"}}), "env.A: \"b\\0\" has a NUL character"),
            (
                json!({"image": "b", "network": {"kind": "nat", "ports": [{"port": 1}, {"port": 0}]}}),
                "network.ports[1].port: 0 is less than 1",
            ),
        ] {
            let text = of(json);
            assert!(text.starts_with(said), "{text}");
        }
    }
}
