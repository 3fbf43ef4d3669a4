//! Errors of files, as people read them.

/// Names of errors and what they mean, as `strerror` says it.
const WORDS: [(&str, &str); 19] = [
    ("EACCES", "permission denied"),
    ("EBUSY", "device or resource busy"),
    ("EDQUOT", "disk quota exceeded"),
    ("EEXIST", "file exists"),
    ("EINVAL", "invalid argument"),
    ("EISDIR", "is a directory"),
    ("ELOOP", "too many levels of symbolic links"),
    ("EMFILE", "too many open files"),
    ("ENAMETOOLONG", "file name too long"),
    ("ENOENT", "no such file or directory"),
    ("ENOMEM", "cannot allocate memory"),
    ("ENOSPC", "no space left on device"),
    ("ENOTDIR", "not a directory"),
    ("ENOTEMPTY", "directory not empty"),
    ("EOPNOTSUPP", "operation not supported"),
    ("EPERM", "operation not permitted"),
    ("EROFS", "read-only file system"),
    ("ETXTBSY", "text file busy"),
    ("EXDEV", "invalid cross-device link"),
];

/// A complaint that begins with an error's name and a colon, in words: `ENOENT: /x` is `no such file or directory: /x`.
#[must_use]
pub fn in_words(complaint: &str) -> String {
    let Some((name, about)) = complaint.split_once(':') else { return complaint.to_owned() };
    match WORDS.iter().find(|(n, _)| *n == name) {
        Some((_, words)) => format!("{words}:{about}"),
        None => complaint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(in_words("ENOENT: /nope"), "no such file or directory: /nope");
        assert_eq!(in_words("ENOTNAMED: x"), "ENOTNAMED: x");
        assert_eq!(in_words("plain"), "plain");
    }
}
