//! What was asked of a domain, on its way to the keeper that starts it.
//!
//! Each option has the name that it has in the interface, beside what follows from those that were looked up first. Keepers outlive
//! an update: what an end does not know it ignores, and what older keepers must have is always there.

use doppel_api::{CreateDomain, schema};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::limits;

/// The supervisor has looked these up: the message has what was found.
const LOOKED_UP: [&str; 9] =
    ["image", "name", "command", "entrypoint", "env", "working_dir", "user", "network", "freeze_as"];
/// The supervisor sees to these itself.
const ITS_OWN: [&str; 8] = [
    "auto_remove",
    "restart",
    "labels",
    "health",
    "stop_signal",
    "stop_timeout_seconds",
    "timeout_seconds",
    "residency",
];

pub(super) fn serialize<S: Serializer>(spec: &CreateDomain, to: S) -> Result<S::Ok, S::Error> {
    let Value::Object(mut fields) = serde_json::to_value(spec).map_err(S::Error::custom)? else {
        return Err(S::Error::custom("a struct is no object"));
    };
    LOOKED_UP.iter().chain(&ITS_OWN).for_each(|name| drop(fields.remove(*name)));
    fields.remove("resources");
    fields.insert("limits".into(), limits::to_value(&spec.resources).map_err(S::Error::custom)?);
    fields.entry("hostname").or_insert_with(|| json!(""));
    // For keepers that do not look for it in `limits`.
    let disk = json!({"bytes": spec.resources.disk_bytes, "inodes": spec.resources.disk_inodes});
    fields.insert("disk".into(), disk);
    fields.serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CreateDomain, D::Error> {
    let mut fields = Map::deserialize(from)?;
    let limits = fields.remove("limits").ok_or_else(|| D::Error::missing_field("limits"))?;
    let resources = limits::from_value(limits).map_err(D::Error::custom)?;
    fields.retain(|name, value| name != "hostname" || value != "");
    let mut value = Value::Object(fields);
    schema::keep_known::<CreateDomain>(&mut value);
    let spec: CreateDomain = serde_json::from_value(value).map_err(D::Error::custom)?;
    Ok(CreateDomain { resources, ..spec })
}

#[cfg(test)]
mod tests {
    use doppel_api::{Files, Kind, LogTarget, Mount, Resources};

    use super::*;
    use crate::keeper::protocol::{Boot, Resume, Spec};

    fn asked() -> CreateDomain {
        let mounts = vec![Mount { target: "/m".into(), options: vec!["ro".into()], ..Mount::default() }];
        CreateDomain {
            kind: Kind::Paene,
            hostname: Some("h".into()),
            stdin: true,
            files: Files { read_only: true, mounts, ..Files::default() },
            resources: Resources { memory_bytes: Some(9), disk_bytes: Some(7), ..Resources::default() },
            log: LogTarget { max_bytes: 4096, max_files: 2 },
            ..CreateDomain::default()
        }
    }

    fn program() -> Value {
        json!({"argv": ["x"], "env": ["A=b"], "cwd": "/c", "uid": 1, "gid": 2, "groups": [3]})
    }

    fn with(mut value: Value, more: Value) -> Value {
        if let (Value::Object(fields), Value::Object(more)) = (&mut value, more) {
            fields.extend(more);
        }
        value
    }

    /// What a supervisor says for which the keeper's message was a list of fields, each by itself.
    fn older_boot() -> Value {
        let rest = json!({
            "kind": "paene", "disk": {"bytes": 7, "inodes": null}, "image": "/i", "hostname": "h", "tty": false, "stdin": true,
            "no_patch": false, "files": {"read_only": true, "mounts": [{"type": "tmpfs", "target": "/m", "options": ["ro"]}]},
            "sources": [], "freeze_to": null, "limits": {"memory": 9, "disk_bytes": 7, "io_limits": []},
            "log": {"max_bytes": 4096, "max_files": 2}, "network": null, "spare_seconds": 10,
        });
        with(program(), rest)
    }

    #[test]
    fn an_older_supervisor_is_understood() {
        let boot: Boot = serde_json::from_value(older_boot()).unwrap();
        assert_eq!(boot.spec, asked());
        assert_eq!(serde_json::to_value(&boot.program).unwrap(), program());
        let resume = json!({
            "frozen": "/f", "index": 2, "wake": false, "argv": ["x"], "env": [], "args": ["a"], "hostname": "", "stdin": true,
            "freeze_to": null, "limits": {"io_limits": []}, "log": {"max_bytes": 4096, "max_files": 2}, "network": null,
        });
        let resume: Resume = serde_json::from_value(resume).unwrap();
        assert_eq!((resume.index, resume.program.cwd.as_str(), resume.args.len()), (2, "/", 1));
        assert!(resume.spec.stdin && resume.spec.hostname.is_none());
    }

    #[test]
    fn an_older_keeper_finds_all_that_it_needs_as_it_was() {
        let boot: Boot = serde_json::from_value(older_boot()).unwrap();
        let told = serde_json::to_value(&boot).unwrap();
        for (name, value) in older_boot().as_object().unwrap() {
            assert_eq!(told[name], *value, "{name}");
        }
        let told = serde_json::to_value(Spec::Resume(Resume::default())).unwrap();
        for name in ["frozen", "index", "wake", "argv", "env", "args", "hostname", "stdin", "limits", "log"] {
            assert!(told["resume"].get(name).is_some(), "{name}: {told}");
        }
    }

    #[test]
    fn what_was_looked_up_is_told_as_it_was_found() {
        let spec =
            CreateDomain { image: "busybox".into(), user: Some("me".into()), auto_remove: true, ..asked() };
        let told = serde_json::to_value(Boot { spec, image: "/i".into(), ..Boot::default() }).unwrap();
        assert_eq!((&told["image"], told.get("user"), told.get("auto_remove")), (&json!("/i"), None, None));
    }

    #[test]
    fn what_a_newer_end_says_more_is_ignored() {
        let mut newer = older_boot();
        newer["not_yet"] = json!(1);
        newer["files"]["not_yet"] = json!(1);
        newer["files"]["mounts"][0]["not_yet"] = json!(1);
        newer["limits"]["not_yet"] = json!(1);
        assert_eq!(serde_json::from_value::<Boot>(newer).unwrap().spec, asked());
    }
}
