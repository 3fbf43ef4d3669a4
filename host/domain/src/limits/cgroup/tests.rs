//! Hierarchies told apart, and limits written to directories that pass for hierarchies.

use doppel_spec::IoDevice;

use super::*;

#[test]
fn hierarchies_are_told_apart() {
    let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
        cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    let Some(Hierarchies::V1(v1)) = Hierarchies::parse(hybrid, &CONTROLLERS, |_| false) else { panic!() };
    assert_eq!(v1.iter().map(|(c, _)| *c).collect::<Vec<_>>(), ["cpu", "memory", "pids"]);
    let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
    let expected = Hierarchies::V2("/sys/fs/cgroup".into());
    assert_eq!(Hierarchies::parse(unified, &CONTROLLERS, |_| true), Some(expected));
    assert_eq!(Hierarchies::parse("proc /proc proc rw 0 0\n", &CONTROLLERS, |_| true), None);
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
    let limits = Limits { memory: Some(1 << 30), resources: cpus(0.5), ..Limits::default() };
    let dir = root.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("memory.swap.max"), "max").unwrap();
    let group = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", limits.clone()).unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    assert_eq!(read("memory.max"), "1073741824");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("memory.oom.group"), "1");
    group.set_limits(&Limits { pauses: true, ..limits.clone() }).unwrap();
    assert_eq!(read("memory.oom.group"), "0", "programs of a paene domain are killed one by one");
    assert_eq!(read("cpu.max"), "50000 100000");
    assert_eq!(read("pids.max"), MAX_TASKS.to_string());
    let few = Resources { pids: Some(64), ..Resources::default() };
    group.set_limits(&Limits { resources: few, ..limits.clone() }).unwrap();
    assert_eq!(read("pids.max"), "64");
    let free = Resources { pids: Some(NO_PIDS_LIMIT), ..Resources::default() };
    group.set_limits(&Limits { memory: Some(u64::MAX), resources: free, ..Limits::default() }).unwrap();
    assert_eq!((read("memory.max"), read("pids.max")), ("max".to_owned(), MAX_TASKS.to_string()));
    assert_eq!(fs::read_to_string(root.join("cgroup.subtree_control")).unwrap(), "+pids");
    fs::write(dir.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
    fs::write(dir.join("memory.current"), "4096\n").unwrap();
    let usage = Usage { memory_bytes: Some(4096), oom_kills: Some(2), ..Usage::default() };
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
fn service_domains_are_not_among_those_that_are_bounded_together() {
    let root = fake("services");
    let dir = root.join(SERVICES_PARENT).join("net-1-0");
    fs::create_dir_all(&dir).unwrap();
    for above in [root.join(PARENT), root.join(SERVICES_PARENT)] {
        fs::write(above.join("pids.max"), "max").unwrap();
    }
    let mut limits = Limits { memory: Some(1 << 30), service: true, ..Limits::default() };
    limits.resources.pids = Some(1);
    let roots = Hierarchies::V1(vec![("pids", root.clone())]);
    let group = Cgroup::create_in(roots, "net-1-0", Limits { memory: None, ..limits }).unwrap();
    assert_eq!(group.directories().collect::<Vec<_>>(), [dir.as_path()]);
    assert_eq!(fs::read_to_string(dir.join("pids.max")).unwrap(), "1");
    for above in [PARENT, SERVICES_PARENT] {
        assert_eq!(fs::read_to_string(root.join(above).join("pids.max")).unwrap(), "max");
    }
    drop(group);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_group_of_cpus_has_those_of_the_one_above() {
    let root = fake("v1-cpuset");
    let dir = root.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    for (at, cpus) in [(root.clone(), "0-3\n"), (root.join("doppel"), "\n"), (dir.clone(), "\n")] {
        fs::write(at.join("cpuset.cpus"), cpus).unwrap();
        fs::write(at.join("cpuset.mems"), cpus.replace("0-3", "0")).unwrap();
    }
    let group =
        Cgroup::create_in(Hierarchies::V1(vec![(CPUSET, root.clone())]), "d1", Limits::default()).unwrap();
    let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
    assert_eq!((read("cpuset.cpus").as_str(), read("cpuset.mems").as_str()), ("0-3", "0"));
    assert_eq!(group.directories().collect::<Vec<_>>(), [dir.as_path()]);
    drop(group);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn limits_on_v1() {
    let (memory, cpu) = (fake("v1-memory"), fake("v1-cpu"));
    let limits = Limits { memory: Some(1 << 30), resources: cpus(2.0), ..Limits::default() };
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
    assert_eq!(quota(1.5, 100_000), 150_000);
    assert_eq!(quota(0.0001, 100_000), 1_000);
}

fn cpus(n: f64) -> Resources {
    Resources { cpus: Some(n), ..Resources::default() }
}

#[test]
fn resources_and_accounts() {
    let resources = Resources {
        cpu_weight: Some(200),
        memory_reservation_bytes: Some(4096),
        pids: Some(9),
        io_weight: Some(5000),
        ..Resources::default()
    };
    let limits = Limits { resources, account: true, ..Limits::default() };
    let root = fake("v2-more");
    let dir = root.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    for file in ["io.weight", "io.bfq.weight"] {
        fs::write(dir.join(file), "default 100").unwrap();
    }
    let group = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", limits.clone()).unwrap();
    let read = |dir: &Path, file: &str| fs::read_to_string(dir.join(file)).unwrap();
    for (file, value) in [
        ("cpu.weight", "200"),
        ("memory.low", "4096"),
        ("pids.max", "9"),
        ("io.weight", "default 5000"),
        ("io.bfq.weight", "default 1000"),
    ] {
        assert_eq!(read(&dir, file), value);
    }
    let pids = Resources { pids: Some(11), ..Resources::default() };
    group.set_limits(&Limits { resources: pids, memory: Some(1 << 20), ..Limits::default() }).unwrap();
    assert_eq!((read(&dir, "pids.max"), read(&dir, "cpu.weight")), ("11".into(), "200".into()));
    assert_eq!(read(&dir, "memory.max"), "1048576");
    fs::write(dir.join("cpu.stat"), "usage_usec 1500\nuser_usec 1\n").unwrap();
    fs::write(dir.join("pids.current"), "3\n").unwrap();
    fs::write(dir.join("io.stat"), "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n").unwrap();
    let usage = group.usage();
    assert_eq!((usage.cpu_us, usage.tasks), (Some(1500), Some(3)));
    assert_eq!((usage.io_read_bytes, usage.io_write_bytes), (Some(11), Some(22)));
    drop(group);
    fs::remove_dir_all(&root).unwrap();

    let (cpu, blkio) = (fake("v1-cpuacct"), fake("v1-blkio"));
    let roots =
        vec![("memory", cpu.clone()), ("cpu", cpu.clone()), ("pids", cpu.clone()), ("blkio", blkio.clone())];
    fs::create_dir(blkio.join("doppel/d1")).unwrap();
    fs::write(blkio.join("doppel/d1/blkio.weight"), "500").unwrap();
    let group = Cgroup::create_in(Hierarchies::V1(roots), "d1", limits.clone()).unwrap();
    let (dir, io) = (cpu.join("doppel/d1"), blkio.join("doppel/d1"));
    assert_eq!(read(&dir, "cpu.shares"), "2048");
    assert_eq!(read(&dir, "memory.soft_limit_in_bytes"), "4096");
    assert_eq!(read(&io, "blkio.weight"), "1000");
    fs::write(dir.join("cpuacct.usage"), "2500000\n").unwrap();
    fs::write(
        io.join("blkio.throttle.io_service_bytes"),
        "8:0 Read 5\n8:0 Write 6\n8:0 Total 11\nTotal 11\n",
    )
    .unwrap();
    let usage = group.usage();
    assert_eq!((usage.cpu_us, usage.io_read_bytes, usage.io_write_bytes), (Some(2500), Some(5), Some(6)));
    drop(group);
    for root in [&cpu, &blkio] {
        fs::remove_dir_all(root).unwrap();
    }
    let root = fake("v2-none");
    let error = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", limits).unwrap_err();
    assert!(error.to_string().contains("weighs block I/O"));
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn block_io_is_limited_by_device() {
    let some = |device: &str| IoDevice { device: device.into(), ..IoDevice::default() };
    let asked = |limit: IoDevice| {
        let resources = Resources { io_devices: vec![limit], ..Resources::default() };
        Limits { resources, account: true, ..Limits::default() }
    };
    let both = IoDevice { read_bps: Some(1 << 20), write_iops: Some(50), ..some("8:16") };

    let root = fake("v2-io");
    let dir = root.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("io.max"), "").unwrap();
    let group = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", asked(both.clone())).unwrap();
    let now = || fs::read_to_string(dir.join("io.max")).unwrap();
    assert_eq!(now(), "8:16 rbps=1048576 wiops=50");
    group.set_limits(&asked(IoDevice { write_bps: Some(0), ..some("8:16") })).unwrap();
    assert_eq!(now(), "8:16 wbps=max");
    for (device, why) in
        [("/dev/null", "not a block device"), ("/no/such", "No such file"), ("x:1", "No such file")]
    {
        let error = group.set_limits(&asked(IoDevice { read_bps: Some(1), ..some(device) })).unwrap_err();
        assert!(error.to_string().contains(why), "{device}: {error}");
    }
    drop(group);
    fs::remove_dir_all(&root).unwrap();

    let blkio = fake("v1-io");
    let dir = blkio.join("doppel/d1");
    fs::create_dir(&dir).unwrap();
    for figure in ["read_bps", "write_bps", "read_iops", "write_iops"] {
        fs::write(dir.join(format!("blkio.throttle.{figure}_device")), "").unwrap();
    }
    let roots = vec![("pids", blkio.clone()), ("blkio", blkio.clone())];
    let group = Cgroup::create_in(Hierarchies::V1(roots), "d1", asked(both.clone())).unwrap();
    let now = |figure: &str| fs::read_to_string(dir.join(format!("blkio.throttle.{figure}_device"))).unwrap();
    assert_eq!((now("read_bps"), now("write_iops")), ("8:16 1048576".into(), "8:16 50".into()));
    assert_eq!((now("write_bps"), now("read_iops")), (String::new(), String::new()));
    group.set_limits(&asked(IoDevice { read_bps: Some(0), ..some("8:16") })).unwrap();
    assert_eq!(now("read_bps"), "8:16 0");
    drop(group);
    fs::remove_dir_all(&blkio).unwrap();

    let root = fake("v2-no-io");
    let error = Cgroup::create_in(Hierarchies::V2(root.clone()), "d1", asked(both)).unwrap_err();
    assert!(error.to_string().contains("cannot limit block I/O"), "{error}");
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn cpu_time_is_found_where_controllers_share_a_hierarchy() {
    let root = fake("shared");
    let group =
        Cgroup::create_in(Hierarchies::V1(vec![("pids", root.clone())]), "d1", Limits::default()).unwrap();
    assert_eq!(group.cpu_time(), None);
    fs::write(root.join("doppel/d1/cpuacct.usage"), "7000\n").unwrap();
    fs::write(root.join("doppel/cpuacct.usage"), "8000\n").unwrap();
    fs::write(root.join("cpuacct.usage"), "9000\n").unwrap();
    assert_eq!((group.cpu_time(), group.host_cpu_time()), (Some(7000), Some(9000)));
    assert_eq!(group.domains_cpu_time(), Some(8000));
    assert_eq!(group.usage().cpu_us, Some(7));
    fs::remove_dir_all(&root).unwrap();
}
