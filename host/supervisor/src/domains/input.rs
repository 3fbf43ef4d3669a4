//! What domains are given to read.
//!
//! Each piece goes to the keeper with its place in the stream, so that it can be asked of the keeper's successor again, which
//! knows by the ring how much the program has.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_api::{self as api, Code, Problem};

use crate::core::Core;
use crate::domains::{Entry, PIECE, length};
use crate::keeper::protocol::{KeeperCommand, Reply};
use crate::locked;
use crate::streams::{ByteStream, next};

impl Core {
    /// Gives a domain input.
    pub async fn input(
        self: Arc<Self>,
        entry: Arc<Entry>,
        mut bytes: ByteStream,
        options: api::InputOptions,
    ) -> Result<(), Problem> {
        if !locked(&entry.row).config.stdin {
            return Err(Problem::new(
                Code::WrongState,
                format!("domain {} was made without standard input (`stdin`)", entry.name()),
            ));
        }
        while let Some(piece) = next(&mut bytes).await {
            for part in piece?.chunks(PIECE) {
                self.give_input(&entry, part, false).await?;
            }
        }
        if options.close {
            self.give_input(&entry, &[], true).await?;
        }
        Ok(())
    }

    /// Gives it a piece, also if nobody waits for that any more: what was begun may be in its hands already.
    async fn give_input(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        part: &[u8],
        close: bool,
    ) -> Result<(), Problem> {
        let len = length(part);
        let (core, entry, data) = (self.clone(), entry.clone(), STANDARD.encode(part));
        let mut given = entry.given.clone().lock_owned().await;
        let task = tokio::spawn(async move {
            let run = locked(&entry.row).run;
            let input = |data, close, at, tell| {
                let id = entry.id.clone();
                core.ask(&entry, KeeperCommand::Input { id, data, close, at, tell })
            };
            if given.is_none_or(|(of, _)| of != run) {
                // A keeper of an older program does not say; then what is lost with it is not given again.
                *given = match input(String::new(), false, None, true).await? {
                    Reply::Given { bytes } => Some((run, bytes)),
                    _ => None,
                };
            }
            let before = given.take();
            input(data, close, before.map(|(_, at)| at), false).await?;
            *given = before.map(|(run, at)| (run, at.wrapping_add(len)));
            Ok(())
        });
        task.await.unwrap_or_else(|e| Err(Problem::new(Code::Internal, format!("a task failed: {e}"))))
    }
}
