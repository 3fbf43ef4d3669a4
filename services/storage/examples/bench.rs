//! What a channel to the storage service costs: operations on a directory of the host, and the same through a service in this process.
//! `cargo run --release -p doppel-storage --example bench [DIRECTORY]`. Each is done in rounds, and the best round counts.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Operation, Request, flags};
use doppel_storage::{Engine, Volume, node_memory};

#[path = "../src/tests/guest.rs"]
#[allow(dead_code)]
mod guest;

use guest::Guest;

const ROUNDS: u32 = 5;
const FILES: usize = 2000;

/// The best time of one of so many operations.
fn best(n: usize, mut round: impl FnMut()) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            round();
            begun.elapsed() / u32::try_from(n).unwrap()
        })
        .min()
        .unwrap()
}

fn show(what: &str, native: Duration, channel: Duration) {
    let ratio = native.as_secs_f64() / channel.as_secs_f64();
    println!("{what:<28} {native:>10.2?} {channel:>10.2?}   {ratio:.2}");
}

fn names(prefix: &str) -> Vec<String> {
    (0..FILES).map(|i| format!("{prefix}{i}")).collect()
}

fn data(guest: &mut Guest, root: &Path) {
    let path = root.join("data");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let node = guest.lookup(0, "data").unwrap();
    for (what, len) in [("4 KiB", 4096), ("256 KiB", 256 << 10)] {
        let mut bytes = vec![7; len];
        let n = if len == 4096 { 20_000 } else { 2000 };
        let place = |i: usize| (i % 64 * len) as u64;
        let native = best(n, || (0..n).for_each(|i| file.write_all_at(&bytes, place(i)).unwrap()));
        let write = |i| Request { a: place(i), b: len as u64, ..Request::new(Operation::Write, node) };
        let channel = best(n, || {
            (0..n).for_each(|i| {
                guest.call(write(i)).unwrap();
            })
        });
        show(&format!("write {what}"), native, channel);
        let native = best(n, || (0..n).for_each(|i| file.read_exact_at(&mut bytes, place(i)).unwrap()));
        let read = |i| Request { a: place(i), b: len as u64, ..Request::new(Operation::Read, node) };
        let channel = best(n, || {
            (0..n).for_each(|i| {
                guest.call(read(i)).unwrap();
            })
        });
        show(&format!("read {what}"), native, channel);
    }
}

/// All that follows, in slots that are asked at once.
fn batch(guest: &mut Guest, names: &[String], request: Request) {
    for some in names.chunks(32) {
        for (slot, name) in (0..).zip(some) {
            let a = guest.put_name(slot, name.as_bytes());
            guest.ask(slot, Request { a, ..request });
        }
        (0..).zip(some).for_each(|(slot, _)| {
            guest.wait(slot).unwrap();
        });
    }
}

fn names_and_attributes(guest: &mut Guest, root: &Path) {
    let (here, there) = (names("native"), names("channel"));
    let paths: Vec<PathBuf> = here.iter().map(|name| root.join(name)).collect();
    let once = |act: &mut dyn FnMut(usize)| {
        let begun = Instant::now();
        (0..FILES).for_each(act);
        begun.elapsed() / FILES as u32
    };
    let native = once(&mut |i| drop(File::create_new(&paths[i]).unwrap()));
    let mut nodes = Vec::new();
    let channel = once(&mut |i| nodes.push(guest.create(0, &there[i]).unwrap()));
    show("create", native, channel);
    let native = best(FILES, || {
        paths.iter().for_each(|path| {
            path.symlink_metadata().unwrap();
        })
    });
    let channel = best(FILES, || {
        nodes.iter().for_each(|node| {
            guest.attributes(*node).unwrap();
        })
    });
    show("stat, known", native, channel);
    let channel = best(FILES, || {
        there.iter().for_each(|name| {
            guest.lookup(0, name).unwrap();
        })
    });
    show("stat, looked up", native, channel);
    let channel = best(FILES, || batch(guest, &there, Request::new(Operation::Lookup, 0)));
    show("stat, 32 at once", native, channel);
    let missing = names("missing");
    let native = best(FILES, || {
        missing.iter().for_each(|name| {
            root.join(name).symlink_metadata().unwrap_err();
        })
    });
    let channel = best(FILES, || {
        missing.iter().for_each(|name| {
            guest.lookup(0, name).unwrap_err();
        })
    });
    show("stat, not there", native, channel);
    let to = |name: &str| name.replace("e", "E");
    let native = once(&mut |i| std::fs::rename(&paths[i], root.join(to(&here[i]))).unwrap());
    let channel = once(&mut |i| guest.rename(0, &there[i], 0, &to(&there[i]), flags::UNUSED).unwrap());
    show("rename", native, channel);
    let native = best(1, || {
        assert!(std::fs::read_dir(root).unwrap().map(Result::unwrap).count() > FILES);
    });
    let channel = best(1, || {
        guest.list(0).unwrap();
    });
    show("list 4,000", native, channel);
    let native = once(&mut |i| std::fs::remove_file(root.join(to(&here[i]))).unwrap());
    let channel = once(&mut |i| {
        let request = Request { flags: flags::UNUSED, ..Request::new(Operation::Unlink, 0) };
        guest.named(request, to(&there[i]).as_bytes()).unwrap();
        guest.forget(nodes[i], 1 + 2 * u64::from(ROUNDS));
    });
    show("unlink", native, channel);
}

/// Without threads that wake each other: what the work itself costs.
fn alone(root: &Path) {
    let engine = Engine::new(1, false).unwrap();
    let (memory, doorbell) = guest::channel();
    let mut guest = Guest::new(memory.as_fd(), doorbell.as_fd());
    let volumes = vec![Volume::open(root, false).unwrap()];
    engine.attach(&memory, doorbell, &node_memory().unwrap(), volumes).unwrap();
    let mut call = |request: Request, name: &str| {
        let a = if name.is_empty() { request.a } else { guest.put_name(0, name.as_bytes()) };
        guest.ask(0, Request { a, ..request });
        engine.turn().unwrap();
        guest.answered(0).unwrap().unwrap().node
    };
    let names = names("alone");
    let mut time = |what: &str, request: Request, named: bool| {
        let begun = Instant::now();
        let mut last = 0;
        for name in &names {
            last = call(request, if named { name } else { "" });
        }
        println!("{what:<28} {:>21.2?}", begun.elapsed() / FILES as u32);
        last
    };
    let make = Request { b: 0o100_644, ..Request::new(Operation::Make, 0) };
    let node = time("alone: create", make, true);
    time("alone: stat, known", Request::new(Operation::GetAttr, node), false);
    time("alone: stat, looked up", Request::new(Operation::Lookup, 0), true);
    time("alone: write 4 KiB", Request { b: 4096, ..Request::new(Operation::Write, node) }, false);
    time("alone: read 4 KiB", Request { b: 4096, ..Request::new(Operation::Read, node) }, false);
    time("alone: stat, looked up again", Request::new(Operation::Lookup, 0), true);
    time("alone: unlink", Request { flags: flags::UNUSED, ..Request::new(Operation::Unlink, 0) }, true);
}

fn main() {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let root = tempfile::tempdir_in(dir).unwrap();
    let engine = Arc::new(Engine::new(8, true).unwrap());
    let (memory, doorbell) = guest::channel();
    let mut guest = Guest::new(memory.as_fd(), doorbell.as_fd());
    let volumes = vec![Volume::open(root.path(), false).unwrap()];
    engine.attach(&memory, doorbell, &node_memory().unwrap(), volumes).unwrap();
    let threads = engine.start().unwrap();
    println!("{:<28} {:>10} {:>10}   ratio", "", "native", "channel");
    data(&mut guest, root.path());
    names_and_attributes(&mut guest, root.path());
    alone(root.path());
    engine.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
