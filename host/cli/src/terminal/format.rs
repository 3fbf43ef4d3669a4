//! How results are printed: tables, JSON, and the part of Go's templates that `--format` is used for with Docker.
//!
//! A template is text with `{{.Field.Field}}`, `{{json .Field}}`, and the functions `upper`, `lower`, `len`,
//! `join .List "separator"`, `index .Map "key"`. Names match however they are written: `.ExitCode` finds `exit_code`.
//! `table TEMPLATE` puts headings over columns that tabs separate.

use std::error::Error;

use crate::terminal::out::{self, say};
use doppel_api::{Domain, DomainStats, Event, FrozenImage, Image, Info, Operation, schema};
use serde_json::Value;

/// How `--format` and `--json` want it.
pub enum Format {
    /// As the verb does by itself.
    Default,
    /// A line of JSON each.
    Json,
    /// A template each.
    Template(Template),
    /// A template each, in columns with headings.
    Table(Template),
}

impl Format {
    /// What the options say.
    pub fn new(json: bool, format: Option<&str>) -> Result<Self, String> {
        match format {
            _ if json => Ok(Self::Json),
            None | Some("table") => Ok(Self::Default),
            Some("json") => Ok(Self::Json),
            Some(text) => match text.strip_prefix("table ") {
                Some(rest) => Ok(Self::Table(Template::parse(rest)?)),
                None => Ok(Self::Template(Template::parse(text)?)),
            },
        }
    }

    /// Prints rows; by default, columns of the given headings and fields.
    pub fn print(&self, rows: &[Value], columns: &[(&str, &str)]) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Json => rows.iter().try_for_each(|row| say!("{row}"))?,
            Self::Template(template) => {
                for row in rows {
                    say!("{}", template.fill(row)?)?;
                }
            }
            Self::Table(template) => {
                let mut lines = vec![cells(&template.headings())];
                for row in rows {
                    lines.push(cells(&template.fill(row)?));
                }
                out::print(format_args!("{}", aligned(&lines)))?;
            }
            Self::Default => {
                let mut lines = vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect()];
                for row in rows {
                    lines.push(columns.iter().map(|(_, field)| text(&row[*field])).collect());
                }
                out::print(format_args!("{}", aligned(&lines)))?;
            }
        }
        Ok(())
    }
}

fn cells(line: &str) -> Vec<String> {
    line.split('\t').map(str::to_owned).collect()
}

/// Lines of cells as columns, three spaces between them.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at| lines.iter().filter_map(|l| l.get(at)).map(|c: &String| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}   "));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Call { function: String, path: Vec<String>, argument: Option<String> },
}

/// A template that was read.
#[derive(Debug, PartialEq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let text = text.replace("\\t", "\t").replace("\\n", "\n");
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("{{") {
            pieces.push(Piece::Text(before.to_owned()));
            let (call, after) =
                after.split_once("}}").ok_or_else(|| format!("--format {text:?}: no }}}}"))?;
            pieces.push(parse_call(call.trim_matches(['-', ' ']))?);
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// The template with a row's values in it.
    pub fn fill(&self, row: &Value) -> Result<String, String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Call { function, path, argument } => {
                    out.push_str(&call(function, &find(row, path)?, argument.as_deref())?);
                }
            }
        }
        Ok(out)
    }

    /// Its fields' names in its fields' places.
    fn headings(&self) -> String {
        let heading = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Call { path, .. } => path.last().map_or_else(String::new, |p| p.to_uppercase()),
        };
        self.0.iter().map(heading).collect()
    }
}

fn parse_call(text: &str) -> Result<Piece, String> {
    let bad = || {
        let functions = "json, upper, lower, len, join, index";
        format!("--format: cannot do {{{{{text}}}}}; there are {{{{.Field}}}} and the functions {functions}")
    };
    let (function, rest) = match text.split_once(char::is_whitespace) {
        _ if text.starts_with('.') => ("", text),
        Some((function, rest)) => (function, rest.trim()),
        None => return Err(bad()),
    };
    let (path, argument) = match rest.split_once(char::is_whitespace) {
        Some((path, argument)) => {
            let argument =
                argument.trim().strip_prefix('"').and_then(|a| a.strip_suffix('"')).ok_or_else(bad)?;
            (path, Some(argument.to_owned()))
        }
        None => (rest, None),
    };
    let needs = matches!(function, "join" | "index");
    if !["", "json", "upper", "lower", "len", "join", "index"].contains(&function)
        || needs != argument.is_some()
    {
        return Err(bad());
    }
    let path = path.strip_prefix('.').ok_or_else(bad)?;
    let path = path.split('.').filter(|p| !p.is_empty()).map(str::to_owned).collect();
    Ok(Piece::Call { function: function.to_owned(), path, argument })
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Whether an answer has such a field when it has a value: by the schemas of what is printed.
fn may_be(path: &[String]) -> bool {
    let same = |ours: &str, asked: &str| plain(ours) == plain(asked);
    schema::has_field::<Domain>(path, same)
        || schema::has_field::<DomainStats>(path, same)
        || schema::has_field::<Event>(path, same)
        || schema::has_field::<FrozenImage>(path, same)
        || schema::has_field::<Image>(path, same)
        || schema::has_field::<Info>(path, same)
        || schema::has_field::<Operation>(path, same)
}

fn find(row: &Value, path: &[String]) -> Result<Value, String> {
    let own = ours(row, path);
    // What Docker's users write, where ours has it by another name.
    own.or_else(|why| docker(row, path).ok_or(why))
}

/// A field of Docker's `inspect` or `info`, of what we have.
fn docker(row: &Value, path: &[String]) -> Option<Value> {
    let path = path.iter().map(|name| plain(name)).collect::<Vec<_>>().join(".");
    let or = |value: &Value, other: Value| if value.is_null() { other } else { value.clone() };
    let sum = |states: &[&str]| -> Value {
        let of = |state: &&str| row["domains"][*state].as_u64().unwrap_or(0);
        states.iter().map(of).sum::<u64>().into()
    };
    let all = ["created", "running", "paused", "hibernated", "exited", "restarting", "dead"];
    if row["domains"].is_object() {
        return Some(match path.as_str() {
            "ncpu" => row["cpus"].clone(),
            "memtotal" => row["memory_bytes"].clone(),
            "dockerrootdir" => row["store"].clone(),
            "containers" => sum(&all),
            "containersrunning" => sum(&["running"]),
            "containerspaused" => sum(&["paused"]),
            "containersstopped" => sum(&["created", "hibernated", "exited", "restarting", "dead"]),
            _ => return None,
        });
    }
    let state = row["state"].as_str().filter(|_| row["config"].is_object())?;
    let resources = &row["config"]["resources"];
    Some(match path.as_str() {
        "state.status" => state.into(),
        "state.running" => matches!(state, "running" | "paused").into(),
        "state.paused" => (state == "paused").into(),
        "state.restarting" => (state == "restarting").into(),
        "state.dead" => (state == "dead").into(),
        "state.pid" => or(&row["pid"], 0.into()),
        "state.exitcode" => or(&row["exit"]["exit_code"], 0.into()),
        "state.startedat" => or(&row["started_at"], "".into()),
        "state.finishedat" => or(&row["exit"]["at"], "".into()),
        "state.health.status" => or(&row["health"], "none".into()),
        "created" => row["created_at"].clone(),
        "image" => row["image_digest"].clone(),
        "config.cmd" => row["command"].clone(),
        "config.workingdir" => or(&row["config"]["working_dir"], "".into()),
        "restartcount" => row["restarts"].clone(),
        "networksettings.ipaddress" => or(&row["network"]["ip4"], "".into()),
        "networksettings.globalipv6address" => or(&row["network"]["ip6"], "".into()),
        "networksettings.ports" => or(&row["network"]["ports"], Value::Array(Vec::new())),
        "hostconfig.memory" => or(&resources["memory_bytes"], 0.into()),
        "hostconfig.pidslimit" => or(&resources["pids"], 0.into()),
        "hostconfig.nanocpus" => {
            let cpus = resources["cpus"].as_f64().unwrap_or(0.0);
            // Billionths of a CPU, of which there are few enough.
            ((cpus * 1e9).round() as u64).into()
        }
        _ => return None,
    })
}

fn ours(row: &Value, path: &[String]) -> Result<Value, String> {
    let mut value = row;
    for (depth, name) in path.iter().enumerate() {
        value = match value {
            Value::Object(fields) => {
                let found = fields
                    .get(name)
                    .or_else(|| fields.iter().find(|(field, _)| plain(field) == plain(name)).map(|(_, v)| v));
                match found {
                    Some(found) => found,
                    None if may_be(&path[..=depth]) && docker(row, path).is_none() => &Value::Null,
                    None => {
                        let names: Vec<&str> = fields.keys().map(String::as_str).collect();
                        let within = match depth {
                            0 => String::new(),
                            _ => format!(" in .{}", path[..depth].join(".")),
                        };
                        let names = names.join(", ");
                        return Err(format!("--format: no field {name}{within}; there are {names}"));
                    }
                }
            }
            Value::Null => &Value::Null,
            _ => {
                let of = path[..depth].join(".");
                return Err(format!("--format: .{of} has no fields, so no {name}"));
            }
        };
    }
    Ok(value.clone())
}

fn call(function: &str, value: &Value, argument: Option<&str>) -> Result<String, String> {
    Ok(match (function, value) {
        ("json", value) => value.to_string(),
        ("upper", value) => text(value).to_uppercase(),
        ("lower", value) => text(value).to_lowercase(),
        ("len", Value::Array(list)) => list.len().to_string(),
        ("len", Value::Object(fields)) => fields.len().to_string(),
        ("len", value) => text(value).len().to_string(),
        ("join", Value::Array(list)) => {
            list.iter().map(text).collect::<Vec<_>>().join(argument.unwrap_or_default())
        }
        ("index", Value::Object(fields)) => {
            fields.get(argument.unwrap_or_default()).map(text).unwrap_or_default()
        }
        ("join" | "index", _) => return Err(format!("--format: {function} does not work on {value}")),
        (_, value) => text(value),
    })
}

/// A value as text.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates() {
        let row = json!({"ID": "1", "exit": {"exit_code": 3}, "list": ["a", "b"], "labels": {"k": "v"}, "Names": "web"});
        for (template, filled) in [
            ("{{.ID}}", "1"),
            ("{{ .Id }}:{{.Exit.ExitCode}}", "1:3"),
            ("{{json .exit}}", r#"{"exit_code":3}"#),
            ("{{join .list \",\"}}", "a,b"),
            ("{{index .labels \"k\"}}{{index .labels \"z\"}}", "v"),
            ("{{upper .Names}}\\t{{len .list}}", "WEB\t2"),
            ("{{.exit.reason}}{{.started_at.x}}.", "."),
            ("plain", "plain"),
        ] {
            assert_eq!(
                Template::parse(template).and_then(|t| t.fill(&row)).as_deref(),
                Ok(filled),
                "{template}"
            );
        }
        for bad in ["{{.ID", "{{range .list}}", "{{.list \"x\"}}", "{{join .list}}", "{{json}}", "{{x}}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
        assert!(Template::parse("{{.Colour}}").unwrap().fill(&row).unwrap_err().contains("Names"));
        let nested = Template::parse("{{.exit.nothing}}").unwrap().fill(&row).unwrap_err();
        assert!(nested.contains("in .exit") && nested.contains("exit_code"), "{nested}");
        assert!(Template::parse("{{.ID.x}}").unwrap().fill(&row).is_err());
        assert!(Template::parse("{{json .}}").unwrap().fill(&row).unwrap().starts_with('{'));
    }

    #[test]
    fn dockers_names() {
        let domain = json!({"state": "running", "config": {"resources": {"cpus": 0.5}}, "restarts": 2, "network": {"ip4": "10.88.0.2"}});
        let info = json!({"cpus": 2, "memory_bytes": 5, "domains": {"running": 3, "paused": 1}});
        for (row, template, filled) in [
            (&domain, "{{.State}} {{.State.Running}} {{.State.ExitCode}}", "running true 0"),
            (&domain, "{{.NetworkSettings.IPAddress}} {{.RestartCount}}", "10.88.0.2 2"),
            (&domain, "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", "500000000 0"),
            (&info, "{{.NCPU}} {{.MemTotal}} {{.Containers}} {{.ContainersRunning}}", "2 5 4 3"),
        ] {
            assert_eq!(
                Template::parse(template).and_then(|t| t.fill(row)).as_deref(),
                Ok(filled),
                "{template}"
            );
        }
        for (absent, filled) in [
            ("{{.Config.Resources.IoWeight}}", ""),
            ("{{.config.network.rate.sent}}", ""),
            ("{{.exit.at}}", ""),
        ] {
            assert_eq!(Template::parse(absent).unwrap().fill(&domain).as_deref(), Ok(filled), "{absent}");
        }
        assert!(Template::parse("{{.io_weight}}").unwrap().fill(&domain).is_err(), "it is not there");
        assert!(Template::parse("{{.State.Nope}}").unwrap().fill(&domain).is_err());
        assert!(Template::parse("{{.GraphDriver}}").unwrap().fill(&domain).is_err());
    }

    #[test]
    fn columns() {
        let lines = [vec!["A".into(), "LONG".into()], vec!["bbb".into(), "c".into()]];
        assert_eq!(aligned(&lines), "A     LONG\nbbb   c\n");
        assert_eq!(Template::parse("{{.Names}}\t{{.a.b}}").unwrap().headings(), "NAMES\tB");
    }
}
