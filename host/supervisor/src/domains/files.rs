//! Files and processes of a running domain, through commands of its guest kernel (docs/sessions.md).
//!
//! Boundary: what these commands say is what the domain says. It is parsed, bounded and passed on, nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use doppel_abi_machine::builtin::{Change, FileRecord, ProcessRecord, ThreadRecord};
use doppel_abi_machine::events::{EventRecord, Level};
use doppel_api::{self as api, Code, FileChangeKind, FileKind, Problem};
use doppel_image::{IDENTITY_FILE_MAX, identity};

use crate::core::Core;
use crate::domains::execs::{AHEAD, Exec, Piece};
use crate::domains::run_exec::Program;
use crate::domains::spec;
use crate::domains::{Entry, User};
use crate::keeper::protocol::Stream;
use crate::streams::{self, ByteStream, LineStream};
use crate::time;

/// Most bytes of a listing.
const LISTING: usize = 16 << 20;
/// Most bytes of an error message.
const MESSAGE: usize = 4096;

/// A path as the interface takes it.
fn check_path(path: &str) -> Result<(), Problem> {
    if path.starts_with('/') && !path.contains('\0') && path.len() < 4096 {
        return Ok(());
    }
    Err(spec::wrong(format!("path: {path:?} is not an absolute path")))
}

/// What a command complained of: an errno's name, `:`, what it is about.
fn complaint(text: &[u8]) -> Problem {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let code = match text.split(':').next().unwrap_or_default() {
        "ENOENT" | "ENOTDIR" => Code::FileNotFound,
        "ENOSPC" | "EDQUOT" => Code::StorageFull,
        "EACCES" | "EPERM" | "EROFS" => Code::Forbidden,
        _ => Code::InvalidRequest,
    };
    Problem::new(
        code,
        if text.is_empty() { "the domain gives no reason".to_owned() } else { doppel_api::in_words(text) },
    )
}

impl Core {
    fn check_command(argv: &[String]) -> Result<(), Problem> {
        argv.get(1..).and_then(<[String]>::last).map_or(Ok(()), |path| check_path(path))
    }

    /// Runs a command whose output is a stream. It is over before it begins if nothing but a complaint comes.
    pub async fn builtin_output(
        self: Arc<Self>,
        entry: Arc<Entry>,
        argv: Vec<String>,
    ) -> Result<ByteStream, Problem> {
        Self::check_command(&argv)?;
        let exec = self.run_in(&entry, Program { argv, builtin: true, ..Program::default() }).await?;
        let mut reader = Reader::new(&exec);
        let first = reader.next(&self).await;
        let Some(first) = first else {
            let done = reader.finish(&self).await;
            self.release(&exec).await;
            done?;
            return Ok(streams::produce(|_| async {}));
        };
        Ok(streams::produce_ahead(AHEAD, move |out| async move {
            let mut piece = Some(first);
            while let Some(bytes) = piece {
                if !out.give(Ok(bytes)).await {
                    break;
                }
                piece = tokio::select! {
                    piece = reader.next(&self) => piece,
                    () = out.closed() => break,
                };
            }
            if let Some(Err(problem)) = reader.end(&self).await {
                out.give(Err(problem)).await;
            }
            self.release(&exec).await;
        }))
    }

    /// Runs a command that reads a stream.
    pub async fn builtin_input(
        self: Arc<Self>,
        entry: Arc<Entry>,
        argv: Vec<String>,
        bytes: ByteStream,
    ) -> Result<(), Problem> {
        let exec =
            self.run_in(&entry, Program { argv, builtin: true, stdin: true, ..Program::default() }).await?;
        let fed = self.exec_input(&exec, bytes, true).await;
        let done = match &fed {
            // A command that has ended before says why; a body that broke off is why itself.
            Ok(()) => Reader::new(&exec).finish(&self).await,
            Err(problem) if problem.code == Code::WrongState => {
                Reader::new(&exec).finish(&self).await.and(fed.clone())
            }
            Err(_) => fed.clone(),
        };
        self.release(&exec).await;
        done
    }

    /// Runs a command whose output is short.
    async fn builtin(&self, entry: &Arc<Entry>, argv: &[&str]) -> Result<Vec<u8>, Problem> {
        let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
        let exec = self.run_in(entry, Program { argv, builtin: true, ..Program::default() }).await?;
        let mut reader = Reader::new(&exec);
        let mut all = Vec::new();
        while let Some(piece) = reader.next(self).await {
            all.extend_from_slice(&piece);
            if all.len() > LISTING {
                self.release(&exec).await;
                return Err(Problem::new(Code::TooLarge, format!("more than {LISTING} bytes of answer")));
            }
        }
        let done = reader.finish(self).await;
        self.release(&exec).await;
        done.map(|()| all)
    }

    /// Looks a user up in a running domain, which may have others than its image.
    pub async fn user_of(&self, entry: &Arc<Entry>, user: &str) -> Result<User, Problem> {
        let most = IDENTITY_FILE_MAX.to_string();
        let mut files = BTreeMap::new();
        for name in ["/etc/passwd", "/etc/group"] {
            match self.builtin(entry, &["read", name, "0", &most]).await {
                Ok(bytes) => drop(files.insert(name, bytes)),
                Err(problem) if problem.code == Code::FileNotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        let found = identity(user, |name| files.get(name).cloned());
        Ok(found.map_err(|e| spec::wrong(format!("user: the domain's {e}")))?.into())
    }

    pub async fn file_write(
        self: Arc<Self>,
        entry: Arc<Entry>,
        to: api::WriteFile,
        bytes: ByteStream,
    ) -> Result<(), Problem> {
        check_path(&to.path)?;
        let mode = to.mode.unwrap_or_else(|| "644".into());
        if u32::from_str_radix(&mode, 8).is_err() || mode.len() > 5 {
            return Err(spec::wrong(format!("mode: {mode:?} is no octal number")));
        }
        self.builtin_input(entry, vec!["write".into(), to.path, mode], bytes).await
    }

    pub async fn file_remove(
        self: Arc<Self>,
        entry: Arc<Entry>,
        which: api::RemoveFile,
    ) -> Result<(), Problem> {
        check_path(&which.path)?;
        let argv: &[&str] =
            if which.recursive { &["remove", "-r", &which.path] } else { &["remove", &which.path] };
        self.builtin(&entry, argv).await.map(drop)
    }

    pub async fn file_rename(
        self: Arc<Self>,
        entry: Arc<Entry>,
        which: api::RenameFile,
    ) -> Result<(), Problem> {
        check_path(&which.path)?;
        check_path(&which.to)?;
        self.builtin(&entry, &["rename", &which.path, &which.to]).await.map(drop)
    }

    pub async fn make_directory(self: Arc<Self>, entry: Arc<Entry>, path: &str) -> Result<(), Problem> {
        check_path(path)?;
        self.builtin(&entry, &["mkdir", path]).await.map(drop)
    }

    pub async fn file_info(self: Arc<Self>, entry: Arc<Entry>, path: &str) -> Result<api::FileInfo, Problem> {
        check_path(path)?;
        let answer = self.builtin(&entry, &["stat", path]).await?;
        let mut info = records(&answer, "").next().ok_or_else(nonsense)??;
        let trimmed = path.trim_end_matches('/');
        info.name = trimmed.rsplit('/').next().unwrap_or_default().to_owned();
        info.path = if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() };
        Ok(info)
    }

    pub async fn file_list(
        self: Arc<Self>,
        entry: Arc<Entry>,
        path: &str,
    ) -> Result<Vec<api::FileInfo>, Problem> {
        check_path(path)?;
        let answer = self.builtin(&entry, &["list", path]).await?;
        let mut all = records(&answer, path).collect::<Result<Vec<_>, _>>()?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    pub async fn file_watch(
        self: Arc<Self>,
        entry: Arc<Entry>,
        path: &str,
    ) -> Result<LineStream<api::FileChange>, Problem> {
        check_path(path)?;
        self.records_of(&entry, vec!["watch".into(), path.into()], change).await
    }

    /// Runs a command that prints records as they come, until it ends or nobody reads them. What `read` makes nothing of is
    /// left out.
    async fn records_of<T: Send + 'static>(
        self: Arc<Self>,
        entry: &Arc<Entry>,
        argv: Vec<String>,
        read: fn(&str) -> Option<T>,
    ) -> Result<LineStream<T>, Problem> {
        let exec = self.run_in(entry, Program { argv, builtin: true, ..Program::default() }).await?;
        let mut reader = Reader::new(&exec);
        let mut text = match reader.next(&self).await {
            Some(first) => first.to_vec(),
            None => {
                let done = reader.finish(&self).await;
                self.release(&exec).await;
                done?;
                Vec::new()
            }
        };
        Ok(streams::produce(move |out| async move {
            'all: loop {
                while let Some(end) = text.iter().position(|b| *b == 0) {
                    let word = String::from_utf8_lossy(&text[..end]).into_owned();
                    text.drain(..=end);
                    if let Some(record) = read(&word)
                        && !out.give(record).await
                    {
                        break 'all;
                    }
                }
                let piece = tokio::select! {
                    piece = reader.next(&self) => piece,
                    () = out.closed() => break,
                };
                let Some(piece) = piece.filter(|_| text.len() < LISTING) else { break };
                text.extend_from_slice(&piece);
            }
            let _ = self.exec_kill(&exec, &api::KillOptions::default()).await;
            self.release(&exec).await;
        }))
    }

    /// A domain's processes.
    pub async fn top(self: Arc<Self>, entry: Arc<Entry>) -> Result<Vec<api::ProcessInfo>, Problem> {
        let answer = self.builtin(&entry, &["processes"]).await?;
        let records = answer.split(|b| *b == 0).filter(|r| !r.is_empty());
        records.map(|r| process(&String::from_utf8_lossy(r)).ok_or_else(nonsense)).collect()
    }

    /// A domain's threads, and where they wait.
    pub async fn stacks(self: Arc<Self>, entry: Arc<Entry>) -> Result<Vec<api::ThreadStack>, Problem> {
        let answer = self.builtin(&entry, &["stacks"]).await?;
        let text = String::from_utf8_lossy(&answer);
        ThreadRecord::all(&text).map(|found| found.map(thread).ok_or_else(nonsense)).collect()
    }

    /// What has happened in a domain's guest kernel, and, if wanted, what happens.
    pub async fn debug_events(
        self: Arc<Self>,
        entry: Arc<Entry>,
        which: api::DebugEventOptions,
    ) -> Result<LineStream<api::DebugEvent>, Problem> {
        let argv = if which.follow { &["events", "-f"][..] } else { &["events"] };
        self.records_of(&entry, argv.iter().map(|word| (*word).to_owned()).collect(), event).await
    }

    /// Which of them are kept.
    pub async fn set_debug_events(
        self: Arc<Self>,
        entry: Arc<Entry>,
        to: api::SetDebugEvents,
    ) -> Result<(), Problem> {
        let level = Level::from(to.level);
        self.builtin(&entry, &["event-level", level.word()]).await.map(drop)
    }
}

/// A record of `stacks`.
fn thread((record, [name, channel, calls, program]): (ThreadRecord, [&str; 4])) -> api::ThreadStack {
    api::ThreadStack {
        pid: record.pid,
        tid: record.tid,
        name: name.to_owned(),
        state: record.state.to_string(),
        wait_channel: channel.to_owned(),
        kernel_stack: calls.lines().map(str::to_owned).collect(),
        user_stack: program.lines().map(str::to_owned).collect(),
    }
}

/// A record of `events`.
fn event(text: &str) -> Option<api::DebugEvent> {
    let (record, message) = EventRecord::parse(text)?;
    Some(api::DebugEvent {
        number: record.number,
        at: time::text(UNIX_EPOCH + Duration::from_nanos(record.time_ns)),
        count: record.count,
        level: record.level.into(),
        pid: record.pid,
        tid: record.tid,
        cpu: record.cpu,
        kind: record.kind.to_owned(),
        message: message.to_owned(),
    })
}

fn nonsense() -> Problem {
    Problem::new(Code::Internal, "the domain's answer cannot be read")
}

/// A record of `processes`.
fn process(text: &str) -> Option<api::ProcessInfo> {
    let (record, command) = ProcessRecord::parse(text)?;
    Some(api::ProcessInfo {
        pid: record.pid,
        ppid: record.ppid,
        uid: record.uid,
        state: record.state.to_string(),
        cpu_seconds: record.cpu_ns as f64 / 1e9,
        resident_bytes: record.resident,
        command: command.to_owned(),
    })
}

/// Records of `stat` and `list`.
fn records<'a>(answer: &'a [u8], dir: &'a str) -> impl Iterator<Item = Result<api::FileInfo, Problem>> + 'a {
    let mut parts = answer.split(|b| *b == 0);
    std::iter::from_fn(move || {
        let head = parts.next().filter(|h| !h.is_empty())?;
        let target = parts.next().unwrap_or_default();
        Some(
            record(&String::from_utf8_lossy(head), &String::from_utf8_lossy(target), dir)
                .ok_or_else(nonsense),
        )
    })
}

fn record(head: &str, target: &str, dir: &str) -> Option<api::FileInfo> {
    let (record, name) = FileRecord::parse(head)?;
    let kind = match record.kind {
        'f' => FileKind::File,
        'd' => FileKind::Directory,
        'l' => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let at = Duration::from_nanos(u64::try_from(record.modified).unwrap_or(0));
    Some(api::FileInfo {
        path: format!("{}/{name}", dir.trim_end_matches('/')),
        name: name.to_owned(),
        kind,
        size_bytes: record.size,
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        modified_at: time::text(UNIX_EPOCH + at),
        target: (kind == FileKind::Symlink).then(|| target.to_owned()),
    })
}

/// A line of `watch`.
fn change(line: &str) -> Option<api::FileChange> {
    let (change, name) = Change::parse(line)?;
    let kind = match change {
        Change::Created => FileChangeKind::Created,
        Change::Modified | Change::Written | Change::Changed => FileChangeKind::Modified,
        Change::Removed => FileChangeKind::Removed,
        Change::Ready | Change::Lost => return None,
    };
    Some(api::FileChange { kind, name: name.to_owned() })
}

/// Reads what a command says: its output piece by piece, its complaints on the side.
struct Reader {
    exec: Arc<Exec>,
    at: u64,
    complaint: Vec<u8>,
}

impl Reader {
    fn new(exec: &Arc<Exec>) -> Self {
        Self { exec: exec.clone(), at: 0, complaint: Vec::new() }
    }

    /// The next piece of output; none at its end.
    async fn next(&mut self, core: &Core) -> Option<Bytes> {
        loop {
            let Piece { stream, bytes } = core.exec_next(&self.exec, self.at).await?;
            self.at += 1;
            if stream == Stream::Stdout {
                return Some(bytes);
            }
            let room = MESSAGE.saturating_sub(self.complaint.len());
            self.complaint.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// How it went, if it has ended.
    async fn end(&mut self, core: &Core) -> Option<Result<(), Problem>> {
        if self.exec.describe().running {
            return None;
        }
        Some(self.finish(core).await)
    }

    /// Reads to the end and says how it went.
    async fn finish(&mut self, core: &Core) -> Result<(), Problem> {
        while self.next(core).await.is_some() {}
        match self.exec.ended().await {
            (0, _) => Ok(()),
            (_, Some(reason)) => Err(Problem::new(Code::WrongState, reason)),
            _ => Err(complaint(&self.complaint)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer = b"f 5 644 0 0 1500000000 1 a b\0\0l 1 777 1 2 0 1 link\0/x y\0";
        let all: Vec<_> = records(answer, "/tmp/").map(Result::unwrap).collect();
        assert_eq!((all[0].path.as_str(), all[0].size_bytes, all[0].mode), ("/tmp/a b", 5, 0o644));
        assert_eq!(all[0].modified_at, "1970-01-01T00:00:01.500000Z");
        assert_eq!((all[1].kind, all[1].target.as_deref()), (FileKind::Symlink, Some("/x y")));
        assert!(records(b"nonsense\0\0", "/").next().unwrap().is_err());
        let p = process("7 1 0 0 S 2 1500000000 3 4096 sh -c a b").unwrap();
        assert_eq!((p.pid, p.cpu_seconds, p.resident_bytes, p.command.as_str()), (7, 1.5, 4096, "sh -c a b"));
        assert!(process("7 x").is_none());
        assert_eq!(change("written a b").unwrap().name, "a b");
        assert!(change("ready").is_none());
        let e = event("3 1500000000 2 warning 7 8 1 limit.files no more").unwrap();
        assert_eq!(
            (e.at.as_str(), e.kind.as_str(), e.message.as_str()),
            ("1970-01-01T00:00:01.500000Z", "limit.files", "no more")
        );
        assert!(event("").is_none());
        assert_eq!(complaint(b"ENOENT: /x\n").code, Code::FileNotFound);
    }
}
