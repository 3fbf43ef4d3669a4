//! What a domain's programs run on: the options, and the choice where it is left to us.

use clap::{Args, ValueEnum};
use doppel_api::Kind;

use crate::host::doctor;
use crate::terminal::out::tell;

/// Kinds as they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum KindChoice {
    /// A guest kernel
    #[default]
    Para,
    /// The host's kernel, in namespaces
    Paene,
    /// A guest kernel where this host can run one, else the host's; says which
    Auto,
}

/// Options about the kind.
#[derive(Args, Debug)]
pub(crate) struct KindArgs {
    /// What its programs run on
    #[arg(long, value_name = "KIND", value_enum, default_value_t, hide_default_value = true)]
    kind: KindChoice,
}

impl KindArgs {
    /// The kind; if it is left to us, says which and why.
    pub(crate) fn choose(&self) -> Kind {
        match self.kind {
            KindChoice::Para => Kind::Para,
            KindChoice::Paene => Kind::Paene,
            KindChoice::Auto => match doctor::lacking() {
                None => {
                    tell!("doppel: kind para: this host has what a guest kernel needs");
                    Kind::Para
                }
                Some(why) => {
                    tell!("doppel: kind paene: this host cannot run a guest kernel ({why})");
                    Kind::Paene
                }
            },
        }
    }
}
