//! `doppel exec`: in a domain of the supervisor through it, else through the domain's own socket.

use std::process::ExitCode;

use clap::Args;
use doppel_api::CreateExec;

use super::attached::{End, Program, Tied, Ties, detach_keys, terminal_size};
use super::create::environment;
use super::{Outcome, keeper_of, not_started};
use crate::standalone::exec::{self, ExecArgs};
use crate::terminal::out::TOOL_ERROR;
use crate::terminal::out::{say, tell};

/// Options of `doppel exec`.
#[derive(Args)]
pub struct ExecVerb {
    /// Set the environment variables of a file, a line each
    #[arg(long, value_name = "FILE")]
    env_file: Vec<std::path::PathBuf>,
    /// Keys that detach from a terminal
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q", value_parser = detach_keys)]
    detach_keys: std::vec::Vec<u8>,
    #[command(flatten)]
    args: ExecArgs,
}

/// Runs a command in a running domain.
pub fn exec(verb: ExecVerb) -> Outcome {
    let args = verb.args;
    let Some((client, domain)) = keeper_of(&args.domain)? else {
        if args.spec.detach || !verb.env_file.is_empty() {
            return Err(format!(
                "{} is no domain of the supervisor, as --detach and --env-file need",
                args.domain
            )
            .into());
        }
        return exec::run(args);
    };
    let mut env = environment(&args.env, &verb.env_file)?;
    let CreateExec { tty, stdin, detach, .. } = args.spec;
    if tty {
        let term = std::env::var("TERM").ok().filter(|t| !t.is_empty()).unwrap_or_else(|| "xterm".into());
        env.entry("TERM".into()).or_insert(term);
    }
    let text = |what: &str, value: &std::ffi::OsStr| {
        value.to_str().map(str::to_owned).ok_or_else(|| format!("{what}: {value:?} is no UTF-8"))
    };
    let wanted = CreateExec {
        command: args.command.iter().map(|a| text("command", a)).collect::<Result<_, _>>()?,
        env,
        terminal: if tty { terminal_size() } else { None },
        ..args.spec
    };
    let ties = Ties { stdin, tty, signals: false, detach: verb.detach_keys };
    let tied = Tied::new(ties)?;
    let started = client.exec(&domain.id, &wanted).and_then(|exec| match detach {
        true => Ok((exec, None)),
        false => client.exec_output(&exec.id).map(|lines| (exec, Some(lines))),
    });
    let (exec, lines) = match started {
        Ok(started) => started,
        Err(e) => {
            tell!("doppel: {e}");
            return Ok(ExitCode::from(not_started(&e)));
        }
    };
    let Some(lines) = lines else {
        say!("{}", exec.id)?;
        return Ok(ExitCode::SUCCESS);
    };
    match tied.run(&Program::Exec(exec.id), lines)? {
        End::Exit { code, reason } => {
            if let Some(reason) = reason {
                tell!("doppel: {reason}");
            }
            Ok(ExitCode::from(code))
        }
        End::Detached => Ok(ExitCode::SUCCESS),
        End::Cut => {
            tell!("doppel: the supervisor ended; the program's output is lost");
            Ok(ExitCode::from(TOOL_ERROR))
        }
    }
}
