//! `--allow`, `--deny`, `--allow-in`, `--deny-in` and `--rules`: what may go out and come in, in the order of the command line.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use doppel_api::{NetworkRule, RuleAction, RuleDirection};
use doppel_net::{Action, Direction, Pattern, Rule, Rules};
use serde::Deserialize;

/// Option, what it does, and what it says of itself.
const OPTIONS: [(&str, RuleAction, RuleDirection, &str); 4] = [
    (
        "allow",
        RuleAction::Allow,
        RuleDirection::Out,
        "Let the domain connect and send to what fits: any, ADDRESS[/BITS], NAME or *.NAME, with :PORT or :FIRST-LAST, \
         with /tcp, /udp or /icmp. Of these options and --deny the first that fits decides; if none does, what is public is \
         open and what is private is not",
    ),
    ("deny", RuleAction::Deny, RuleDirection::Out, "Do not let it connect and send to what fits"),
    (
        "allow-in",
        RuleAction::Allow,
        RuleDirection::In,
        "Let connect and send to it who fits; the port is the domain's",
    ),
    ("deny-in", RuleAction::Deny, RuleDirection::In, "Do not let connect and send to it who fits"),
];

/// Options about rules. By hand, for derived options do not know in which order they came.
#[derive(Clone, Debug, Default)]
pub struct RuleArgs {
    given: Vec<NetworkRule>,
    file: Option<PathBuf>,
}

impl Args for RuleArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("rules")
            .long("rules")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Rules of a file in TOML, after those of the command line (docs/services.md)");
        let option = |(name, _, _, help): (&'static str, _, _, &'static str)| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .value_parser(checked)
                .help(help)
        };
        command.args(OPTIONS.map(option)).arg(file)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn checked(text: &str) -> Result<String, String> {
    text.parse::<Pattern>().map(|_| text.to_owned())
}

impl FromArgMatches for RuleArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found: Vec<(usize, NetworkRule)> = Vec::new();
        for (name, action, direction, _) in OPTIONS {
            let (Some(at), Some(patterns)) = (matches.indices_of(name), matches.get_many::<String>(name))
            else {
                continue;
            };
            let rule = |pattern: &String| NetworkRule {
                action,
                direction,
                pattern: pattern.clone(),
                log: false,
                rate: None,
            };
            found.extend(at.zip(patterns.map(rule)));
        }
        found.sort_by_key(|(at, _)| *at);
        let given = found.into_iter().map(|(_, rule)| rule).collect();
        Ok(Self { given, file: matches.get_one::<PathBuf>("rules").cloned() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A file of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<NetworkRule>,
}

impl RuleArgs {
    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.file.is_none()
    }

    /// All of them, for the supervisor.
    pub fn all(&self) -> Result<Vec<NetworkRule>, String> {
        let mut all = self.given.clone();
        if let Some(path) = &self.file {
            let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
            let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
            all.extend(toml::from_str::<File>(&text).map_err(|e| named(&e))?.rule);
        }
        Ok(all)
    }

    /// All of them, for a network service of this command's own.
    pub fn of_service(&self) -> Result<Rules, String> {
        let mut rules = Rules::default();
        for r in self.all()? {
            let direction = match r.direction {
                RuleDirection::Out => Direction::Out,
                RuleDirection::In => Direction::In,
            };
            let action = match r.action {
                RuleAction::Allow => Action::Allow,
                RuleAction::Deny => Action::Deny,
            };
            rules.add(direction, Rule { pattern: r.pattern.parse()?, action, log: r.log, rate: r.rate })?;
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<RuleArgs, clap::Error> {
        let command = RuleArgs::augment_args(Command::new("run"));
        RuleArgs::from_arg_matches(&command.try_get_matches_from([&["run"], line].concat())?)
    }

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let line = ["--deny", "10.0.0.1", "--allow", "10.0.0.0/8", "--deny-in", "any:22", "--deny", "any"];
        let found = parsed(&line).unwrap().all().unwrap();
        let texts: Vec<&str> = found.iter().map(|r| r.pattern.as_str()).collect();
        assert_eq!(texts, ["10.0.0.1", "10.0.0.0/8", "any:22", "any"]);
        assert_eq!((found[0].action, found[1].action), (RuleAction::Deny, RuleAction::Allow));
        assert_eq!(found[2].direction, RuleDirection::In);
        assert!(parsed(&["--allow", "any:x"]).is_err() && parsed(&[]).unwrap().is_empty());
    }

    #[test]
    fn rules_of_a_file_come_last() {
        let path = std::env::temp_dir().join(format!("doppel-rules-{}.toml", std::process::id()));
        let text = "[[rule]]\naction = \"allow\"\npattern = \"*.example.org:443\"\nlog = true\nrate = 5\n";
        std::fs::write(&path, text).unwrap();
        let line = ["--rules", path.to_str().unwrap(), "--deny", "10.0.0.1"];
        let rules = parsed(&line).unwrap().of_service();
        std::fs::write(&path, "[[rule]]\npattern = \"any\"\n").unwrap();
        let bad = parsed(&line).unwrap().all();
        std::fs::remove_file(&path).unwrap();
        let rules = rules.unwrap().outbound;
        assert_eq!((rules.len(), rules[1].log, rules[1].rate), (2, true, Some(5)));
        assert!(bad.unwrap_err().contains("action"));
    }
}
