//! A program as it is run: what was asked for, looked up in its image.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// A program, and who it is to be. On its way between processes its words are text (`Program<String>`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de> + From<&'static str>"))]
pub struct Program<T = OsString> {
    /// The program and its arguments.
    pub argv: Vec<T>,
    /// Its environment, `NAME=value` each.
    pub env: Vec<T>,
    /// Its working directory.
    pub cwd: T,
    /// Its user id inside the domain.
    pub uid: u32,
    /// Its group id inside the domain.
    pub gid: u32,
    /// Its supplementary groups inside the domain.
    pub groups: Vec<u32>,
}

impl<T: From<&'static str>> Default for Program<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<T: From<&'static str>> Program<T> {
    /// Runs `argv` as root in `/`, with no environment.
    #[must_use]
    pub fn new(argv: Vec<T>) -> Self {
        Self { argv, env: Vec::new(), cwd: "/".into(), uid: 0, gid: 0, groups: Vec::new() }
    }
}

impl From<Program<String>> for Program {
    fn from(program: Program<String>) -> Self {
        let Program { argv, env, cwd, uid, gid, groups } = program;
        let words = |all: Vec<String>| all.into_iter().map(OsString::from).collect();
        Self { argv: words(argv), env: words(env), cwd: cwd.into(), uid, gid, groups }
    }
}
