//! Hierarchies told apart, and limits written to directories that pass for hierarchies.

use super::*;

#[test]
fn hierarchies_are_told_apart() {
    let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
        cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    let Some(Hierarchies::V1(v1)) = Hierarchies::parse(hybrid, |_| false) else { panic!() };
    assert_eq!(v1.iter().map(|(c, _)| *c).collect::<Vec<_>>(), ["cpu", "memory", "pids"]);
    let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
    let expected = Hierarchies::V2("/sys/fs/cgroup".into());
    assert_eq!(Hierarchies::parse(unified, |_| true), Some(expected));
    assert_eq!(Hierarchies::parse("proc /proc proc rw 0 0\n", |_| true), None);
}

/// A directory that passes for a hierarchy: limits become ordinary files in it.
fn fake(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("doppel-{name}-{}", std::process::id()));
    fs::create_dir_all(root.join(PARENT)).unwrap();
    for dir in [&root, &root.join(PARENT)] {
        fs::write(dir.join("cgroup.subtree_control"), "cpu io").unwrap();
        fs::write(dir.join("cgroup.controllers"), "cpu io memory pids").unwrap();
    }
    root
}

#[test]
fn limits_on_v2() {
    let root = fake("v2");
    let limits = Limits { memory: Some(1 << 30), cpus: Some(0.5) };
    let dir = root.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("memory.swap.max"), "max").unwrap();
    let group = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", limits).unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    assert_eq!(read("memory.max"), "1073741824");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("memory.oom.group"), "1");
    assert_eq!(read("cpu.max"), "50000 100000");
    assert_eq!(read("pids.max"), MAX_TASKS.to_string());
    assert_eq!(fs::read_to_string(root.join("cgroup.subtree_control")).unwrap(), "+pids");
    fs::write(dir.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
    fs::write(dir.join("memory.current"), "4096\n").unwrap();
    let usage = Usage { memory_bytes: Some(4096), memory_peak_bytes: None, oom_kills: Some(2) };
    assert_eq!(group.usage(), usage);
    assert!(group.birth().unwrap().cgroup_dir().is_some());
    drop(group);
    fs::write(root.join("cgroup.controllers"), "cpu pids").unwrap();
    let error = Cgroup::create_in(Hierarchies::V2(root.clone()), "d2", limits).unwrap_err();
    assert_eq!(error.to_string(), "this host has no memory controller");
    assert!(!root.join("doppel/d2").exists());
    let none = Limits::default();
    drop(Cgroup::create_in(Hierarchies::V2(root.clone()), "d2", none).unwrap());
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn limits_on_v1() {
    let (memory, cpu) = (fake("v1-memory"), fake("v1-cpu"));
    let limits = Limits { memory: Some(1 << 30), cpus: Some(2.0) };
    let roots = vec![("memory", memory.clone()), ("cpu", cpu.clone())];
    let group = Cgroup::create_in(Hierarchies::V1(roots), "d1", limits).unwrap();
    let read = |root: &Path, file: &str| fs::read_to_string(root.join("doppel/d1").join(file)).unwrap();
    assert_eq!(read(&memory, "memory.limit_in_bytes"), "1073741824");
    assert_eq!(read(&cpu, "cpu.cfs_quota_us"), "200000");
    assert_eq!(read(&cpu, "../cpu.shares"), "1024");
    assert!(!cpu.join("doppel/d1/memory.limit_in_bytes").exists());
    for root in [&memory, &cpu] {
        fs::write(root.join("doppel/d1/tasks"), "").unwrap();
    }
    assert_eq!(group.birth().unwrap().tasks().len(), 2);
    for root in [&memory, &cpu] {
        fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn quotas() {
    assert_eq!(quota(1.5), 150_000);
    assert_eq!(quota(0.0001), 1_000);
}
