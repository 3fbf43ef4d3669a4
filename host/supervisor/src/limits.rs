//! What a domain may use, on its way to the keeper and into its records.
//!
//! Keepers outlive an update, and a keeper's records its death: on the way, fields have the names that they had when
//! they were a type of the keeper's own, and what an end does not know it ignores.

use doppel_api::{Resources, schema};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// The interface's names, and those on the way.
const NAMES: [(&str, &str); 5] = [
    ("memory_bytes", "memory"),
    ("memory_reservation_bytes", "memory_reservation"),
    ("memory_target_bytes", "memory_target"),
    ("memory_swap_bytes", "memory_swap"),
    ("io_devices", DEVICES),
];
/// The same of each device with limits.
const DEVICE_NAMES: [(&str, &str); 4] = [
    ("read_bps", "read_bytes"),
    ("write_bps", "write_bytes"),
    ("read_iops", "read_operations"),
    ("write_iops", "write_operations"),
];
const DEVICES: &str = "io_limits";

pub(crate) fn serialize<S: Serializer>(limits: &Resources, to: S) -> Result<S::Ok, S::Error> {
    to_value(limits).map_err(S::Error::custom)?.serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Resources, D::Error> {
    from_value(Value::deserialize(from)?).map_err(D::Error::custom)
}

/// As they are on the way.
pub(crate) fn to_value(limits: &Resources) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(limits)?;
    if let Value::Object(fields) = &mut value {
        NAMES.into_iter().for_each(|(ours, theirs)| rename(fields, ours, theirs));
        let devices = fields.entry(DEVICES).or_insert_with(|| json!([]));
        for device in devices.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            DEVICE_NAMES.into_iter().for_each(|(ours, theirs)| rename(device, ours, theirs));
        }
    }
    Ok(value)
}

/// From what has come.
pub(crate) fn from_value(mut value: Value) -> serde_json::Result<Resources> {
    if let Value::Object(fields) = &mut value {
        NAMES.into_iter().for_each(|(ours, theirs)| rename(fields, theirs, ours));
        let devices = fields.get_mut("io_devices").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten().filter_map(Value::as_object_mut) {
            DEVICE_NAMES.into_iter().for_each(|(ours, theirs)| rename(device, theirs, ours));
        }
    }
    schema::keep_known::<Resources>(&mut value);
    serde_json::from_value(value)
}

fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use doppel_api::IoDevice;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Told(#[serde(with = "super")] Resources);

    #[test]
    fn an_older_end_is_understood() {
        let older = json!({
            "cpus": 0.5, "cpu_weight": null, "cpu_reservation": null, "memory": 9, "memory_reservation": 8,
            "memory_target": null, "pids": 7, "io_weight": null,
            "io_limits": [{"device": "8:0", "read_bytes": 1, "write_bytes": null, "write_operations": 2}],
        });
        let device =
            IoDevice { device: "8:0".into(), read_bps: Some(1), write_iops: Some(2), ..Default::default() };
        let limits = Resources {
            cpus: Some(0.5),
            memory_bytes: Some(9),
            memory_reservation_bytes: Some(8),
            pids: Some(7),
            io_devices: vec![device],
            ..Resources::default()
        };
        let told = Told(limits);
        assert_eq!(serde_json::from_value::<Told>(older).unwrap(), told);
        let mut newer = serde_json::to_value(&told).unwrap();
        assert_eq!(newer["memory"], 9);
        assert_eq!(newer["io_limits"][0]["read_bytes"], 1);
        newer["not_yet"] = json!(1);
        newer["io_limits"][0]["not_yet"] = json!(1);
        assert_eq!(serde_json::from_value::<Told>(newer).unwrap(), told);
    }

    #[test]
    fn an_older_end_finds_all_it_needs() {
        assert_eq!(serde_json::to_value(Told(Resources::default())).unwrap(), json!({"io_limits": []}));
    }
}
