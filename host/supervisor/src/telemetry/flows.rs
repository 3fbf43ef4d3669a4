//! Which flows domains have: a page of those of one domain, or of all.

use std::sync::Arc;

use doppel_api::{self as api, Problem};
use doppel_net::{Direction, FlowPage, FlowState, LiveFlow, Protocol};

use crate::core::Core;
use crate::domains::spec::wrong;
use crate::domains::{Entry, is_live};
use crate::keeper::protocol::{KeeperCommand, Reply};

/// Flows of an answer where nobody says how many, and most.
const USUAL: usize = 1000;
const MOST: usize = 10_000;

/// Where to go on: behind all domains with a smaller id, and at this socket's number.
fn place(text: &str) -> Result<(&str, u32), Problem> {
    let parts = text.split_once('.').and_then(|(id, n)| Some((id, n.parse().ok()?)));
    parts.ok_or_else(|| wrong("after: give `next` of the answer before"))
}

impl Core {
    /// Flows of these domains.
    pub async fn flows(
        &self,
        mut entries: Vec<Arc<Entry>>,
        options: &api::FlowOptions,
    ) -> Result<api::FlowList, Problem> {
        let most = options.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&most) {
            return Err(wrong(format!("limit: must be between 1 and {MOST}")));
        }
        let (first, mut from) = options.after.as_deref().map(place).transpose()?.unwrap_or(("", 0));
        entries.retain(|e| *e.id >= *first);
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        let mut list = api::FlowList::default();
        for entry in entries {
            let mut next = Some(if *entry.id == *first { std::mem::take(&mut from) } else { 0 });
            while let Some(at) = next {
                if list.flows.len() >= most {
                    list.next = Some(format!("{}.{at}", entry.id));
                    return Ok(list);
                }
                let page = self.flows_from(&entry, at).await?;
                next = page.next;
                let left_out = page.left_out;
                if let Some(at) = add(&mut list, &entry, page.flows, most) {
                    list.next = Some(format!("{}.{at}", entry.id));
                    return Ok(list);
                }
                // Of a page that is cut the next request has the sockets with theirs.
                list.left_out += left_out;
            }
        }
        Ok(list)
    }

    /// A page of a domain's; an empty one if it does not run.
    async fn flows_from(&self, entry: &Entry, at: u32) -> Result<FlowPage, Problem> {
        let state = entry.state();
        if !is_live(state) && state != api::DomainState::Hibernated {
            return Ok(FlowPage::default());
        }
        let ask = KeeperCommand::Usage { id: entry.id.clone(), flows: Some(at) };
        match self.ask(entry, ask).await {
            Ok(Reply::Flows(page)) => Ok(page),
            Ok(Reply::Usage(_)) => {
                let why = "its keeper is of an older program, which does not tell flows; `doppel upgrade` replaces it";
                Err(Problem::new(api::Code::Unsupported, format!("domain {}: {why}", entry.id)))
            }
            Ok(_) => Err(Problem::new(api::Code::Internal, "a keeper answers something else")),
            // It has ended meanwhile, or has no network while it sleeps.
            Err(problem) if problem.code == api::Code::WrongState => Ok(FlowPage::default()),
            Err(problem) => Err(problem),
        }
    }
}

/// Adds flows up to `most`; the number of the socket to go on with if some are left.
fn add(list: &mut api::FlowList, entry: &Entry, flows: Vec<LiveFlow>, most: usize) -> Option<u32> {
    let name = entry.row().name.clone();
    let mut last = None;
    for (n, flow) in flows.iter().enumerate() {
        if list.flows.len() < most {
            last = Some(flow.socket);
            list.flows.push(described(entry, &name, flow));
            continue;
        }
        // A socket's peers are not told in two parts.
        let rest = flows[n..].iter().filter(|f| Some(f.socket) == last).count();
        list.left_out += rest as u64;
        return flows[n..].iter().map(|f| f.socket).find(|s| Some(*s) != last).or(last.map(|s| s + 1));
    }
    None
}

fn described(entry: &Entry, name: &str, flow: &LiveFlow) -> api::Flow {
    api::Flow {
        domain: entry.id.clone(),
        name: name.to_owned(),
        protocol: match flow.protocol {
            Protocol::Tcp => api::FlowProtocol::Tcp,
            Protocol::Udp => api::FlowProtocol::Udp,
            Protocol::Icmp => api::FlowProtocol::Icmp,
        },
        direction: match flow.direction {
            Direction::Out => api::RuleDirection::Out,
            Direction::In => api::RuleDirection::In,
        },
        local: flow.local,
        peer: flow.peer,
        through: flow.through,
        host: flow.host,
        state: match flow.state {
            FlowState::Connecting => api::FlowState::Connecting,
            FlowState::Established => api::FlowState::Established,
            FlowState::HalfClosed => api::FlowState::HalfClosed,
            FlowState::Closing => api::FlowState::Closing,
            FlowState::Active => api::FlowState::Active,
        },
        sent_bytes: flow.sent,
        received_bytes: flow.received,
        age_seconds: flow.age_ms as f64 / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_go_on() {
        assert_eq!(place("0123.77").unwrap(), ("0123", 77));
        for bad in ["", "x", "x.", "x.-1", "x.y", "x.4294967296"] {
            assert!(place(bad).unwrap_err().detail.contains("after"), "{bad}");
        }
    }
}
