//! /proc/sys: the settings programs read. Few can be changed.

use crate::core::namespace::Kind;
use crate::process::async_io::context::TOTAL;
use crate::process::async_io::ring::MAX_EVENTS;
use crate::process::coredump::name::SETTINGS;
use crate::process::keys::KEYS;
use crate::process::namespaces::uts::Uts;
use crate::process::task::current;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use doppel_machine::sync::SpinLock;

use doppel_algo::keys::Limits;

use super::empty;
use crate::objects::vfs::synthetic::{Entries, Node, dir, fixed, text, writable};
use crate::{Errno, Result, kernel};

/// /proc/sys.
pub fn root() -> Node {
    dir(alloc::vec![
        ("abi", empty),
        ("debug", empty),
        ("dev", empty),
        ("fs", fs),
        ("kernel", kernel_dir),
        ("net", net),
        ("user", user),
        ("vm", vm),
    ])
}

/// How many namespaces of each kind there may be in the reader's or writer's user namespace.
fn user() -> Node {
    dir(alloc::vec![
        ("max_cgroup_namespaces", || limit(Kind::Cgroup) as Node),
        ("max_ipc_namespaces", || limit(Kind::Ipc)),
        ("max_mnt_namespaces", || limit(Kind::Mount)),
        ("max_net_namespaces", || limit(Kind::Net)),
        ("max_pid_namespaces", || limit(Kind::Pid)),
        ("max_time_namespaces", || limit(Kind::Time)),
        ("max_user_namespaces", || limit(Kind::User)),
        ("max_uts_namespaces", || limit(Kind::Uts)),
    ])
}

fn limit(kind: Kind) -> Node {
    const SYS_RESOURCE: u32 = 24;
    writable(
        0o666,
        move || Ok(format!("{}\n", current().cred().user.limit(kind).load(Ordering::Relaxed))),
        move |b| {
            let me = current().cred();
            if !me.has(SYS_RESOURCE) {
                return Err(Errno::EACCES);
            }
            let text = core::str::from_utf8(b).map_err(|_| Errno::EINVAL)?;
            let n: i32 = text.trim_ascii().parse().map_err(|_| Errno::EINVAL)?;
            let n = u32::try_from(n).map_err(|_| Errno::EINVAL)?;
            me.user.limit(kind).store(n, Ordering::Relaxed);
            Ok(())
        },
    )
}

/// Most mounts in a namespace.
fn mount_max() -> Node {
    let most = || &crate::objects::vfs::mount::vfs().most;
    writable(
        0o644,
        move || Ok(format!("{}\n", most().load(Ordering::Relaxed))),
        move |b| {
            let n = super::pid::parse_int(b).and_then(|n| usize::try_from(n).ok()).filter(|n| *n != 0);
            most().store(n.ok_or(Errno::EINVAL)?, Ordering::Relaxed);
            Ok(())
        },
    )
}

fn fs() -> Node {
    let e: Entries = alloc::vec![
        ("aio-max-nr", || text(|| Ok(format!("{MAX_EVENTS}\n")))),
        ("aio-nr", || text(|| Ok(format!("{}\n", TOTAL.get().get())))),
        ("dentry-state", || fixed("0\t0\t45\t0\t0\t0\n")),
        ("epoll", || dir(alloc::vec![("max_user_watches", || fixed("1048576\n"))])),
        ("fanotify", || dir(alloc::vec![
            ("max_queued_events", || fixed("16384\n")),
            ("max_user_groups", || fixed("128\n")),
            ("max_user_marks", || fixed("8192\n")),
        ])),
        ("file-max", || fixed("1048576\n")),
        ("file-nr", || fixed("1024\t0\t1048576\n")),
        ("inode-nr", || fixed("0\t0\n")),
        ("inode-state", || fixed("0\t0\t0\t0\t0\t0\t0\n")),
        ("inotify", || dir(alloc::vec![
            ("max_queued_events", || fixed("16384\n")),
            ("max_user_instances", || fixed("128\n")),
            ("max_user_watches", || fixed("65536\n")),
        ])),
        ("lease-break-time", || fixed("45\n")),
        ("mount-max", mount_max),
        ("mqueue", || dir(alloc::vec![
            ("msg_max", || fixed("10\n")),
            ("msgsize_max", || fixed("8192\n")),
            ("queues_max", || fixed("256\n"))
        ])),
        ("nr_open", || fixed("1048576\n")),
        ("overflowgid", || fixed("65534\n")),
        ("overflowuid", || fixed("65534\n")),
        ("pipe-max-size", || fixed("1048576\n")),
        ("pipe-user-pages-hard", || fixed("0\n")),
        ("pipe-user-pages-soft", || fixed("16384\n")),
        ("protected_hardlinks", || fixed("1\n")),
        ("protected_symlinks", || fixed("1\n")),
        ("protected_fifos", || fixed("1\n")),
        ("protected_regular", || fixed("2\n")),
        ("suid_dumpable", || fixed("0\n")),
    ];
    dir(e)
}

fn kernel_dir() -> Node {
    let e: Entries = alloc::vec![
        ("cap_last_cap", || fixed("40\n")),
        ("core_pattern", core_pattern),
        ("core_pipe_limit", core_pipe_limit),
        ("core_uses_pid", core_uses_pid),
        ("domainname", || uts_name(Uts::domain)),
        ("hostname", || uts_name(Uts::host)),
        ("io_uring_disabled", || fixed("0\n")),
        ("keys", keys),
        ("kptr_restrict", || fixed("2\n")),
        ("msgmax", || fixed("8192\n")),
        ("msgmnb", || fixed("16384\n")),
        ("msgmni", || fixed("32000\n")),
        ("ngroups_max", || fixed("65536\n")),
        ("osrelease", || text(|| Ok(format!("{}\n", crate::process::task::version::RELEASE)))),
        ("ostype", || fixed("Linux\n")),
        ("overflowgid", || fixed("65534\n")),
        ("overflowuid", || fixed("65534\n")),
        ("perf_event_paranoid", || fixed("4\n")),
        ("panic", || fixed("0\n")),
        ("pid_max", || fixed("32768\n")),
        ("printk", || fixed("4\t4\t1\t7\n")),
        ("pty", || dir(alloc::vec![("max", || fixed("4096\n")), ("nr", || fixed("0\n"))])),
        ("random", random),
        ("randomize_va_space", || fixed("2\n")),
        ("sched_child_runs_first", || fixed("0\n")),
        ("seccomp", || dir(alloc::vec![("actions_avail", || fixed("\n"))])),
        ("sem", || fixed("32000\t1024000000\t500\t32000\n")),
        ("shmall", || fixed("18446744073692774399\n")),
        ("shmmax", || fixed("18446744073692774399\n")),
        ("shmmni", || fixed("4096\n")),
        ("sysrq", || fixed("0\n")),
        ("tainted", || fixed("0\n")),
        ("threads-max", || fixed("65536\n")),
        ("unprivileged_userns_clone", || fixed("1\n")),
        ("version", || text(|| Ok(format!("{}\n", crate::process::task::version::VERSION)))),
        ("yama", || dir(alloc::vec![("ptrace_scope", || fixed("1\n"))])),
    ];
    dir(e)
}

/// Settings of keys.
fn keys() -> Node {
    dir(alloc::vec![
        ("gc_delay", || key_limit(|l| &mut l.gc_delay)),
        ("maxbytes", || key_limit(|l| &mut l.max_bytes)),
        ("maxkeys", || key_limit(|l| &mut l.max_keys)),
        ("persistent_keyring_expiry", || key_limit(|l| &mut l.persistent_expiry)),
        ("root_maxbytes", || key_limit(|l| &mut l.root_max_bytes)),
        ("root_maxkeys", || key_limit(|l| &mut l.root_max_keys)),
    ])
}

fn key_limit(of: fn(&mut Limits) -> &mut u32) -> Node {
    writable(
        0o644,
        move || Ok(format!("{}\n", KEYS.with(|s| *of(&mut s.limits)))),
        move |b| {
            let text = core::str::from_utf8(b).map_err(|_| Errno::EINVAL)?;
            let n: i32 = text.trim_ascii().parse().map_err(|_| Errno::EINVAL)?;
            let n = u32::try_from(n).map_err(|_| Errno::EINVAL)?;
            KEYS.with(|s| *of(&mut s.limits) = n);
            Ok(())
        },
    )
}

fn core_pattern() -> Node {
    let settings = || SETTINGS.get();
    writable(
        0o644,
        move || {
            let mut text = String::from_utf8_lossy(&settings().pattern()).into_owned();
            text.push('\n');
            Ok(text)
        },
        move |b| settings().set_pattern(b),
    )
}

fn core_pipe_limit() -> Node {
    let settings = || SETTINGS.get();
    writable(
        0o644,
        move || Ok(format!("{}\n", settings().pipe_limit.load(Ordering::Relaxed))),
        move |b| {
            let text = core::str::from_utf8(b).map_err(|_| Errno::EINVAL)?;
            let n = text.trim_ascii().parse().map_err(|_| Errno::EINVAL)?;
            settings().pipe_limit.store(n, Ordering::Relaxed);
            Ok(())
        },
    )
}

fn core_uses_pid() -> Node {
    let settings = || SETTINGS.get();
    writable(
        0o644,
        move || Ok(format!("{}\n", u8::from(settings().uses_pid.load(Ordering::Relaxed)))),
        move |b| {
            let text = core::str::from_utf8(b).map_err(|_| Errno::EINVAL)?;
            let n: i32 = text.trim_ascii().parse().map_err(|_| Errno::EINVAL)?;
            settings().uses_pid.store(n != 0, Ordering::Relaxed);
            Ok(())
        },
    )
}

/// One of the names of the reader's or writer's UTS namespace.
fn uts_name(of: fn(&Uts) -> &SpinLock<Vec<u8>>) -> Node {
    const SYS_ADMIN: u32 = 21;
    let uts = || current().namespaces.load().uts.clone();
    writable(
        0o644,
        move || Ok(String::from_utf8_lossy(&of(&uts()).lock()).into_owned() + "\n"),
        move |b| {
            let uts = uts();
            if !current().cred().capable_in(uts.user(), SYS_ADMIN) {
                return Err(Errno::EPERM);
            }
            let b = b.strip_suffix(b"\n").unwrap_or(b);
            *of(&uts).lock() = b[..b.len().min(64)].to_vec();
            Ok(())
        },
    )
}

fn random() -> Node {
    let e: Entries = alloc::vec![
        ("boot_id", || text(|| Ok(uuid_text(&kernel().boot_id.lock())))),
        ("entropy_avail", || fixed("256\n")),
        ("poolsize", || fixed("256\n")),
        ("urandom_min_reseed_secs", || fixed("60\n")),
        ("uuid", || text(|| {
            let mut b = [0u8; 16];
            crate::core::random::fill(&mut b);
            Ok(uuid_text(&b))
        })),
        ("write_wakeup_threshold", || fixed("256\n")),
    ];
    dir(e)
}

/// A version 4 UUID from random bytes.
fn uuid_text(b: &[u8; 16]) -> String {
    let mut v = *b;
    v[6] = v[6] & 0x0f | 0x40;
    v[8] = v[8] & 0x3f | 0x80;
    let mut s = String::new();
    for (i, x) in v.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            s.push('-');
        }
        s += &format!("{x:02x}");
    }
    s + "\n"
}

fn net() -> Node {
    let e: Entries = alloc::vec![
        ("core", || dir(alloc::vec![
            ("default_qdisc", || fixed("noqueue\n")),
            ("netdev_max_backlog", || fixed("1000\n")),
            ("optmem_max", || fixed("131072\n")),
            ("rmem_default", || fixed("212992\n")),
            ("rmem_max", || fixed("212992\n")),
            ("somaxconn", || fixed("4096\n")),
            ("wmem_default", || fixed("212992\n")),
            ("wmem_max", || fixed("212992\n")),
        ])),
        ("ipv4", || dir(alloc::vec![
            ("ip_default_ttl", || fixed("64\n")),
            ("ip_forward", || fixed("0\n")),
            ("ip_local_port_range", || fixed("32768\t60999\n")),
            ("ip_unprivileged_port_start", || fixed("1024\n")),
            ("ping_group_range", || fixed("0\t2147483647\n")),
            ("tcp_allowed_congestion_control", || algorithms(usize::MAX)),
            ("tcp_available_congestion_control", || algorithms(usize::MAX)),
            ("tcp_congestion_control", || algorithms(1)),
            ("tcp_fastopen", || fixed("0\n")),
            ("tcp_fin_timeout", || fixed("60\n")),
            ("tcp_keepalive_intvl", || fixed("75\n")),
            ("tcp_keepalive_probes", || fixed("9\n")),
            ("tcp_keepalive_time", || fixed("7200\n")),
            ("tcp_max_syn_backlog", || fixed("4096\n")),
            ("tcp_rmem", || fixed("4096\t131072\t6291456\n")),
            ("tcp_sack", || fixed("1\n")),
            ("tcp_syncookies", || fixed("1\n")),
            ("tcp_timestamps", || fixed("1\n")),
            ("tcp_tw_reuse", || fixed("2\n")),
            ("tcp_window_scaling", || fixed("1\n")),
            ("tcp_wmem", || fixed("4096\t16384\t4194304\n")),
        ])),
        ("ipv6", || dir(alloc::vec![
            ("bindv6only", || fixed("0\n")),
            ("conf", || dir(alloc::vec![
                ("all", ipv6_conf as fn() -> Node),
                ("default", ipv6_conf),
                ("lo", ipv6_conf)
            ])),
        ])),
        ("unix", || dir(alloc::vec![("max_dgram_qlen", || fixed("512\n"))])),
    ];
    dir(e)
}

fn ipv6_conf() -> Node {
    dir(alloc::vec![
        ("accept_ra", || fixed("0\n") as Node),
        ("disable_ipv6", || fixed("0\n")),
        ("forwarding", || fixed("0\n")),
    ])
}

/// 1 means cached pages, which are the host's; 2 cached names and inodes; 3 both; 4 no more messages about it.
fn drop_caches(what: &[u8]) -> Result<()> {
    match what.trim_ascii() {
        b"1" | b"4" => Ok(()),
        b"2" | b"3" => {
            crate::objects::vfs::drop_caches();
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

fn vm() -> Node {
    let e: Entries = alloc::vec![
        ("dirty_background_ratio", || fixed("10\n")),
        ("dirty_ratio", || fixed("20\n")),
        ("drop_caches", || writable(0o200, || Ok("0\n".into()), drop_caches)),
        ("legacy_va_layout", || fixed("0\n")),
        ("max_map_count", || fixed("65530\n")),
        ("mmap_min_addr", || fixed("65536\n")),
        ("min_free_kbytes", || fixed("0\n")),
        ("nr_hugepages", || fixed("0\n")),
        ("overcommit_memory", || fixed("0\n")),
        ("overcommit_kbytes", || fixed("0\n")),
        ("overcommit_ratio", || fixed("50\n")),
        ("page-cluster", || fixed("3\n")),
        ("swappiness", || fixed("60\n")),
        ("vfs_cache_pressure", || fixed("100\n")),
    ];
    dir(e)
}

/// Names of so many algorithms of congestion control.
fn algorithms(most: usize) -> Node {
    text(move || {
        let all = crate::objects::net::outside::algorithms();
        let names = all.names().take(most).map(String::from_utf8_lossy);
        Ok(format!("{}\n", names.collect::<alloc::vec::Vec<_>>().join(" ")))
    })
}
