//! The verbs whose commands are to begin at once: each is parsed by its own part of the command line's description.
//!
//! The description of all verbs takes longer to build than many commands take. Here only success counts: help, an
//! error, and any other verb are left to the whole description, which says the same of them as ever.

use std::ffi::OsString;

use clap::{Args, Command};

use crate::{Help, Verb};

/// Whether `words` ask for the version and nothing else.
pub fn asks_version(mut words: impl Iterator<Item = OsString>) -> bool {
    words.next().is_some_and(|word| word == "--version" || word == "-V") && words.next().is_none()
}

macro_rules! verbs {
    ($($name:literal => $make:path),* $(,)?) => {
        /// The verb that `words` (without the program's name) stand for; none if the whole description must say.
        pub fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Verb> {
            match words.next()?.to_str()? {
                $($name => alone($name, $make, words),)*
                _ => None,
            }
        }

        #[cfg(test)]
        fn all() -> Vec<Command> {
            vec![$(described($name, $make)),*]
        }
    };
}

verbs! {
    "run" => Verb::Run,
    "exec" => Verb::Exec,
    "create" => Verb::Create,
    "start" => Verb::Start,
    "stop" => Verb::Stop,
    "kill" => Verb::Kill,
    "pause" => Verb::Pause,
    "unpause" => Verb::Unpause,
    "wait" => Verb::Wait,
    "rm" => Verb::Rm,
    "ps" => Verb::Ps,
    "inspect" => Verb::Inspect,
    "logs" => Verb::Logs,
    "stats" => Verb::Stats,
    "freeze" => Verb::Freeze,
    "clone" => Verb::Clone,
    "hibernate" => Verb::Hibernate,
    "wake" => Verb::Wake,
    "rollback" => Verb::Rollback,
}

/// The description of a verb; `_make` says which one's options they are.
fn described<T: Args>(name: &'static str, _make: fn(T) -> Verb) -> Command {
    Help::augment_args(T::augment_args(Command::new(name).disable_help_flag(true)))
}

fn alone<T: Args>(
    name: &'static str,
    make: fn(T) -> Verb,
    words: impl Iterator<Item = OsString>,
) -> Option<Verb> {
    let matches = described(name, make).no_binary_name(true).try_get_matches_from(words).ok()?;
    T::from_arg_matches(&matches).ok().map(make)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn parsed(line: &str) -> Option<Verb> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn a_verb_is_described_as_in_the_whole() {
        let mut whole = Cli::command();
        whole.build();
        for mut own in all() {
            own.build();
            let name = own.get_name().to_owned();
            let there = whole.find_subcommand(&name).expect("a verb");
            // The whole has what all verbs have at its top, and first.
            let said = |command: &Command| {
                let own = command.get_arguments().filter(|a| a.get_id() != "help");
                let mut all: Vec<String> = own.map(|a| format!("{a:?}")).collect();
                all.extend(command.get_groups().filter(|g| g.get_id() != "Help").map(|g| format!("{g:?}")));
                all.sort();
                all
            };
            assert_eq!(said(&own), said(there), "{name}");
            for command in [&own, there] {
                let help = command.get_arguments().find(|a| a.get_id() == "help").expect("help");
                assert_eq!((help.get_long(), help.get_short()), (Some("help"), None), "{name}");
            }
        }
    }

    #[test]
    fn the_version_is_what_the_whole_says() {
        let asks = |line: &str| asks_version(line.split(' ').map(OsString::from));
        for word in ["--version", "-V"] {
            let error = Cli::command().try_get_matches_from(["doppel", word]).unwrap_err();
            assert_eq!(error.to_string(), format!("doppel {}\n", env!("CARGO_PKG_VERSION")));
            assert!(asks(word) && !asks(&format!("{word} run")));
        }
        assert!(!asks("run") && !asks("version"));
    }

    #[test]
    fn only_success_counts() {
        assert!(matches!(parsed("run -h name --rm busybox ls --help"), Some(Verb::Run(_))));
        assert!(matches!(parsed("clone -n 3 warm"), Some(Verb::Clone(_))));
        for line in ["run --help", "run", "run --nosuch busybox", "help run", "images", "--version", "nosuch"]
        {
            assert!(parsed(line).is_none(), "{line}");
        }
    }
}
