//! The `doppel` command.
//!
//! Exit codes are Docker's: 125 an error of this tool, 126 and 127 a command that cannot be executed or
//! found, 128 + n a program ended by signal n, else the program's own.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod host;
mod named;
mod options;
mod standalone;
mod supervised;
mod terminal;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::standalone::image::{ListArgs, RemoveArgs, Short, ShortArgs};
use crate::standalone::registry::{PullArgs, PushArgs};
use crate::terminal::out::{TOOL_ERROR, say, tell};

/// Runs unmodified Linux programs in isolated domains.
#[derive(Parser)]
#[command(name = "doppel", version, max_term_width = 100, disable_help_flag = true)]
struct Cli {
    #[command(flatten)]
    help: Help,
    #[command(subcommand)]
    verb: Verb,
}

/// The option that all verbs have.
#[derive(Args)]
struct Help {
    /// Print help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a command in a new domain.
    Run(Box<supervised::run::RunVerb>),
    /// Run a command in a running domain.
    Exec(Box<supervised::exec::ExecVerb>),
    /// Copy files out of or into a running domain.
    Cp(standalone::copy::CopyArgs),
    /// List the files that a domain has changed.
    Diff(standalone::changes::DiffArgs),
    /// Write all files of a domain as a tar archive.
    Export(standalone::changes::ExportArgs),
    /// Make an image of all files of a domain.
    Commit(standalone::changes::CommitArgs),
    /// Make a domain without starting it.
    Create(Box<supervised::create::CreateArgs>),
    /// Start domains.
    Start(supervised::run::StartArgs),
    /// Ask domains to stop, then kill them.
    Stop(supervised::lifecycle::StopArgs),
    /// Stop and start domains.
    Restart(supervised::lifecycle::StopArgs),
    /// Send domains a signal.
    Kill(supervised::lifecycle::KillArgs),
    /// Let domains stand still.
    Pause(supervised::Names),
    /// Let domains go on that stand still.
    Unpause(supervised::Names),
    /// Wait for the end of domains and print their exit codes.
    Wait(supervised::Names),
    /// Remove domains.
    Rm(supervised::lifecycle::RmArgs),
    /// Give a domain a new name.
    Rename(supervised::lifecycle::RenameArgs),
    /// Show where ports of a domain are published.
    Port(supervised::networks::port::PortArgs),
    /// Change limits of domains.
    Update(Box<supervised::lifecycle::UpdateArgs>),
    /// Remove all domains that do not run.
    Prune(supervised::lifecycle::PruneArgs),
    /// List domains.
    Ps(supervised::show::PsArgs),
    /// Show all that is known of domains, frozen images or root images, as JSON.
    Inspect(supervised::show::InspectArgs),
    /// Tie this terminal to a running domain.
    Attach(supervised::run::AttachArgs),
    /// Show what a domain printed.
    Logs(supervised::watch::LogsArgs),
    /// Show what happens.
    Events(supervised::watch::EventsArgs),
    /// Show the processes of a domain, or what all domains use.
    Top(supervised::watch::TopArgs),
    /// Show capacity and what is reserved.
    Info(supervised::show::Printed),
    /// List and replace service domains.
    #[command(subcommand)]
    Service(supervised::services::ServiceCommand),
    /// Go on with the supervisor's program as it is installed now: supervisor, keepers and service domains.
    Upgrade(supervised::upgrade::UpgradeArgs),
    /// Show versions.
    Version(supervised::show::Printed),
    /// Check what this host needs to run domains.
    Doctor(host::doctor::DoctorArgs),
    /// Freeze a running domain: keep its memory as a frozen image.
    Freeze(standalone::freeze::FreezeArgs),
    /// Start domains that go on from a frozen image.
    Clone(Box<standalone::freeze::CloneArgs>),
    /// Put a running domain to sleep: its memory goes to disk, its processes end.
    Hibernate(standalone::hibernate::HibernateArgs),
    /// Go on with a hibernated domain.
    Wake(standalone::hibernate::WakeArgs),
    /// Have a domain go back to a frozen image of it: what it has become since is gone.
    Rollback(supervised::clones::RollbackArgs),
    /// List, examine, remove, export and import frozen images.
    #[command(subcommand)]
    Frozen(standalone::frozen::FrozenCommand),
    /// Show what running domains use.
    Stats(standalone::stats::StatsArgs),
    /// Make, list, check and remove root images.
    Image(standalone::image::Args),
    /// Make, list and remove volumes.
    #[command(subcommand)]
    Volume(supervised::volumes::VolumeCommand),
    /// Make, list and remove networks, put domains on them, and show what these do there.
    #[command(subcommand)]
    Network(supervised::networks::NetworkCommand),
    /// List and remove layers: what domains have changed of their images' files.
    #[command(subcommand)]
    Layer(standalone::layer::LayerCommand),
    /// Make, list and remove disks: block devices of domains.
    #[command(subcommand)]
    Disk(standalone::disk::DiskCommand),
    /// Pull an image from a registry: `doppel image pull`.
    Pull(Box<ShortArgs<PullArgs>>),
    /// Push an image to a registry: `doppel image push`.
    Push(ShortArgs<PushArgs>),
    /// List root images: `doppel image ls`.
    Images(ShortArgs<ListArgs>),
    /// Remove root images: `doppel image rm`.
    Rmi(ShortArgs<RemoveArgs>),
    /// Print a completion script for a shell.
    Completion(host::manual::CompletionArgs),
    /// Write the manual's pages into a directory.
    Man(host::manual::ManArgs),
    /// Serve sockets of domains; the supervisor's orders come on standard input.
    #[command(name = doppel_net::SERVICE, hide = true)]
    NetworkService {
        /// Sleep whenever there is nothing to do.
        #[arg(long)]
        no_polling: bool,
    },
    /// Serve files of the host to domains; the supervisor's orders come on standard input.
    #[command(name = doppel_storage::SERVICE, hide = true)]
    StorageService {
        /// Sleep whenever there is nothing to do.
        #[arg(long)]
        no_polling: bool,
    },
    /// Show what the security tests need to know.
    #[command(subcommand, hide = true)]
    Debug(host::debug::DebugCommand),
}

fn images(args: standalone::image::Args) -> supervised::Outcome {
    standalone::image::run(args).map(|()| ExitCode::SUCCESS)
}

/// What the command line asks for, or the exit code if that has been said.
fn parsed() -> Result<Verb, ExitCode> {
    if let Some(verb) = named::parse(std::env::args_os().skip(1)) {
        return Ok(verb);
    }
    Cli::try_parse().map(|cli| cli.verb).map_err(|e| {
        let e = terminal::tips::improved(e);
        let code = if e.use_stderr() { TOOL_ERROR } else { 0 };
        match e.print() {
            Ok(()) => ExitCode::from(code),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => doppel_sys::signal::end_by(SIGPIPE),
            Err(_) => ExitCode::from(TOOL_ERROR),
        }
    })
}

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

fn act(verb: Verb) -> supervised::Outcome {
    match verb {
        Verb::Run(args) => supervised::run::run(*args),
        Verb::Exec(args) => supervised::exec::exec(*args),
        Verb::Cp(args) => standalone::copy::run(&args),
        Verb::Diff(args) => standalone::changes::diff(&args),
        Verb::Export(args) => standalone::changes::export(&args),
        Verb::Commit(args) => standalone::changes::commit(&args),
        Verb::Create(args) => supervised::create::create(&args),
        Verb::Start(args) => supervised::run::start(&args),
        Verb::Stop(args) => supervised::lifecycle::stop(&args),
        Verb::Restart(args) => supervised::lifecycle::restart(&args),
        Verb::Kill(args) => supervised::lifecycle::kill(&args),
        Verb::Pause(args) => supervised::lifecycle::pause(&args),
        Verb::Unpause(args) => supervised::lifecycle::unpause(&args),
        Verb::Wait(args) => supervised::lifecycle::wait(&args),
        Verb::Rm(args) => supervised::lifecycle::remove(&args),
        Verb::Rename(args) => supervised::lifecycle::rename(&args),
        Verb::Port(args) => supervised::networks::port::run(&args),
        Verb::Update(args) => supervised::lifecycle::update(&args),
        Verb::Prune(args) => supervised::lifecycle::prune(&args),
        Verb::Ps(args) => supervised::show::ps(&args),
        Verb::Inspect(args) => supervised::show::inspect(&args),
        Verb::Attach(args) => supervised::run::attach(args),
        Verb::Logs(args) => supervised::watch::logs(&args),
        Verb::Events(args) => supervised::watch::events(&args),
        Verb::Top(args) => supervised::watch::top(&args),
        Verb::Info(args) => supervised::show::info(&args),
        Verb::Service(command) => supervised::services::run(&command),
        Verb::Upgrade(args) => supervised::upgrade::run(&args),
        Verb::Version(args) => supervised::show::version(&args),
        Verb::Doctor(args) => host::doctor::run(&args),
        Verb::Completion(args) => host::manual::completion(&args, &mut Cli::command()),
        Verb::Man(args) => host::manual::man(&args, Cli::command()),
        Verb::Freeze(args) => standalone::freeze::freeze(&args),
        Verb::Clone(args) => standalone::freeze::clone(&args),
        Verb::Hibernate(args) => standalone::hibernate::hibernate(&args),
        Verb::Wake(args) => standalone::hibernate::wake(&args),
        Verb::Rollback(args) => supervised::clones::roll_back(&args),
        Verb::Frozen(command) => standalone::frozen::run(command).map(|()| ExitCode::SUCCESS),
        Verb::Image(args) => images(args),
        Verb::Volume(command) => supervised::volumes::run(&command),
        Verb::Network(command) => supervised::networks::run(&command),
        Verb::Layer(command) => standalone::layer::run(&command),
        Verb::Disk(command) => standalone::disk::run(&command),
        Verb::Pull(args) => images(args.whole(Short::Pull)),
        Verb::Push(args) => images(args.whole(Short::Push)),
        Verb::Images(args) => images(args.whole(Short::Ls)),
        Verb::Rmi(args) => images(args.whole(Short::Rm)),
        Verb::Stats(args) => standalone::stats::run(&args),
        Verb::NetworkService { no_polling } => options::network::service(!no_polling),
        Verb::StorageService { no_polling } => options::storage::service(!no_polling),
        Verb::Debug(command) => host::debug::run(&command),
    }
}

fn main() -> ExitCode {
    if let Some(code) = doppel_paene::attend() {
        return code;
    }
    let result = if named::asks_version(std::env::args_os().skip(1)) {
        say!("doppel {}", env!("CARGO_PKG_VERSION")).map(|()| ExitCode::SUCCESS).map_err(Into::into)
    } else {
        match parsed() {
            Ok(verb) => act(verb),
            Err(code) => return code,
        }
    };
    // What is still in the buffer counts too.
    let result = result.and_then(|code| Ok(terminal::out::stdout().flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(e) if terminal::out::is_reader_gone(e.as_ref()) => doppel_sys::signal::end_by(SIGPIPE),
        Err(e) => {
            tell!("doppel: {e}");
            ExitCode::from(TOOL_ERROR)
        }
    }
}
