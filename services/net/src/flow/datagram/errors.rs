//! Errors of datagrams that the host keeps for a socket (IP_RECVERR), for domains whose programs want to know them.

use std::io;

use doppel_abi_service::net::{DatagramHeader, ErrorRecord, SocketOption};
use doppel_service::Broken;

use super::{Datagrams, TurnContext};
use crate::flow::address;
use crate::flow::route::as_seen;

/// Errors told in a turn.
const MOST: usize = 16;
/// Bytes of what was sent that are told with an error: more than ICMP says.
const SENT: usize = 1280;

impl Datagrams {
    /// Whether errors of this family are kept.
    pub(super) fn keeps_errors(&self, v6: bool) -> bool {
        let wanted = self.options.get(SocketOption::ReceiveErrors).unwrap_or(0);
        wanted & 1 << u32::from(v6) != 0
    }

    /// Tells what errors the host has kept; true: there may be more. One for which there is no room is lost, as with Linux.
    pub(super) fn tell_kept(&mut self, v6: bool, around: &mut TurnContext<'_>) -> Result<bool, Broken> {
        if !self.keeps_errors(v6) {
            return Ok(false);
        }
        for _ in 0..MOST {
            let Some((socket, _)) = self.egress[usize::from(v6)].as_mut().filter(|(o, _)| o.errors) else {
                return Ok(false);
            };
            let sent = &mut around.scratch[..SENT];
            let kept = match socket.kept(sent) {
                Ok(kept) => kept,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    socket.errors = false;
                    return Ok(false);
                }
                // Not what was asked for: the next one may be.
                Err(_) => continue,
            };
            // One to whom it has not sent, or may not any more, is not told of.
            let Some((to, _)) = self.flows.get(&kept.to) else { continue };
            let sent = &mut around.scratch[..kept.len.min(SENT)];
            if self.is_echo()
                && let Some(identifier) = sent.get_mut(4..6)
            {
                // The host's is not the domain's.
                identifier.copy_from_slice(&self.at.port.to_be_bytes());
            }
            let record = ErrorRecord {
                errno: kept.errno,
                origin: kept.origin,
                kind: kept.kind,
                code: kept.code,
                info: kept.info,
                offender: kept.offender.map_or([0; 16], |who| address::bytes(as_seen(who).ip())),
            };
            let len = u16::try_from(ErrorRecord::SIZE + sent.len()).unwrap_or(u16::MAX);
            let head = DatagramHeader::record(address::end(to), len, self.at.port);
            let sent = &around.scratch[..kept.len.min(SENT)];
            self.put_behind(around.channel, &head, [&record.encode(), sent])?;
        }
        Ok(true)
    }
}
