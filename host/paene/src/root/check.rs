//! Looking an image over before the host's kernel is given it to mount: by a process that owns nothing and can ask for nothing.
//!
//! What the image's writer made it of is a stranger's, and the kernel's reader of file systems is part of the kernel. So the
//! whole tree is read first ([`doppel_image::check_for_mount`]), by our own program as a user that owns nothing, without
//! capabilities and under a filter of twenty calls. An image is looked at once in a boot, and again when its file changes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use doppel_abi_machine::ATTENDANT;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::failure::{Failure, cannot};
use crate::network::process::{drop_rights, filter};
use crate::root::owners::Owners;

/// Argument that makes this program the one who looks.
pub(crate) const VERB: &str = "check";
/// Where it is written down what was found good.
const GOOD: &str = "/run/doppel/sound";
/// Longest word about what is wrong.
const LONGEST: u64 = 1 << 10;
/// Seconds of CPU time that it may take.
const PATIENCE: u64 = 300;

/// Refuses an image that the host's kernel must not see: one that is not sound, or that others could change meanwhile.
pub(crate) fn check(image: &File, owners: Owners) -> Result<(), Failure> {
    let meta = image.metadata().map_err(cannot("examine the image"))?;
    if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return Err("the image's file can be changed by others than root, and the host's kernel would have it mounted: \
                    `doppel image import` makes an image of the store of it"
            .to_owned());
    }
    let good = mark(&meta);
    if good.exists() {
        return Ok(());
    }
    ask(image, owners.first)?;
    note(&good).map_err(cannot("write down that the image is sound"))
}

/// The file that says that an image as it is now is sound.
fn mark(meta: &fs::Metadata) -> PathBuf {
    let (dev, inode, size) = (meta.dev(), meta.ino(), meta.len());
    Path::new(GOOD).join(format!("{dev:x}-{inode:x}-{size:x}-{:x}.{:x}", meta.ctime(), meta.ctime_nsec()))
}

fn note(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(GOOD)?;
    File::options().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
}

fn ask(image: &File, user: u32) -> Result<(), Failure> {
    let start = || {
        Command::new("/proc/self/exe")
            .arg0(ATTENDANT)
            .args([VERB, &user.to_string()])
            .env_clear()
            .stdin(Stdio::from(image.try_clone()?))
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut helper = start().map_err(cannot("look the image over"))?;
    let mut said = String::new();
    if let Some(out) = helper.stdout.take() {
        out.take(LONGEST).read_to_string(&mut said).map_err(cannot("look the image over"))?;
    }
    let how = helper.wait().map_err(cannot("look the image over"))?;
    match (how.success(), said.trim()) {
        (true, _) => Ok(()),
        (false, "") => Err(format!("the image is not mounted: who was to look it over has ended ({how})")),
        (false, why) => Err(format!("the image is damaged, and not mounted: {why}")),
    }
}

/// Who looks: the image is standard input, what is wrong with it goes to standard output.
pub(crate) fn run(user: Option<&str>) -> ExitCode {
    let found = match user.and_then(|user| user.parse().ok()) {
        Some(user) => look(user),
        None => Err("nobody to be".to_owned()),
    };
    match found {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Whoever does not hear it sees that it failed.
            let _ = io::stdout().write_all(why.as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn look(user: u32) -> Result<(), String> {
    let whole = |e: io::Error| format!("it cannot be read: {e}");
    let image = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(whole)?);
    let map = doppel_sys::FileMap::new(&image).map_err(whole)?;
    let most = Rlimit { current: Some(PATIENCE), maximum: Some(PATIENCE) };
    let confined = setrlimit(Resource::Cpu, most).map_err(io::Error::from);
    confined
        .and_then(|()| drop_rights(user))
        .and_then(|()| filter())
        .map_err(|e| format!("no confinement: {e}"))?;
    doppel_image::check_for_mount(&map)
}
