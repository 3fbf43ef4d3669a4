//! The interface's calls with their types (`docs/api.md`).

use std::io::Read;

use doppel_api as api;
use serde::Serialize;
use serde_json::Value;

use crate::{Body, Client, Lines, Result, Upload};

/// A text as a segment of a path or a value of a query.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A path with the fields of `options` behind it.
#[must_use]
pub fn query(path: &str, options: &impl Serialize) -> String {
    let mut text = path.to_owned();
    let mut separator = '?';
    // Options are flat structures.
    if let Ok(Value::Object(fields)) = serde_json::to_value(options) {
        for (name, value) in fields {
            let value = match value {
                Value::Null => continue,
                Value::String(s) => segment(&s),
                other => segment(&other.to_string()),
            };
            text.push_str(&format!("{separator}{name}={value}"));
            separator = '&';
        }
    }
    text
}

fn domain(name: &str, rest: &str) -> String {
    format!("/v1/domains/{}{rest}", segment(name))
}

fn exec(id: &str, rest: &str) -> String {
    format!("/v1/execs/{}{rest}", segment(id))
}

fn path_query(name: &str, rest: &str, path: &str) -> String {
    query(&domain(name, rest), &api::PathQuery { path: path.to_owned() })
}

/// Each does what `docs/api.md` says of its path; the error is the supervisor's refusal, or that it cannot be reached.
#[allow(missing_docs, clippy::missing_errors_doc, reason = "docs/api.md says what each does")]
impl Client {
    pub fn ping(&self) -> Result<()> {
        self.done("GET", "/v1/ping", Upload::None)
    }
    pub fn version(&self) -> Result<api::Version> {
        self.json("GET", "/v1/version", Upload::None)
    }
    pub fn info(&self) -> Result<api::Info> {
        self.json("GET", "/v1/info", Upload::None)
    }
    pub fn services(&self) -> Result<Vec<api::Service>> {
        self.json("GET", "/v1/services", Upload::None)
    }
    pub fn upgrade_services(&self) -> Result<Vec<api::Service>> {
        self.json("POST", "/v1/services/upgrade", Upload::None)
    }
    pub fn upgrade_check(&self) -> Result<api::UpgradeCheck> {
        self.json("GET", "/v1/upgrade", Upload::None)
    }
    pub fn upgrade(&self) -> Result<api::Operation> {
        self.json("POST", "/v1/upgrade", Upload::None)
    }
    pub fn events(&self, which: &api::EventOptions) -> Result<Lines<api::Event>> {
        self.lines(&query("/v1/events", which))
    }
    pub fn domains(&self, which: &api::ListOptions) -> Result<Vec<api::Domain>> {
        self.json("GET", &query("/v1/domains", which), Upload::None)
    }
    pub fn create(&self, wanted: &api::CreateDomain) -> Result<api::Created> {
        self.post("/v1/domains", wanted)
    }
    pub fn run(&self, wanted: &api::CreateDomain) -> Result<Lines<api::Output>> {
        self.post_lines("/v1/domains/run", wanted)
    }
    pub fn inspect(&self, name: &str) -> Result<api::Domain> {
        self.json("GET", &domain(name, ""), Upload::None)
    }
    pub fn update(&self, name: &str, to: &api::UpdateDomain) -> Result<api::Domain> {
        self.json("PATCH", &domain(name, ""), Upload::json(to)?)
    }
    pub fn remove(&self, name: &str, how: &api::RemoveOptions) -> Result<()> {
        self.done("DELETE", &query(&domain(name, ""), how), Upload::None)
    }
    pub fn start(&self, name: &str) -> Result<api::Domain> {
        self.json("POST", &domain(name, "/start"), Upload::None)
    }
    pub fn stop(&self, name: &str, how: &api::StopOptions) -> Result<api::Domain> {
        self.post(&domain(name, "/stop"), how)
    }
    pub fn restart(&self, name: &str, how: &api::StopOptions) -> Result<api::Domain> {
        self.post(&domain(name, "/restart"), how)
    }
    pub fn kill(&self, name: &str, how: &api::KillOptions) -> Result<()> {
        self.done("POST", &domain(name, "/kill"), Upload::json(how)?)
    }
    pub fn pause(&self, name: &str) -> Result<api::Domain> {
        self.json("POST", &domain(name, "/pause"), Upload::None)
    }
    pub fn unpause(&self, name: &str) -> Result<api::Domain> {
        self.json("POST", &domain(name, "/unpause"), Upload::None)
    }
    pub fn rename(&self, name: &str, to: &str) -> Result<api::Domain> {
        self.post(&domain(name, "/rename"), &api::Rename { name: to.to_owned() })
    }
    pub fn wait(&self, name: &str) -> Result<api::Waited> {
        self.json("POST", &domain(name, "/wait"), Upload::None)
    }
    pub fn wait_until_removed(&self, name: &str) -> Result<api::Waited> {
        self.json("POST", &domain(name, "/wait?condition=removed"), Upload::None)
    }
    pub fn prune(&self) -> Result<api::PruneReport> {
        self.json("POST", "/v1/domains/prune", Upload::None)
    }
    pub fn logs(&self, name: &str, which: &api::LogOptions) -> Result<Lines<api::Output>> {
        self.lines(&query(&domain(name, "/logs"), which))
    }
    pub fn attach(&self, name: &str, how: &api::AttachOptions) -> Result<Lines<api::Output>> {
        self.lines(&query(&domain(name, "/attach"), how))
    }
    pub fn input(&self, name: &str, bytes: &[u8], how: &api::InputOptions) -> Result<()> {
        self.done("POST", &query(&domain(name, "/input"), how), Upload::Bytes(bytes))
    }
    pub fn resize(&self, name: &str, to: &api::ResizeTerminal) -> Result<()> {
        self.done("POST", &domain(name, "/resize"), Upload::json(to)?)
    }
    pub fn stats(&self, name: &str) -> Result<api::DomainStats> {
        self.json("GET", &domain(name, "/stats"), Upload::None)
    }
    pub fn flows(&self, name: Option<&str>, which: &api::FlowOptions) -> Result<api::FlowList> {
        let path = name.map_or_else(|| "/v1/network/flows".to_owned(), |name| domain(name, "/flows"));
        self.json("GET", &query(&path, which), Upload::None)
    }
    pub fn top(&self, name: &str) -> Result<Vec<api::ProcessInfo>> {
        self.json("GET", &domain(name, "/top"), Upload::None)
    }
    pub fn stacks(&self, name: &str) -> Result<Vec<api::ThreadStack>> {
        self.json("GET", &domain(name, "/stacks"), Upload::None)
    }
    pub fn debug_events(&self, name: &str, which: &api::DebugEventOptions) -> Result<Lines<api::DebugEvent>> {
        self.lines(&query(&domain(name, "/debug/events"), which))
    }
    pub fn set_debug_events(&self, name: &str, to: &api::SetDebugEvents) -> Result<()> {
        self.done("PUT", &domain(name, "/debug/events"), Upload::json(to)?)
    }
    pub fn exec(&self, name: &str, wanted: &api::CreateExec) -> Result<api::Exec> {
        self.post(&domain(name, "/exec"), wanted)
    }
    pub fn exec_inspect(&self, id: &str) -> Result<api::Exec> {
        self.json("GET", &exec(id, ""), Upload::None)
    }
    pub fn exec_output(&self, id: &str) -> Result<Lines<api::Output>> {
        self.lines(&exec(id, "/output"))
    }
    pub fn exec_input(&self, id: &str, bytes: &[u8], how: &api::InputOptions) -> Result<()> {
        self.done("POST", &query(&exec(id, "/input"), how), Upload::Bytes(bytes))
    }
    pub fn exec_resize(&self, id: &str, to: &api::ResizeTerminal) -> Result<()> {
        self.done("POST", &exec(id, "/resize"), Upload::json(to)?)
    }
    pub fn exec_kill(&self, id: &str, how: &api::KillOptions) -> Result<()> {
        self.done("POST", &exec(id, "/kill"), Upload::json(how)?)
    }
    pub fn archive_out(&self, name: &str, path: &str) -> Result<Body> {
        self.bytes(&path_query(name, "/archive", path))
    }
    pub fn archive_in(&self, name: &str, path: &str, tar: &mut dyn Read) -> Result<()> {
        self.done("PUT", &path_query(name, "/archive", path), Upload::Stream(tar))
    }
    pub fn file_info(&self, name: &str, path: &str) -> Result<api::FileInfo> {
        self.json("GET", &path_query(name, "/files/info", path), Upload::None)
    }
    pub fn freeze(&self, name: &str, how: &api::FreezeDomain) -> Result<api::FreezeReport> {
        self.post(&domain(name, "/freeze"), how)
    }
    pub fn hibernate(&self, name: &str) -> Result<api::Hibernated> {
        self.json("POST", &domain(name, "/hibernate"), Upload::None)
    }
    pub fn wake(&self, name: &str) -> Result<api::Domain> {
        self.json("POST", &domain(name, "/wake"), Upload::None)
    }
    pub fn roll_back(&self, name: &str, how: &api::RollBack) -> Result<api::Domain> {
        self.post(&domain(name, "/rollback"), how)
    }
    pub fn clone_frozen(&self, name: &str, how: &api::CloneFrozen) -> Result<api::Cloned> {
        self.post(&format!("/v1/frozen/{}/clone", segment(name)), how)
    }
    pub fn frozen_prune(&self, which: &api::FrozenPruneOptions) -> Result<api::FrozenPruneReport> {
        self.json("POST", &query("/v1/frozen/prune", which), Upload::None)
    }
    pub fn operation(&self, id: &str) -> Result<api::Operation> {
        self.json("GET", &format!("/v1/operations/{}", segment(id)), Upload::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(domain("a b/c", "/start"), "/v1/domains/a%20b%2Fc/start");
        let which = api::ListOptions { all: true, label: Some("a=b&c".into()), ..Default::default() };
        assert_eq!(query("/v1/domains", &which), "/v1/domains?all=true&label=a%3Db%26c");
        assert_eq!(query("/x", &()), "/x");
    }
}
