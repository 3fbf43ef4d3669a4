//! A further program in a domain.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Program;

/// Rows and columns of a terminal of which nobody says more.
const WINDOW: (u16, u16) = (24, 80);

/// `POST /v1/domains/{domain}/exec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct CreateExec {
    /// Command and arguments.
    #[schema(min_items = 1, max_items = 4096)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub command: Vec<String>,
    /// Environment over the domain's.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub env: BTreeMap<String, String>,
    /// Working directory; the domain's if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^/")]
    #[cfg_attr(
        feature = "cli",
        arg(short, long = "workdir", value_name = "DIR", help = "Working directory")
    )]
    pub working_dir: Option<String>,
    /// `user[:group]`; the domain's if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "cli",
        arg(
            short,
            long,
            value_name = "USER[:GROUP]",
            help = "User and group, by number or by their names in the domain"
        )
    )]
    pub user: Option<String>,
    /// Give it a terminal of its own.
    #[cfg_attr(feature = "cli", arg(short, long, help = "Give the command a terminal"))]
    pub tty: bool,
    /// Size of that terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub terminal: Option<ResizeTerminal>,
    /// Keep standard input open; otherwise it is empty.
    #[cfg_attr(feature = "cli", arg(short = 'i', long = "interactive", help = "Connect standard input"))]
    pub stdin: bool,
    /// Seconds after which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 31536000)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub timeout_seconds: Option<f64>,
    /// Nobody will read its output: throw it away.
    #[cfg_attr(
        feature = "cli",
        arg(short, long, help = "Leave it running in the background and print its id")
    )]
    pub detach: bool,
}

/// `POST .../resize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTerminal {
    /// Lines, 1 to 65,535.
    #[schema(minimum = 1)]
    pub rows: u16,
    /// Columns, 1 to 65,535.
    #[schema(minimum = 1)]
    pub columns: u16,
}

impl CreateExec {
    /// Rows and columns of its terminal, if it gets one.
    #[must_use]
    pub fn window(&self) -> Option<(u16, u16)> {
        self.tty.then(|| self.terminal.map_or(WINDOW, |t| (t.rows, t.columns)))
    }
}

/// A further program in a domain: what was asked for, looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de> + From<&'static str>"))]
pub struct ExecConfig<T = OsString> {
    /// The program; with `builtin`, a command of the guest kernel and its arguments.
    #[serde(flatten)]
    pub program: Program<T>,
    /// Run a command of the guest kernel itself, which needs nothing in the image (docs/sessions.md).
    pub builtin: bool,
    /// What was asked for. Of its options count those that need no looking up: `tty`, `terminal`, `stdin` and `detach`. What
    /// follows from the others is in `program`.
    #[serde(flatten, with = "on_the_way")]
    pub spec: CreateExec,
}

impl<T: From<&'static str>> ExecConfig<T> {
    /// Runs `argv` as root in `/`, with no environment and no input.
    #[must_use]
    pub fn new(argv: Vec<T>) -> Self {
        Self { program: Program::new(argv), builtin: false, spec: CreateExec::default() }
    }
}

impl From<ExecConfig<String>> for ExecConfig {
    fn from(config: ExecConfig<String>) -> Self {
        let ExecConfig { program, builtin, spec } = config;
        Self { program: program.into(), builtin, spec }
    }
}

/// Options on the way to who runs the program, which may be of another version: as they were called there from the
/// beginning, without those that were looked up. What an end does not know it ignores.
mod on_the_way {
    use std::sync::LazyLock;

    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::{Map, Value, json};
    use utoipa::PartialSchema;

    use super::{CreateExec, ResizeTerminal};

    /// Whoever asks has looked these up, or sees to them.
    const SETTLED: [&str; 6] = ["command", "env", "working_dir", "user", "terminal", "timeout_seconds"];
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| json!(CreateExec::schema()));

    pub(super) fn serialize<S: Serializer>(spec: &CreateExec, to: S) -> Result<S::Ok, S::Error> {
        let Value::Object(mut fields) = serde_json::to_value(spec).map_err(S::Error::custom)? else {
            return Err(S::Error::custom("a struct is no object"));
        };
        fields.retain(|name, _| !SETTLED.contains(&name.as_str()) && name != "detach");
        fields.insert("tty".into(), json!(spec.window()));
        fields.insert("discard".into(), json!(spec.detach));
        fields.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CreateExec, D::Error> {
        let mut fields = Map::deserialize(from)?;
        let window: Option<(u16, u16)> =
            serde_json::from_value(fields.remove("tty").unwrap_or_default()).map_err(D::Error::custom)?;
        let detach = fields.remove("discard").is_some_and(|discard| discard == true);
        fields.retain(|name, _| SCHEMA["properties"].get(name).is_some());
        let spec = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        let terminal = window.map(|(rows, columns)| ResizeTerminal { rows, columns });
        Ok(CreateExec { tty: window.is_some(), terminal, detach, ..spec })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_older_end_is_understood_and_understands() {
        let older = json!({
            "argv": ["ls"], "env": ["A=b"], "cwd": "/tmp", "uid": 1, "gid": 2, "groups": [3], "tty": [10, 20], "stdin": true,
            "builtin": false, "discard": true,
        });
        let terminal = Some(ResizeTerminal { rows: 10, columns: 20 });
        let spec = CreateExec { tty: true, terminal, stdin: true, detach: true, ..CreateExec::default() };
        let program = Program {
            argv: vec!["ls".to_owned()],
            env: vec!["A=b".into()],
            cwd: "/tmp".into(),
            uid: 1,
            gid: 2,
            groups: vec![3],
        };
        let config = ExecConfig { program, builtin: false, spec };
        assert_eq!(serde_json::from_value::<ExecConfig<String>>(older.clone()).unwrap(), config);
        assert_eq!(serde_json::to_value(&config).unwrap(), older);
        let mut newer = older;
        newer["not_yet"] = json!({"x": 1});
        assert_eq!(serde_json::from_value::<ExecConfig<String>>(newer).unwrap(), config);
    }

    #[test]
    fn what_was_looked_up_is_not_told_twice() {
        let spec = CreateExec {
            command: vec!["x".into()],
            user: Some("root".into()),
            timeout_seconds: Some(1.0),
            ..CreateExec::default()
        };
        let told =
            serde_json::to_value(ExecConfig { spec, ..ExecConfig::<String>::new(Vec::new()) }).unwrap();
        assert!(
            ["command", "user", "timeout_seconds", "terminal"].iter().all(|name| told.get(name).is_none()),
            "{told}"
        );
        assert_eq!((&told["tty"], &told["stdin"]), (&json!(null), &json!(false)));
    }
}
