//! What supervisor and keeper say to each other: lines of JSON over a Unix socket.
//!
//! The supervisor sends [`Call`]s; each is answered once by a [`Message::Reply`] with its number, in any order. The keeper
//! also sends [`Message::Notification`] unasked. The bytes that a further program printed follow the line that announces them as
//! they are: they come in great numbers. Both are one program, but may be of different builds when a keeper outlives an
//! update: [`PROTOCOL`] goes up with every change that an older end would misunderstand.

mod on_the_way;

use std::path::{Path, PathBuf};

pub(crate) use doppel_api::{LogTarget as Log, Resources as Limits};
use doppel_disks::FrozenDisks;
use doppel_freezer::FrozenImage;
use doppel_spec::{CreateDomain, ExecConfig, Program};
use serde::{Deserialize, Serialize};

/// Version of this protocol.
pub(crate) const PROTOCOL: u32 = 9;
/// Longest line either end accepts.
pub(crate) const LONGEST: usize = 4 << 20;
/// Most bytes of a further program's output that are on their way; see [`ExecCommand::Taken`].
pub(crate) const WINDOW: u64 = 1 << 20;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Its number.
    pub n: u64,
    /// What is wanted.
    #[serde(rename = "ask")]
    pub command: KeeperCommand,
}

/// What can be asked of the keeper.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeeperCommand {
    /// How the network services are. Answered by [`Reply::Services`].
    Services,
    /// Ends what is made ready of this frozen image, which is to go. Answered by [`Reply::Forgot`].
    Forget {
        /// Its file.
        frozen: PathBuf,
    },
    /// Replaces the network services by ones of this program; answered likewise.
    UpgradeServices {
        /// The program with the command of a service.
        program: PathBuf,
        /// Only if they are of another file than this.
        if_other: bool,
    },
    /// Lets go of all domains, for a keeper of this program to take over, and ends; nothing if it is of that file itself.
    GiveWay {
        /// The program with the command of a keeper.
        program: PathBuf,
    },
    /// Takes over: the connection before this one is closed. Answered by [`Reply::Kept`].
    Hello {
        /// [`PROTOCOL`] of the supervisor.
        protocol: u32,
        /// Further programs that it knows; all others are nobody's and are hung up.
        #[serde(default)]
        execs: Vec<KnownExec>,
    },
    /// Starts a domain. Answered by [`Reply::Started`] when it runs.
    Start {
        /// Its id.
        id: String,
        /// Number of this run of it.
        run: u64,
        /// Somebody follows it already.
        follow: bool,
        /// What to start.
        spec: Box<Spec>,
    },
    /// Sends its first process a signal.
    Signal {
        /// Its id.
        id: String,
        /// Number of the signal.
        signal: i32,
    },
    /// Kills all of it.
    Kill {
        /// Its id.
        id: String,
        /// Seconds that one with a layer has to write it before.
        #[serde(default)]
        grace: u32,
    },
    /// Has it stand still.
    Pause {
        /// Its id.
        id: String,
    },
    /// Lets it go on.
    Unpause {
        /// Its id.
        id: String,
    },
    /// Gives its program input; answered when all of it has been taken.
    Input {
        /// Its id.
        id: String,
        /// The bytes, in base64.
        data: String,
        /// That was all.
        close: bool,
        /// How many bytes came before these, modulo 2^32: what of them it has already is not given again.
        #[serde(default)]
        at: Option<u32>,
        /// [`Reply::Given`] is the answer.
        #[serde(default)]
        tell: bool,
    },
    /// Changes the size of its terminal.
    Resize {
        /// Its id.
        id: String,
        /// Lines.
        rows: u16,
        /// Columns.
        columns: u16,
    },
    /// Sends what it prints as [`Notification::Printed`] from now on. Answered by [`Reply::Printed`]: what came last.
    Follow {
        /// Its id.
        id: String,
    },
    /// No longer.
    Unfollow {
        /// Its id.
        id: String,
    },
    /// Writes its memory to a frozen image.
    Freeze {
        /// Its id.
        id: String,
        /// The image's file.
        to: PathBuf,
        /// End it afterwards.
        stop: bool,
        /// The image refers to no other.
        #[serde(default)]
        whole: bool,
        /// It is hibernated: its connections stay, and [`Notification::Called`] says when something comes for it.
        keep_network: bool,
        /// One that is hibernated stays as it is if it has something to do by itself before so many milliseconds are over.
        #[serde(default)]
        least_ms: u64,
    },
    /// Keeps what is on a disk now that it writes. Answered by [`Reply::KeptDisk`].
    KeepDisk {
        /// Its id.
        id: String,
        /// The disk's name.
        disk: String,
        /// As long as this file is there.
        needed_by: PathBuf,
    },
    /// A hibernated domain is no more: its connections end.
    Release {
        /// Its id.
        id: String,
    },
    /// Changes its limits.
    Update {
        /// Its id.
        id: String,
        /// All of them, the unchanged ones too.
        #[serde(with = "crate::limits")]
        limits: Limits,
    },
    /// Others of its network find it by another name.
    Name {
        /// Its id.
        id: String,
        /// The name.
        name: String,
    },
    /// Puts it on other networks. Not for older keepers: those whose domains say no networks.
    Networks {
        /// Its id.
        id: String,
        /// All of them.
        networks: Vec<doppel_net::Membership>,
        /// They are internal.
        internal: bool,
    },
    /// Gives its network other rules.
    Rules {
        /// Its id.
        id: String,
        /// All of them.
        rules: doppel_net::Rules,
    },
    /// Counts what it uses; or, with a place to begin from, tells its flows ([`Reply::Flows`]). An older keeper counts.
    Usage {
        /// Its id.
        id: String,
        /// [`doppel_net::FlowPage::next`] of those before, or 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        flows: Option<u32>,
    },
    /// Forgets how domains ended: it has been written down.
    Ack {
        /// Their ids and runs.
        ended: Vec<(String, u64)>,
    },
    /// Its memory by kind.
    Memory {
        /// Its id.
        id: String,
    },
    /// Starts a further program in it. Answered by [`Reply::ExecStarted`] when it runs.
    Exec {
        /// The domain's id.
        id: String,
        /// The program's id.
        exec: String,
        /// What to start.
        spec: Box<ExecConfig<String>>,
    },
    /// Something about such a program.
    ToExec {
        /// Its id.
        exec: String,
        /// What.
        #[serde(rename = "ask")]
        command: ExecCommand,
    },
}

impl KeeperCommand {
    /// Whether it may be asked again of another keeper when the one that was asked has died, and may have done it.
    pub fn may_be_repeated(&self) -> bool {
        // Input without its place would be given twice, and a frozen image is there already. Programs have ids.
        !matches!(self, Self::Input { at: None, tell: false, .. } | Self::Freeze { .. })
    }

    /// Whether it is about networks with subnets, or shares of a network service.
    pub fn has_subnets(&self) -> bool {
        let shares =
            |rules: &doppel_net::Rules| rules.rates.weight.is_some() || rules.rates.guaranteed.is_some();
        let some = |networks: &[doppel_net::Membership]| networks.iter().any(|one| !one.spaces.is_empty());
        match self {
            Self::Start { spec, .. } => {
                spec.network().is_some_and(|wanted| some(&wanted.networks()) || shares(&wanted.rules))
            }
            Self::Rules { rules, .. } => shares(rules),
            Self::Networks { networks, .. } => some(networks),
            _ => false,
        }
    }
}

/// A further program that the supervisor knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KnownExec {
    /// Its id.
    pub exec: String,
    /// Of its domain.
    pub domain: String,
    /// Bytes of its output that came and are not [`ExecCommand::Taken`] yet.
    pub waiting: u64,
}

/// What can be asked about a further program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecCommand {
    /// So many more bytes of its output have been taken.
    Taken {
        /// How many.
        bytes: u64,
    },
    /// Sends it a signal.
    Signal {
        /// Which.
        signal: i32,
    },
    /// Its terminal has another size.
    Resize {
        /// Lines.
        rows: u16,
        /// Columns.
        columns: u16,
    },
    /// Gives it input; answered when all of it has been taken.
    Input {
        /// The bytes, in base64.
        data: String,
        /// That was all.
        close: bool,
        /// How many bytes came before these, modulo 2^32: what of them it has already is not given again.
        #[serde(default)]
        at: Option<u32>,
    },
    /// Hangs up. One that has ended is forgotten: until then its end is told every supervisor that asks.
    Release,
}

/// What to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spec {
    /// A program on a root image.
    Boot(Boot),
    /// From a frozen image.
    Resume(Resume),
}

impl Spec {
    /// What was asked for.
    pub fn asked(&self) -> &CreateDomain {
        match self {
            Self::Boot(boot) => &boot.spec,
            Self::Resume(resume) => &resume.spec,
        }
    }

    /// The network that it is to have.
    pub fn network(&self) -> Option<&doppel_net::EndpointSpec> {
        match self {
            Self::Boot(boot) => boot.network.as_ref(),
            Self::Resume(resume) => resume.network.as_ref(),
        }
    }

    /// Directory of the layer that it goes on with.
    pub fn layer(&self) -> Option<&Path> {
        match self {
            Self::Boot(boot) => boot.layer.as_deref(),
            Self::Resume(resume) => resume.layer.as_deref(),
        }
    }

    /// Where its binds and volumes are.
    pub fn sources(&self) -> &[PathBuf] {
        match self {
            Self::Boot(boot) => &boot.sources,
            Self::Resume(resume) => &resume.sources,
        }
    }

    /// So long another domain of its image is kept ready to start.
    pub fn spare_seconds(&self) -> u32 {
        match self {
            Self::Boot(boot) => boot.spare_seconds,
            Self::Resume(resume) => resume.spare_seconds,
        }
    }

    /// What a storage service knew of the files in these before, if it goes on from a frozen image.
    pub fn nodes(&self) -> Option<&Path> {
        match self {
            Self::Boot(_) => None,
            Self::Resume(resume) => resume.nodes.as_deref(),
        }
    }

    /// Where its disks are.
    pub fn disks(&self) -> &[PathBuf] {
        match self {
            Self::Boot(boot) => &boot.disks,
            Self::Resume(resume) => &resume.disks,
        }
    }

    /// What these were, if it goes on itself from a frozen image.
    pub fn frozen_disks(&self) -> doppel_disks::Result<FrozenDisks> {
        match self {
            Self::Resume(resume) if resume.wake => {
                FrozenDisks::open(&FrozenImage::volumes_beside(&resume.frozen))
            }
            _ => Ok(FrozenDisks::default()),
        }
    }
}

/// A program on a root image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Boot {
    /// The image's file.
    pub image: PathBuf,
    #[serde(flatten)]
    pub program: Program<String>,
    /// Where on this host its binds and volumes are, in their order.
    #[serde(default)]
    pub sources: Vec<PathBuf>,
    /// Directory of the layer that keeps what it changes.
    #[serde(default)]
    pub layer: Option<PathBuf>,
    /// Directories of its disks, in their order.
    #[serde(default)]
    pub disks: Vec<PathBuf>,
    /// File of the frozen image that it may make of itself.
    pub freeze_to: Option<PathBuf>,
    pub network: Option<doppel_net::EndpointSpec>,
    /// So long another domain of this image is kept ready to start.
    pub spare_seconds: u32,
    /// What was asked for; last, as it is what the fields above leave over.
    #[serde(flatten, with = "on_the_way")]
    pub spec: CreateDomain,
}

/// From a frozen image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Resume {
    /// The frozen image's file.
    pub frozen: PathBuf,
    /// Which clone, from 1 on; 0 for a domain that wakes.
    pub index: u32,
    pub wake: bool,
    /// Directory of the layer of one that wakes.
    #[serde(default)]
    pub layer: Option<PathBuf>,
    /// See [`Boot::sources`].
    #[serde(default)]
    pub sources: Vec<PathBuf>,
    /// What a storage service knew of the files in these.
    #[serde(default)]
    pub nodes: Option<PathBuf>,
    /// See [`Boot::disks`].
    #[serde(default)]
    pub disks: Vec<PathBuf>,
    /// What runs beside what was frozen, if anything.
    #[serde(flatten)]
    pub program: Program<String>,
    /// Lines of `/sys/doppel/args`.
    pub args: Vec<String>,
    pub freeze_to: Option<PathBuf>,
    pub network: Option<doppel_net::EndpointSpec>,
    /// See [`Boot::spare_seconds`].
    #[serde(default)]
    pub spare_seconds: u32,
    /// See [`Boot::spec`].
    #[serde(flatten, with = "on_the_way")]
    pub spec: CreateDomain,
}

/// What the keeper says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The answer to a call.
    #[serde(rename = "answer")]
    Reply {
        /// Its number.
        n: u64,
        /// The answer.
        #[serde(rename = "said")]
        reply: Reply,
    },
    /// Something happened.
    #[serde(rename = "news")]
    Notification(Notification),
}

/// Answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// It is done.
    Done,
    /// It is not.
    Refused(Refusal),
    /// To [`KeeperCommand::Input`]: it is done, and the program has so many bytes of input, modulo 2^32.
    Given { bytes: u32 },
    /// To [`KeeperCommand::Hello`].
    Kept {
        /// [`PROTOCOL`] of the keeper.
        protocol: u32,
        /// What it keeps.
        domains: Vec<Kept>,
        /// It may have clones ready, and understands [`KeeperCommand::Forget`]; older ones do not.
        #[serde(default)]
        readies_clones: bool,
        /// It gives domains addresses out of subnets.
        #[serde(default)]
        knows_subnets: bool,
        /// Ids of the further programs that it has.
        #[serde(default)]
        execs: Vec<String>,
    },
    /// To [`KeeperCommand::Forget`].
    Forgot {
        /// There was something, which ends.
        any: bool,
    },
    /// To [`KeeperCommand::Start`].
    Started {
        /// Host process id of its first process.
        pid: i32,
        /// When.
        at: String,
        /// What could not be enforced although nobody asked for it.
        warnings: Vec<String>,
        /// Stages of the start, and how many microseconds each took.
        stages: Vec<(String, u64)>,
        /// Where it is in its networks.
        network: Option<Box<doppel_net::Endpoint>>,
    },
    /// To [`KeeperCommand::Follow`].
    Printed(Vec<Line>),
    /// To [`KeeperCommand::Freeze`].
    Frozen {
        /// Bytes of memory in it.
        bytes: u64,
        /// Bytes of that which were written.
        #[serde(default)]
        written: u64,
        /// Microseconds until all stood still.
        stop_us: u64,
        /// Microseconds for which it did.
        pause_us: u64,
        /// Milliseconds until it has something to do by itself, if ever.
        #[serde(default)]
        due_in_ms: Option<u64>,
    },
    /// To [`KeeperCommand::KeepDisk`].
    KeptDisk {
        /// What is kept, by its name in the store.
        kept: String,
    },
    /// To [`KeeperCommand::Exec`].
    ExecStarted {
        /// Its process id inside; 0 if it has ended already.
        pid: i32,
    },
    /// To [`KeeperCommand::Services`], by older keepers: network services, each with the number of its networks.
    Services(Vec<(doppel_net::Health, usize)>),
    /// To [`KeeperCommand::Services`].
    AllServices {
        /// Network services, each with the number of its networks.
        network: Vec<(doppel_net::Health, usize)>,
        /// The storage service, if there is one.
        storage: Option<doppel_net::Health>,
    },
    /// To [`KeeperCommand::Usage`].
    Usage(Box<Usage>),
    /// To [`KeeperCommand::Usage`] with a place to begin from.
    Flows(doppel_net::FlowPage),
    /// To [`KeeperCommand::Memory`].
    Memory {
        /// Its own pages, in bytes.
        private_bytes: u64,
        /// Pages in common with others, in bytes.
        shared_bytes: u64,
    },
}

/// Why something was not done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Whose fault it is.
    pub fault: Fault,
    /// In words.
    pub text: String,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The request was wrong.
    Request,
    /// The image cannot be used.
    Image,
    /// The domain has ended or is unknown.
    Gone,
    /// The domain does not run, or cannot do this now.
    State,
    /// The host refused, or the disk is full.
    Host,
    /// The disk is full.
    Full,
    /// The host cannot do that.
    Unsupported,
    /// A port cannot be published.
    Port,
    /// The command is not in the image.
    NotFound,
    /// The command cannot be executed.
    NotExecutable,
}

/// A domain the keeper knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub id: String,
    pub run: u64,
    /// Host process id; none while it is being started.
    pub pid: Option<i32>,
    pub started_at: Option<String>,
    pub paused: bool,
    /// Where it is in its network.
    pub network: Option<doppel_net::Endpoint>,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
}

/// How a run of a domain ended; also the content of `exit.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub id: String,
    pub run: u64,
    pub code: u8,
    pub reason: Option<String>,
    pub out_of_memory: bool,
    pub at: String,
    /// It did not end: its memory is in a frozen image.
    pub asleep: bool,
    /// Nobody saw how it ended.
    #[serde(default)]
    pub lost: bool,
    pub usage: Usage,
}

impl Exit {
    /// As the interface gives it.
    pub fn info(&self) -> doppel_api::ExitInfo {
        doppel_api::ExitInfo {
            exit_code: self.code,
            out_of_memory: self.out_of_memory,
            reason: self.reason.clone(),
            at: self.at.clone(),
        }
    }
}

/// What a domain has used in this run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub cpu_seconds: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// Of a domain with a swap region.
    #[serde(default)]
    pub swap_bytes: Option<u64>,
    pub pids: Option<u32>,
    pub oom_kills: Option<u64>,
    pub io_read_bytes: Option<u64>,
    pub io_write_bytes: Option<u64>,
    pub console_bytes: u64,
    pub page_seconds: f64,
    /// What the domain says; it never goes down.
    #[serde(default)]
    pub calls: Option<u64>,
    /// What the network service says; it never goes down.
    #[serde(default)]
    pub traffic: Option<doppel_net::Traffic>,
    /// What the storage service says; it never goes down.
    #[serde(default)]
    pub storage: Option<doppel_api::StorageStats>,
}

/// A piece of output: as a line of a log file, and in news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Goes up within a domain, over all its runs.
    pub n: u64,
    /// When it was read.
    pub time: String,
    /// Of which stream.
    pub stream: Stream,
    /// Bytes of the stream up to its end, modulo 2^32: whoever goes on with it after a keeper's death does so here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u32>,
    /// The text, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The bytes in base64, if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// Streams of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    /// The guest kernel's own words.
    Log,
}

impl From<doppel_domain::Stream> for Stream {
    fn from(stream: doppel_domain::Stream) -> Self {
        match stream {
            doppel_domain::Stream::Stdout => Self::Stdout,
            doppel_domain::Stream::Stderr => Self::Stderr,
            doppel_domain::Stream::Log => Self::Log,
        }
    }
}

impl From<Stream> for doppel_domain::Stream {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
            Stream::Log => Self::Log,
        }
    }
}

/// What happened.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Notification {
    /// A domain that is followed printed something.
    Printed {
        /// Its id.
        id: String,
        /// What.
        line: Line,
    },
    /// So many bytes of a domain's output were not sent, because the supervisor did not read.
    Lost {
        /// Its id.
        id: String,
        /// How many.
        bytes: u64,
    },
    /// A domain runs that was being started when the supervisor connected.
    Started {
        /// Its id.
        id: String,
        /// Number of the run.
        run: u64,
        /// Host process id of its first process.
        pid: i32,
        /// When.
        at: String,
        /// Where it is in its network.
        network: Option<doppel_net::Endpoint>,
    },
    /// A domain has ended. Known until [`KeeperCommand::Ack`].
    Ended(Box<Exit>),
    /// A further program printed so many bytes, which follow this line; see [`ExecCommand::Taken`].
    ExecPrinted {
        /// Its id.
        exec: String,
        /// Of which stream.
        stream: Stream,
        /// How many.
        bytes: usize,
        /// How many came before them, modulo 2^32: after a keeper's death some come again.
        #[serde(default)]
        at: Option<u32>,
    },
    /// A further program has ended; told again until [`ExecCommand::Release`].
    ExecEnded {
        /// Its id.
        exec: String,
        /// Its exit code.
        code: u8,
        /// Why, if it did not end by itself.
        reason: Option<String>,
    },
    /// Something has come over the network for a hibernated domain.
    Called {
        /// Its id.
        id: String,
    },
    /// A rule of a domain's network that logs let something through or not.
    Firewall {
        /// Its id.
        id: String,
        /// What.
        line: doppel_net::Line,
    },
    /// A program of a domain asked for it to be frozen.
    FrozeItself {
        /// Its id.
        id: String,
        /// Why it was not, if it was not.
        failed: Option<String>,
    },
}
