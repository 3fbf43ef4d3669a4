//! Values of options: those of the declarations, and environment variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

pub use doppel_spec::values::{seconds, size};

/// The environment of the program: defaults, what the image gives, then what `-e` gives; a later value replaces an
/// earlier one.
///
/// `-e NAME` takes the caller's value through `lookup`, and nothing if the caller has none.
pub fn environment(
    tty: bool,
    image: &[String],
    home: &str,
    given: &[OsString],
    lookup: impl Fn(&OsStr) -> Option<OsString>,
) -> Result<Vec<OsString>, String> {
    let mut all: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("HOME".into(), home.into()),
    ];
    if tty {
        let term = lookup(OsStr::new("TERM")).filter(|t| !t.is_empty()).unwrap_or_else(|| "xterm".into());
        all.push(("TERM".into(), term));
    }
    for (name, value) in image.iter().filter_map(|v| v.split_once('=')).filter(|(name, _)| !name.is_empty()) {
        set(&mut all, OsStr::new(name), value.into());
    }
    for variable in given {
        let bytes = variable.as_bytes();
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(0) => return Err(format!("{variable:?} has no name before '='")),
            Some(at) => {
                (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
            }
            None if bytes.is_empty() => return Err("-e needs NAME=VALUE or NAME".into()),
            None => (variable.as_os_str(), lookup(variable)),
        };
        let Some(value) = value else { continue };
        set(&mut all, name, value);
    }
    let join = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        name
    };
    Ok(all.into_iter().map(join).collect())
}

fn set(all: &mut Vec<(OsString, OsString)>, name: &OsStr, value: OsString) {
    match all.iter_mut().find(|(n, _)| n == name) {
        Some((_, old)) => *old = value,
        None => all.push((name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments() {
        let lookup = |name: &OsStr| (name == "SHELL").then(|| OsString::from("/bin/bash"));
        let given = ["A=1", "B==", "SHELL", "UNSET", "PATH=/bin", "A=2"].map(OsString::from);
        let image = ["PATH=/image", "B=image", "C=image", "broken"].map(String::from);
        let env = environment(true, &image, "/h", &given, lookup).unwrap();
        assert_eq!(
            env,
            ["PATH=/bin", "HOME=/h", "TERM=xterm", "B==", "C=image", "A=2", "SHELL=/bin/bash"]
                .map(OsString::from)
        );
        assert!(environment(false, &[], "/", &["=x".into()], lookup).is_err());
        assert!(environment(false, &[], "/", &["".into()], lookup).is_err());
    }
}
