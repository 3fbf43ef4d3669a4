//! Names and ids of domains.

const KINDS: [&str; 40] = [
    "amber", "bold", "brave", "bright", "brisk", "calm", "clear", "clever", "cosmic", "crisp", "dapper",
    "deft", "eager", "early", "fair", "fleet", "fond", "gentle", "glad", "grand", "hardy", "keen", "kind",
    "light", "lively", "lucid", "mellow", "merry", "mild", "neat", "noble", "plain", "proud", "quick",
    "quiet", "ready", "serene", "sharp", "steady", "swift",
];
const BEARERS: [&str; 40] = [
    "badger", "beaver", "bison", "crane", "curlew", "dipper", "dove", "egret", "falcon", "finch", "fox",
    "gannet", "hare", "heron", "ibex", "jackdaw", "kestrel", "lapwing", "lark", "linnet", "lynx", "marten",
    "merlin", "newt", "osprey", "otter", "owl", "petrel", "pike", "plover", "raven", "robin", "seal",
    "shrike", "stoat", "swan", "teal", "tern", "vole", "wren",
];

/// A new id: 16 hexadecimal digits.
pub(crate) fn id() -> String {
    format!("{:016x}", random())
}

/// Random bits.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Only very early in a host's boot could it fail, and without flags it waits then.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}

/// A name that `taken` does not refuse.
pub(crate) fn name(taken: impl Fn(&str) -> bool) -> String {
    let bits = random();
    let pick = |list: &[&'static str], bits: u64| list[usize::try_from(bits).unwrap_or(0) % list.len()];
    let base = format!("{}-{}", pick(&KINDS, bits & 0xffff), pick(&BEARERS, bits >> 16 & 0xffff));
    if !taken(&base) {
        return base;
    }
    loop {
        let name = format!("{base}-{:x}", random() >> 40);
        if !taken(&name) {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use doppel_api::validate::name as name_of;

    use super::*;

    #[test]
    fn names_are_names() {
        for _ in 0..100 {
            name_of("name", &name(|_| false)).unwrap();
            assert_eq!(id().len(), 16);
        }
        let long = name(|n| n.matches('-').count() < 2);
        name_of("name", &long).unwrap();
    }
}
