//! The `doppel` command.
//!
//! Exit codes are Docker's: 125 an error of this tool, 126 and 127 a command that cannot be executed or
//! found, 128 + n a program ended by signal n, else the program's own.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bars;
mod clones;
mod copy_cmd;
mod debug_cmd;
mod defaults;
mod doctor;
mod exec_cmd;
mod first_pull;
mod format;
mod freeze_cmd;
mod frozen_cmd;
mod image_cmd;
mod image_oci_cmd;
mod kind;
mod manual;
mod network;
mod out;
mod rates;
mod remote;
mod rules;
mod run_cmd;
mod sleep_cmd;
mod stats_cmd;
mod time;
mod tips;
mod values;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::image_cmd::{ListArgs, RemoveArgs, Short, ShortArgs};
use crate::image_oci_cmd::{PullArgs, PushArgs};
use crate::out::tell;

/// Runs unmodified Linux programs in isolated domains.
#[derive(Parser)]
#[command(name = "doppel", version, max_term_width = 100, disable_help_flag = true)]
struct Cli {
    /// Print help
    #[arg(long, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a command in a new domain.
    Run(Box<remote::run::RunVerb>),
    /// Run a command in a running domain.
    Exec(Box<remote::exec::ExecVerb>),
    /// Copy files out of or into a running domain.
    Cp(copy_cmd::CopyArgs),
    /// Make a domain without starting it.
    Create(Box<remote::create::CreateArgs>),
    /// Start domains.
    Start(remote::run::StartArgs),
    /// Ask domains to stop, then kill them.
    Stop(remote::lifecycle::StopArgs),
    /// Stop and start domains.
    Restart(remote::lifecycle::StopArgs),
    /// Send domains a signal.
    Kill(remote::lifecycle::KillArgs),
    /// Let domains stand still.
    Pause(remote::Names),
    /// Let domains go on that stand still.
    Unpause(remote::Names),
    /// Wait for the end of domains and print their exit codes.
    Wait(remote::Names),
    /// Remove domains.
    Rm(remote::lifecycle::RmArgs),
    /// Give a domain a new name.
    Rename(remote::lifecycle::RenameArgs),
    /// Change limits of domains.
    Update(Box<remote::lifecycle::UpdateArgs>),
    /// Remove all domains that do not run.
    Prune(remote::lifecycle::PruneArgs),
    /// List domains.
    Ps(remote::show::PsArgs),
    /// Show all that is known of domains, frozen images or root images, as JSON.
    Inspect(remote::show::InspectArgs),
    /// Tie this terminal to a running domain.
    Attach(remote::run::AttachArgs),
    /// Show what a domain printed.
    Logs(remote::watch::LogsArgs),
    /// Show what happens.
    Events(remote::watch::EventsArgs),
    /// Show the processes of a domain, or what all domains use.
    Top(remote::watch::TopArgs),
    /// Show capacity and what is reserved.
    Info(remote::show::Printed),
    /// List and replace service domains.
    #[command(subcommand)]
    Service(remote::services::ServiceCommand),
    /// Go on with the supervisor's program as it is installed now: supervisor, keepers and service domains.
    Upgrade(remote::upgrade::UpgradeArgs),
    /// Show versions.
    Version(remote::show::Printed),
    /// Check what this host needs to run domains.
    Doctor(doctor::DoctorArgs),
    /// Freeze a running domain: keep its memory as a frozen image.
    Freeze(freeze_cmd::FreezeArgs),
    /// Start domains that go on from a frozen image.
    Clone(freeze_cmd::CloneArgs),
    /// Put a running domain to sleep: its memory goes to disk, its processes end.
    Hibernate(sleep_cmd::HibernateArgs),
    /// Go on with a hibernated domain.
    Wake(sleep_cmd::WakeArgs),
    /// List, examine, remove, export and import frozen images.
    #[command(subcommand)]
    Frozen(frozen_cmd::FrozenCommand),
    /// Show what running domains use.
    Stats(stats_cmd::StatsArgs),
    /// Make, list, check and remove root images.
    Image(image_cmd::Args),
    /// Pull an image from a registry: `doppel image pull`.
    Pull(Box<ShortArgs<PullArgs>>),
    /// Push an image to a registry: `doppel image push`.
    Push(ShortArgs<PushArgs>),
    /// List root images: `doppel image ls`.
    Images(ShortArgs<ListArgs>),
    /// Remove root images: `doppel image rm`.
    Rmi(ShortArgs<RemoveArgs>),
    /// Print a completion script for a shell.
    Completion(manual::CompletionArgs),
    /// Write the manual's pages into a directory.
    Man(manual::ManArgs),
    /// Serve sockets of domains; the supervisor's orders come on standard input.
    #[command(name = doppel_net::SERVICE, hide = true)]
    NetworkService {
        /// Sleep whenever there is nothing to do.
        #[arg(long)]
        no_polling: bool,
    },
    /// Show what the security tests need to know.
    #[command(subcommand, hide = true)]
    Debug(debug_cmd::DebugCommand),
}

fn images(args: image_cmd::Args) -> remote::Outcome {
    image_cmd::run(args).map(|()| ExitCode::SUCCESS)
}

const SIGPIPE: i32 = rustix::process::Signal::PIPE.as_raw();

/// Exit code of an error of the tool itself, as opposed to those of the program it runs.
const TOOL_ERROR: u8 = 125;

fn main() -> ExitCode {
    if let Some(code) = doppel_paene::attend() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let e = tips::improved(e);
            let code = if e.use_stderr() { TOOL_ERROR } else { 0 };
            return match e.print() {
                Ok(()) => ExitCode::from(code),
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => doppel_sys::signal::end_by(SIGPIPE),
                Err(_) => ExitCode::from(TOOL_ERROR),
            };
        }
    };
    let result = match cli.verb {
        Verb::Run(args) => remote::run::run(*args),
        Verb::Exec(args) => remote::exec::exec(*args),
        Verb::Cp(args) => copy_cmd::run(&args),
        Verb::Create(args) => remote::create::create(&args),
        Verb::Start(args) => remote::run::start(&args),
        Verb::Stop(args) => remote::lifecycle::stop(&args),
        Verb::Restart(args) => remote::lifecycle::restart(&args),
        Verb::Kill(args) => remote::lifecycle::kill(&args),
        Verb::Pause(args) => remote::lifecycle::pause(&args),
        Verb::Unpause(args) => remote::lifecycle::unpause(&args),
        Verb::Wait(args) => remote::lifecycle::wait(&args),
        Verb::Rm(args) => remote::lifecycle::remove(&args),
        Verb::Rename(args) => remote::lifecycle::rename(&args),
        Verb::Update(args) => remote::lifecycle::update(&args),
        Verb::Prune(args) => remote::lifecycle::prune(&args),
        Verb::Ps(args) => remote::show::ps(&args),
        Verb::Inspect(args) => remote::show::inspect(&args),
        Verb::Attach(args) => remote::run::attach(args),
        Verb::Logs(args) => remote::watch::logs(&args),
        Verb::Events(args) => remote::watch::events(&args),
        Verb::Top(args) => remote::watch::top(&args),
        Verb::Info(args) => remote::show::info(&args),
        Verb::Service(command) => remote::services::run(&command),
        Verb::Upgrade(args) => remote::upgrade::run(&args),
        Verb::Version(args) => remote::show::version(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Completion(args) => manual::completion(&args),
        Verb::Man(args) => manual::man(&args),
        Verb::Freeze(args) => freeze_cmd::freeze(&args),
        Verb::Clone(args) => freeze_cmd::clone(&args),
        Verb::Hibernate(args) => sleep_cmd::hibernate(&args),
        Verb::Wake(args) => sleep_cmd::wake(&args),
        Verb::Frozen(command) => frozen_cmd::run(command).map(|()| ExitCode::SUCCESS),
        Verb::Image(args) => images(args),
        Verb::Pull(args) => images(args.whole(Short::Pull)),
        Verb::Push(args) => images(args.whole(Short::Push)),
        Verb::Images(args) => images(args.whole(Short::Ls)),
        Verb::Rmi(args) => images(args.whole(Short::Rm)),
        Verb::Stats(args) => stats_cmd::run(&args),
        Verb::NetworkService { no_polling } => network::service(!no_polling),
        Verb::Debug(command) => debug_cmd::run(&command),
    };
    // What is still in the buffer counts too.
    let result = result.and_then(|code| Ok(out::stdout().flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(e) if out::is_reader_gone(e.as_ref()) => doppel_sys::signal::end_by(SIGPIPE),
        Err(e) => {
            tell!("doppel: {e}");
            ExitCode::from(TOOL_ERROR)
        }
    }
}
