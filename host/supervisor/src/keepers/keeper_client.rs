//! The supervisor's end of the connection to the keeper.
//!
//! A [`KeeperClient`] connects to the keeper of a directory, or starts one, and keeps doing so: when a keeper dies, the
//! next one takes its domains over; which, [`Happening::Connected`] tells. Calls wait for a connection, and those that may
//! be repeated are. `keepers` has one for each keeper.

use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use doppel_api::{Code, Problem};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use crate::domains::execs::Execs;
use crate::keeper::protocol::{
    Call, Fault, KeeperCommand, Kept, LONGEST, Message, Notification, PROTOCOL, Refusal, Reply, Stream,
};
use crate::keepers::held_memory::HeldMemory;
use crate::keepers::pulse::{ANSWER, GREETING, Patient};
use crate::{keeper, locked};

/// How long a keeper may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions whether it answers.
const PULSE: Duration = Duration::from_secs(2);
/// How long to wait before the next try to get one.
const AGAIN: Duration = Duration::from_millis(200);
/// How long the last words of a keeper that was killed may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a client of a keeper tells.
#[derive(Debug)]
pub(crate) enum Happening {
    /// There is a connection; these are the domains and the further programs that the keeper knows.
    Connected(Vec<Kept>, Vec<String>),
    /// It is lost.
    Lost,
    /// Notification from the keeper.
    Notification(Notification),
    /// What a further program printed, and behind how many bytes.
    Printed(String, Stream, Option<u32>, Bytes),
}

/// What is said of a call whose keeper died: it may have been done.
const UNANSWERED: &str = "the keeper ended before it answered";

/// Whether nobody knows what became of a call.
pub(crate) fn is_unanswered(problem: &Problem) -> bool {
    problem.code == Code::Internal && problem.detail == UNANSWERED
}

/// How the keeper is started.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub store: PathBuf,
    /// Directory of its socket.
    pub runtime: PathBuf,
    /// How many network services a keeper is to have.
    pub network_shards: usize,
    /// What all domains of a keeper have in common.
    pub defaults: doppel_domain::Defaults,
    /// The program with the `keep` command.
    pub program: PathBuf,
    /// The further programs that the supervisor knows.
    pub execs: Arc<Execs>,
    /// What it has of domains' memory.
    pub held: Arc<HeldMemory>,
}

/// Where what happens is told.
#[derive(Clone, Debug)]
struct Out {
    number: u64,
    happenings: mpsc::UnboundedSender<(u64, Happening)>,
}

impl Out {
    /// Without a supervisor nobody wants to know.
    fn tell(&self, happening: Happening) {
        let _ = self.happenings.send((self.number, happening));
    }
}

type Pending = Arc<Mutex<HashMap<u64, oneshot::Sender<Reply>>>>;

#[derive(Clone, Debug)]
struct Connection {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    pending: Pending,
    readies_clones: bool,
    knows_subnets: bool,
}

/// The link.
#[derive(Debug)]
pub(crate) struct KeeperClient {
    /// The keeper's.
    pub number: u64,
    connection: watch::Receiver<Option<Connection>>,
    next: AtomicU64,
    task: tokio::task::AbortHandle,
}

impl Drop for KeeperClient {
    fn drop(&mut self) {
        // The next supervisor must not have to fight for the connection.
        self.task.abort();
    }
}

impl KeeperClient {
    /// Sets it up; what happens goes into the channel with this number, [`Happening::Connected`] first.
    pub fn new(setup: Setup, number: u64, happenings: mpsc::UnboundedSender<(u64, Happening)>) -> Self {
        let (sender, connection) = watch::channel(None);
        let out = Out { number, happenings };
        let task = tokio::spawn(stay_connected(setup, sender, out)).abort_handle();
        Self { number, connection, next: AtomicU64::new(1), task }
    }

    /// Ends the connection; there is no other.
    pub fn close(&self) {
        self.task.abort();
    }

    /// Whether it may have clones ready.
    pub fn readies_clones(&self) -> bool {
        self.connection.borrow().as_ref().is_some_and(|c| c.readies_clones)
    }

    /// Tells the keeper something, whose answer nobody waits for. One that has gone need not know; whether there is one.
    pub fn tell(&self, ask: KeeperCommand) -> bool {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        match (&*self.connection.borrow(), serde_json::to_vec(&Call { n, command: ask })) {
            (Some(connection), Ok(mut line)) => {
                line.push(b'\n');
                connection.lines.send(line).is_ok()
            }
            _ => false,
        }
    }

    /// Asks the keeper. What can be asked twice is asked its successor again if it dies before it answers.
    pub async fn ask(&self, ask: KeeperCommand) -> Result<Reply, Problem> {
        let lost = |why: &str| Problem::new(Code::Internal, format!("the keeper {why}"));
        let (again, subnets) = (ask.may_be_repeated(), ask.has_subnets());
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = serde_json::to_vec(&Call { n, command: ask }).map_err(|e| lost(&e.to_string()))?;
        line.push(b'\n');
        let mut connection = self.connection.clone();
        loop {
            let there = async { connection.wait_for(Option::is_some).await.ok().and_then(|c| c.clone()) };
            let there = tokio::time::timeout(PATIENCE, there).await.ok().flatten();
            let Some(there) = there else { return Err(lost("cannot be reached; its log says more")) };
            if subnets && !there.knows_subnets {
                let text = "its keeper is of an older version, which gives no addresses out of subnets and knows no weights of networks; `doppel upgrade` first";
                return Err(Problem::new(Code::Unsupported, text));
            }
            let (sender, answer) = oneshot::channel();
            locked(&there.pending).insert(n, sender);
            let _given_up = GivenUp { n, pending: &there.pending };
            let sent = there.lines.send(line.clone()).is_ok();
            match answer.await {
                Ok(Reply::Refused(refusal)) => return Err(refusal.into()),
                Ok(said) => return Ok(said),
                Err(_) if again || !sent => {
                    // The connection that is lost is not the next one.
                    let lines = there.lines.clone();
                    let other =
                        |c: &Option<Connection>| !c.as_ref().is_some_and(|c| c.lines.same_channel(&lines));
                    if tokio::time::timeout(PATIENCE, connection.wait_for(other)).await.is_err() {
                        return Err(lost("cannot be reached; its log says more"));
                    }
                }
                Err(_) => return Err(Problem::new(Code::Internal, UNANSWERED)),
            }
        }
    }
}

/// Forgets a call whose caller has gone.
struct GivenUp<'a> {
    n: u64,
    pending: &'a Pending,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        locked(self.pending).remove(&self.n);
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.fault {
            Fault::Request => Code::InvalidRequest,
            Fault::Image => Code::InvalidRequest,
            Fault::Gone | Fault::State => Code::WrongState,
            Fault::Host => Code::Internal,
            Fault::Full => Code::StorageFull,
            Fault::Unsupported => Code::Unsupported,
            Fault::Port => Code::PortInUse,
            Fault::NotFound => Code::CommandNotFound,
            Fault::NotExecutable => Code::CommandNotExecutable,
        };
        Self::new(code, refusal.text)
    }
}

async fn stay_connected(setup: Setup, connection: watch::Sender<Option<Connection>>, out: Out) {
    while !out.happenings.is_closed() {
        let begun = Instant::now();
        let stream = tokio::select! {
            stream = connect(&setup, out.number) => stream,
            () = out.happenings.closed() => return,
        };
        let result = match stream {
            Ok(stream) => converse(stream, &setup.execs, &connection, &out).await,
            Err(error) => Err(error),
        };
        connection.send_replace(None);
        match result {
            Ok(()) => tracing::warn!("keeper {} has ended", out.number),
            Err(error) => {
                tracing::error!("keeper {}: {error}", out.number);
                // One that was there and died is followed at once.
                tokio::time::sleep(AGAIN.saturating_sub(begun.elapsed())).await;
            }
        }
    }
}

/// Connects to the keeper there is, or starts one.
async fn connect(setup: &Setup, number: u64) -> std::io::Result<UnixStream> {
    let path = keeper::config::socket(&setup.runtime);
    if let Ok(stream) = UnixStream::connect(&path).await {
        return Ok(stream);
    }
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(setup.store.join("supervisor").join("keeper.log"))?;
    let held = setup.held.of(number)?;
    let mut child = tokio::process::Command::new(&setup.program)
        .arg0("doppeld")
        .arg("keep")
        .arg("--store")
        .arg(&setup.store)
        .arg("--runtime")
        .arg(&setup.runtime)
        .arg("--network-shards")
        .arg(setup.network_shards.to_string())
        .arg("--defaults")
        .arg(serde_json::to_string(&setup.defaults)?)
        .arg("--held")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .current_dir("/")
        .spawn()?;
    let ready = async {
        let mut line = String::new();
        if let Some(mut to) = child.stdin.take() {
            // One that ends before it reads says so by that.
            let _ = to.write_all(&held).await;
        }
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).await?;
        }
        Ok::<_, std::io::Error>(line)
    };
    // Should it fail, another keeper may have been there before it: the connection tells.
    let ready = tokio::time::timeout(PATIENCE, ready).await;
    // It lives as long as its domains; if that ends before we do, it must be waited for.
    tokio::spawn(async move { child.wait().await });
    if !matches!(ready, Ok(Ok(line)) if line == "ready\n") {
        tracing::warn!("a keeper does not start; supervisor/keeper.log in the store says why");
    }
    UnixStream::connect(&path).await
}

/// Talks until the connection ends.
async fn converse(
    stream: UnixStream,
    execs: &Execs,
    connection: &watch::Sender<Option<Connection>>,
    out: &Out,
) -> std::io::Result<()> {
    let patient = Patient::of(&stream);
    let (reader, mut writer) = stream.into_split();
    let ask = KeeperCommand::Hello { protocol: PROTOCOL, execs: execs.known(out.number) };
    let hello = serde_json::to_vec(&Call { n: 0, command: ask })?;
    writer.write_all(&hello).await?;
    writer.write_all(b"\n").await?;
    let mut reader = BufReader::with_capacity(32 << 10, reader);
    let mut line = Vec::new();
    let Some(word) = patient.answers(GREETING, next(&mut reader, &mut line)).await? else { return Ok(()) };
    let Greeting { domains, execs: kept, readies_clones, knows_subnets } = greeting(word)?;
    let pending = Pending::default();
    let (lines, queue) = mpsc::unbounded_channel::<Vec<u8>>();
    out.tell(Happening::Connected(domains, kept));
    let (to, waiting) = (lines.clone(), pending.clone());
    connection.send_replace(Some(Connection { lines: to, pending: waiting, readies_clones, knows_subnets }));
    execs.keeper_came(out.number);
    let mut read = std::pin::pin!(listen(reader, line, &pending, out));
    let result = tokio::select! {
        result = &mut read => result,
        () = send(writer, queue) => Ok(()),
        result = keep_asking(&patient, &pending, &lines) => {
            // It was killed for that.
            let _ = tokio::time::timeout(LAST_WORDS, &mut read).await;
            result
        }
        () = out.happenings.closed() => return Ok(()),
    };
    connection.send_replace(None);
    locked(&pending).clear();
    out.tell(Happening::Lost);
    result
}

/// What a keeper says first: which domains and execs it keeps.
struct Greeting {
    domains: Vec<Kept>,
    execs: Vec<String>,
    readies_clones: bool,
    knows_subnets: bool,
}

fn greeting(word: Message) -> std::io::Result<Greeting> {
    match word {
        Message::Reply {
            n: 0,
            reply: Reply::Kept { protocol: PROTOCOL, domains, readies_clones, knows_subnets, execs },
        } => Ok(Greeting { domains, execs, readies_clones, knows_subnets }),
        Message::Reply { reply: Reply::Kept { protocol, .. }, .. } => Err(std::io::Error::other(format!(
            "a keeper of another version runs (protocol {protocol}, not {PROTOCOL}); stop its domains, then it ends"
        ))),
        _ => Err(std::io::Error::other("it does not greet")),
    }
}

/// Sends lines, and never ends.
async fn send(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(mut bytes) = queue.recv().await {
        while let Ok(more) = queue.try_recv() {
            bytes.extend(more);
        }
        if writer.write_all(&bytes).await.is_err() {
            break;
        }
    }
    // That the keeper has died is told by its last words, which are read to their end first.
    std::future::pending::<()>().await;
}

/// Hears answers and news until the connection ends.
async fn listen(
    mut reader: BufReader<OwnedReadHalf>,
    mut line: Vec<u8>,
    pending: &Pending,
    out: &Out,
) -> std::io::Result<()> {
    while let Some(word) = next(&mut reader, &mut line).await? {
        match word {
            Message::Reply { n, reply: said } => {
                if let Some(waiting) = locked(pending).remove(&n) {
                    // Who asked may have gone.
                    let _ = waiting.send(said);
                }
            }
            Message::Notification(Notification::ExecPrinted { exec, stream, bytes, at }) => {
                if bytes > LONGEST {
                    return Err(std::io::Error::other("it sends more than it may"));
                }
                let mut printed = vec![0; bytes];
                reader.read_exact(&mut printed).await?;
                out.tell(Happening::Printed(exec, stream, at, printed.into()));
            }
            Message::Notification(news) => {
                out.tell(Happening::Notification(news));
            }
        }
    }
    Ok(())
}

/// Asks now and then whether it answers; ends when it does not.
async fn keep_asking(
    patient: &Patient,
    pending: &Pending,
    lines: &mpsc::UnboundedSender<Vec<u8>>,
) -> std::io::Result<()> {
    // Nothing is acknowledged by this.
    let mut question = serde_json::to_vec(&Call { n: 0, command: KeeperCommand::Ack { ended: Vec::new() } })?;
    question.push(b'\n');
    loop {
        tokio::time::sleep(PULSE).await;
        let (sender, answer) = oneshot::channel();
        locked(pending).insert(0, sender);
        // That the connection has ended is told by who reads from it.
        let _ = lines.send(question.clone());
        let answer = async { answer.await.map_err(std::io::Error::other) };
        patient.answers(ANSWER, answer).await?;
    }
}

async fn next(reader: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> std::io::Result<Option<Message>> {
    line.clear();
    reader.read_until(b'\n', line).await?;
    if !line.ends_with(b"\n") {
        return Ok(None);
    }
    serde_json::from_slice(line).map(Some).map_err(std::io::Error::other)
}
