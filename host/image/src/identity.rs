//! Who `USER[:GROUP]` is, by the `/etc/passwd` and `/etc/group` of an image or a domain, and Docker's rules.
//!
//! Boundary: both files are whatever the image's maker or the domain wrote.

/// Longest file that is looked into; a longer one counts as missing.
pub const IDENTITY_FILE_MAX: usize = 1 << 20;
/// Most supplementary groups; Linux would take 65,536.
const GROUPS_MAX: usize = 1024;

/// A user of an image or a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups: those that name the user as a member, unless the caller names a group.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: String,
}

/// Looks up `USER[:GROUP]`, names or numbers; empty is root. `file` gives `/etc/passwd` and `/etc/group`; it is not asked
/// for root, who has no use for groups.
///
/// # Errors
///
/// A sentence about a user or group that is not known.
pub fn identity(text: &str, mut file: impl FnMut(&str) -> Option<Vec<u8>>) -> Result<Identity, String> {
    if matches!(text, "" | "0" | "root" | "0:0" | "root:root") {
        return Ok(Identity { home: "/root".into(), ..Identity::default() });
    }
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let group = group.filter(|g| !g.is_empty());
    let user = if user.is_empty() { "0" } else { user };
    let passwd = file("/etc/passwd").unwrap_or_default();
    // name:password:uid:gid:comment:home:shell
    let line = find(&passwd, |f| f[0] == user.as_bytes())
        .or_else(|| id(user.as_bytes()).and_then(|uid| find(&passwd, |f| id(field(f, 2)) == Some(uid))));
    let Some(line) = line else {
        let uid = id(user.as_bytes()).ok_or_else(|| format!("/etc/passwd has no user {user:?}"))?;
        let gid = match group {
            Some(name) => group_id(&file("/etc/group").unwrap_or_default(), name)?,
            None => 0,
        };
        return Ok(Identity { uid, gid, groups: Vec::new(), home: "/".into() });
    };
    let uid = id(field(&line, 2)).or_else(|| id(user.as_bytes()));
    let uid = uid.ok_or_else(|| format!("user {user:?} has no number in /etc/passwd"))?;
    let listed = file("/etc/group").unwrap_or_default();
    let (gid, groups) = match group {
        Some(name) => (group_id(&listed, name)?, Vec::new()),
        None => (id(field(&line, 3)).unwrap_or(0), member_of(&listed, line[0])),
    };
    let home = String::from_utf8_lossy(field(&line, 5)).into_owned();
    Ok(Identity { uid, gid, groups, home: if home.is_empty() { "/".into() } else { home } })
}

/// The number of a group; its line is name:password:gid:members.
fn group_id(listed: &[u8], name: &str) -> Result<u32, String> {
    find(listed, |f| f[0] == name.as_bytes())
        .and_then(|f| id(field(&f, 2)))
        .or_else(|| id(name.as_bytes()))
        .ok_or_else(|| format!("/etc/group has no group {name:?}"))
}

/// Numbers of the groups that list a user, sorted.
fn member_of(listed: &[u8], user: &[u8]) -> Vec<u32> {
    let is_member = |f: &[&[u8]]| field(f, 3).split(|b| *b == b',').any(|m| m == user);
    let mut all: Vec<u32> =
        lines(listed).filter(|f| is_member(f)).filter_map(|f| id(field(&f, 2))).take(GROUPS_MAX).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Lines as fields; there is at least one field in each.
fn lines(text: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    text.split(|b| *b == b'\n').map(|line| line.split(|b| *b == b':').collect())
}

/// The fields of the first line that `good` accepts.
fn find(text: &[u8], good: impl Fn(&[&[u8]]) -> bool) -> Option<Vec<&[u8]>> {
    lines(text).find(|f| good(f))
}

fn field<'a>(fields: &[&'a [u8]], at: usize) -> &'a [u8] {
    fields.get(at).copied().unwrap_or_default()
}

/// A numeric id; the last number means "none" to the kernel.
fn id(text: &[u8]) -> Option<u32> {
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok().filter(|id| *id != u32::MAX)
}
