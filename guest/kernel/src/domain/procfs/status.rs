//! /proc/PID/status.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::pid::{comm_of, comm_text, cpu_list, state};
use super::put::put;
use crate::core::namespace::pid::PidNamespace;
use crate::core::subject::subject;
use crate::process::namespaces::numbers;
use crate::process::task::{Process, Thread};
use crate::{Result, kernel, memory};

/// The file's text: of a thread, or of the process as a whole.
pub(super) fn status(p: &Process, t: Option<&Thread>, ns: &PidNamespace) -> Result<String> {
    let mut s = String::new();
    names(&mut s, p, t, ns);
    identity(&mut s, p, t, ns);
    if !p.is_zombie() {
        sizes(&mut s, p);
    }
    signals(&mut s, p, t);
    rights(&mut s, p, t);
    cpus(&mut s);
    Ok(s)
}

fn names(s: &mut String, p: &Process, t: Option<&Thread>, ns: &PidNamespace) {
    let st = state(p, t);
    let leader = p.threads();
    let tracer = t.or(leader.first().map(|t| &**t)).and_then(|t| t.ptrace.tracer()).map_or(0, |q| q.pid);
    let word = match st {
        'R' => "running",
        'T' => "stopped",
        't' => "tracing stop",
        'Z' => "zombie",
        _ => "sleeping",
    };
    let name = t.map_or_else(|| comm_of(p), |t| comm_text(&t.comm.lock()));
    let name = name.replace('\\', "\\\\").replace('\n', "\\n");
    put(
        s,
        format_args!(
            "Name:\t{name}\nUmask:\t{:04o}\nState:\t{st} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\nTracerPid:\t{}\n",
            p.fs().umask(),
            ns.shown(p.pid),
            ns.shown(t.map_or(p.pid, Thread::tid)),
            p.parent().map_or(0, |q| ns.shown(q.pid)),
            ns.shown(tracer)
        ),
    );
}

fn identity(s: &mut String, p: &Process, t: Option<&Thread>, ns: &PidNamespace) {
    let user = &subject().cred().user;
    let c = t.map_or_else(|| p.cred(), Thread::cred);
    let groups: String = c.groups.iter().map(|g| user.gid(*g).to_string() + " ").collect();
    put(
        s,
        format_args!(
            "Uid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t{}\nGroups:\t{groups}\nNStgid:\t{}\nNSpid:\t{}\nNSpgid:\t{}\nNSsid:\t{}\n",
            user.uid(c.ruid),
            user.uid(c.euid),
            user.uid(c.suid),
            user.uid(c.fsuid),
            user.gid(c.rgid),
            user.gid(c.egid),
            user.gid(c.sgid),
            user.gid(c.fsgid),
            p.files().list().len().next_multiple_of(64).max(64),
            below(ns, p, p.pid),
            below(ns, p, t.map_or(p.pid, Thread::tid)),
            below(ns, p, p.pgid()),
            below(ns, p, p.session().sid)
        ),
    );
}

/// What one of the kernel's numbers is from `ns` down to the namespace of the process.
fn below(ns: &PidNamespace, p: &Process, kernel: i32) -> String {
    let all = numbers::of(p).shown_below(ns, kernel);
    all.iter().map(i32::to_string).collect::<Vec<_>>().join("\t")
}

/// Sizes of its memory.
fn sizes(s: &mut String, p: &Process) {
    let v = memory::vm_stats(&p.space().mm);
    let kb = |b: u64| b / 1024;
    put(
        s,
        format_args!(
            "VmPeak:\t{0:8} kB\nVmSize:\t{0:8} kB\nVmLck:\t{3:8} kB\nVmPin:\t       0 kB\nVmHWM:\t{1:8} kB\nVmRSS:\t{1:8} kB\nRssAnon:\t{1:8} kB\nRssFile:\t       0 kB\nRssShmem:\t{2:8} kB\n",
            kb(v.size),
            kb(v.resident),
            kb(v.shared),
            kb(v.locked)
        ),
    );
    put(
        s,
        format_args!(
            "VmData:\t{:8} kB\nVmStk:\t{:8} kB\nVmExe:\t{:8} kB\nVmLib:\t       0 kB\nVmPTE:\t       0 kB\nVmSwap:\t{:8} kB\n",
            kb(v.data),
            kb(v.stack),
            kb(v.text),
            kb(v.swapped)
        ),
    );
}

fn signals(s: &mut String, p: &Process, t: Option<&Thread>) {
    let (pending, blocked) = t.map_or((0, 0), |t| (t.signals.pending(), t.signals.mask()));
    let (ignored, caught) = p.signals.ignored_and_caught();
    put(
        s,
        format_args!(
            "CoreDumping:\t{}\nTHP_enabled:\t1\nThreads:\t{}\nSigQ:\t0/{}\nSigPnd:\t{pending:016x}\nShdPnd:\t{:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n",
            u8::from(p.dump.is_under_way()),
            p.threads().len().max(1),
            p.rlimit(crate::process::task::Resource::Sigpending),
            p.signals.pending()
        ),
    );
}

/// Capabilities and system call filters.
fn rights(s: &mut String, p: &Process, t: Option<&Thread>) {
    let c = t.map_or_else(|| p.cred(), Thread::cred);
    let seccomp = match t {
        Some(t) => t.seccomp.status(),
        None => p.threads.lock().first().map_or((0, 0), |t| t.seccomp.status()),
    };
    put(
        s,
        format_args!(
            "CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\n",
            c.cap_inheritable,
            c.cap_permitted,
            c.cap_effective,
            c.cap_bounding,
            c.cap_ambient,
            u8::from(p.no_new_privs.load(Ordering::Relaxed)),
            seccomp.0,
            seccomp.1
        ),
    );
}

fn cpus(s: &mut String) {
    let cpus = kernel().vcpu_limit;
    let mask = if cpus >= 32 { u32::MAX } else { (1 << cpus) - 1 };
    put(
        s,
        format_args!(
            "Cpus_allowed:\t{mask:x}\nCpus_allowed_list:\t{}\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
            cpu_list(cpus)
        ),
    );
}
