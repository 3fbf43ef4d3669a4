//! What to do instead, for those who know Docker: clap's own tips know spelling, not meaning.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs of Docker that are not ours.
const VERBS: [(&str, &str); 16] = [
    (
        "build",
        "`doppel image build` makes an image of Debian packages; push one that another tool built, or `doppel image import` it",
    ),
    ("buildx", "push an image that another tool built, or `doppel image import` it"),
    ("compose", "there is no compose; domains of one `--network NAME` find each other by their names"),
    ("container", "leave it out: `doppel ps`, `doppel rm` ..."),
    ("context", "DOPPEL_HOST names the supervisor"),
    ("history", "`doppel image inspect` shows what is known of an image"),
    ("import", "`doppel image import`"),
    ("list", "`doppel ps` lists domains, `doppel images` images"),
    ("load", "`doppel image import` takes what `docker save` writes"),
    ("login", "credentials of registries are those of Docker's config.json (DOCKER_CONFIG, ~/.docker)"),
    ("logout", "credentials of registries are those of Docker's config.json (DOCKER_CONFIG, ~/.docker)"),
    ("ls", "`doppel ps` lists domains, `doppel images` images"),
    ("save", "`doppel image save`"),
    ("search", "there is no search of registries"),
    ("system", "`doppel info`, `doppel prune`, `doppel image prune`, `doppel frozen prune`"),
    ("tag", "`doppel image tag`"),
];

/// Options of Docker that are not ours, and `-h`.
const OPTIONS: [(&str, &str); 5] = [
    ("-h", "--help is help; -h is the host name, of `run` and `create`"),
    ("--privileged", "programs are root in their domain, and nothing outside"),
    ("--cap-add", "programs are root in their domain, and nothing outside"),
    ("--init", "a domain's guest kernel collects orphans by itself"),
    ("--shm-size", "shared memory is bounded by --memory"),
];

/// Verbs that nobody should be led to.
fn is_hidden(name: &str) -> bool {
    name == doppel_net::SERVICE || name == doppel_storage::SERVICE || name == "debug"
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// The error with tips that help.
pub fn improved(mut error: clap::Error) -> clap::Error {
    let known = |list: &[(&str, &'static str)], name: &str| {
        list.iter().find(|(n, _)| *n == name).map(|(_, tip)| *tip)
    };
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let verb = text(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let tip = known(&VERBS, &verb);
            let seen: Vec<String> = match error.remove(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(names)) => names.into_iter().filter(|n| !is_hidden(n)).collect(),
                Some(ContextValue::String(name)) => {
                    Some(name).filter(|n| !is_hidden(n)).into_iter().collect()
                }
                _ => Vec::new(),
            };
            if tip.is_none() && !seen.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(seen));
            }
            tip
        }
        ErrorKind::UnknownArgument => {
            let given = text(&error, ContextKind::InvalidArg).unwrap_or_default();
            // "to pass '-v' as a value, use '-- -v'" is no help where no value begins with a hyphen.
            error.remove(ContextKind::Suggested);
            let tip = known(&OPTIONS, given.split(['=', ' ']).next().unwrap_or_default());
            if tip.is_some() {
                error.remove(ContextKind::SuggestedArg);
            }
            tip
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.to_owned().into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::Parser;

    fn said(line: &str) -> String {
        let parsed = Cli::try_parse_from(line.split(' ')).map(|_| ());
        improved(parsed.expect_err(line)).to_string()
    }

    #[test]
    fn tips_lead_somewhere() {
        for (line, has) in [
            ("doppel import a", "doppel image import"),
            ("doppel login", "config.json"),
            ("doppel run --shm-size 1g busybox", "--memory"),
            ("doppel ps -h", "--help is help"),
            ("doppel stpo a", "'stop'"),
            ("doppel ps --quite", "--quiet"),
        ] {
            let said = said(line);
            assert!(said.contains(has), "{line}: {said}");
            assert!(!said.contains("network-service") && !said.contains("as a value, use"), "{line}: {said}");
        }
        assert!(
            VERBS.iter().all(|(verb, _)| said(&format!("doppel {verb}")).contains("unrecognized subcommand"))
        );
    }

    #[test]
    fn h_is_the_host_name() {
        use clap::error::ErrorKind;
        assert!(Cli::try_parse_from(["doppel", "run", "-h", "foo", "busybox"]).is_ok());
        assert!(Cli::try_parse_from(["doppel", "create", "-h", "foo", "busybox"]).is_ok());
        for verb in ["run", "ps", "image", "exec"] {
            let help = Cli::try_parse_from(["doppel", verb, "--help"]).map(|_| ()).expect_err("help");
            assert_eq!(help.kind(), ErrorKind::DisplayHelp, "{verb}");
        }
        assert_eq!(
            Cli::try_parse_from(["doppel", "-h"]).map(|_| ()).expect_err("no").kind(),
            ErrorKind::UnknownArgument
        );
        // What is behind the image belongs to the command.
        assert!(Cli::try_parse_from(["doppel", "run", "busybox", "ls", "-h", "--help"]).is_ok());
    }
}
