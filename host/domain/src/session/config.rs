//! What to run in a domain that runs, as its session is asked for it.

use doppel_abi_machine::boot_flags;
use doppel_abi_machine::session::SESSION_REQUEST_MAX;
use doppel_spec::{ExecConfig, Request, flags};

use crate::Error;
use crate::launch::control::written;

/// The request as bytes.
pub(crate) fn request(config: &ExecConfig) -> Result<Vec<u8>, Error> {
    if config.program.argv.is_empty() {
        return Err(Error::Config("no command given".into()));
    }
    let cwd = &config.program.cwd;
    if !cwd.as_encoded_bytes().starts_with(b"/") {
        return Err(Error::Config(format!("the working directory {cwd:?} must be an absolute path")));
    }
    let flags = flags(&[
        (config.spec.tty, boot_flags::TTY),
        (config.spec.stdin, boot_flags::STDIN),
        (config.builtin, boot_flags::BUILTIN),
    ]);
    let winsize = winsize(config);
    written(
        &Request { program: config.program.clone(), flags, winsize, ..Request::default() },
        SESSION_REQUEST_MAX,
    )
}

/// The size of its terminal; 0 without one.
pub(crate) fn winsize(config: &ExecConfig) -> u32 {
    config.spec.window().map_or(0, size)
}

pub(crate) fn size((rows, columns): (u16, u16)) -> u32 {
    u32::from(rows) << 16 | u32::from(columns)
}
