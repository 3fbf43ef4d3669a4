use doppel_layer::{Attributes, Loaded, Pages, Record, Source, Store, Transaction, Writer, load};
use doppel_spec::Kind;

use super::*;
use crate::{Base, Layer, LayerStore};

/// A layer's files as its domain's guest kernel has them: reads go to where the bytes are, writes to the topmost.
struct Log(Stack);

impl Log {
    fn of(layer: &Layer) -> Self {
        let mut stack = layer.open().unwrap();
        stack.top = File::options().read(true).write(true).open(file(&layer.dir)).unwrap();
        Self(stack)
    }
}

impl Store for Log {
    type Error = io::Error;

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.top.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.0.top.write_all_at(&vec![0; usize::try_from(len).unwrap()], at).unwrap();
    }
}

impl Source for Log {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> std::result::Result<usize, doppel_layer::Error> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], at + done as u64).unwrap() {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }
}

fn loaded(layer: &Layer) -> Loaded {
    load(&mut Log::of(layer)).unwrap()
}

/// Writes a file of so many pages with this byte in them.
fn put(writer: &mut Writer, log: &mut Log, ino: u64, pages: u64, byte: u8) {
    let mut all = Transaction::new();
    let attributes = Attributes { mode: 0o100_644, nlink: 1, ..Attributes::default() };
    all.add(&Record::Inode { ino, attributes });
    all.add(&Record::Size { ino, size: pages * BLOCK });
    let run = Pages { ino, page: 0, pages };
    writer.commit_synced(log, all, &[run], |_, _, bytes| bytes.fill(byte)).unwrap();
}

/// The first byte of a file's last page.
fn last_byte(layer: &Layer, ino: u64) -> Option<u8> {
    let tree = loaded(layer).tree;
    let content = tree.files.get(&ino)?.content.as_ref()?;
    let (block, _) = content.blocks.find(content.size / BLOCK - 1);
    let mut byte = [0];
    Log::of(layer).read(block? * BLOCK, &mut byte).unwrap();
    Some(byte[0])
}

struct Bench {
    dir: tempfile::TempDir,
    store: LayerStore,
    base: Base,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = LayerStore::of(dir.path());
        Self { dir, store, base: Base { image: "box".into(), digest: "1".repeat(64), kind: Kind::Para } }
    }

    fn frozen(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Freezes the domain of a layer, and makes a clone's layer of that; its guest kernel goes on with the writer's state.
    fn freeze(&self, layer: &Layer, name: &str) -> u64 {
        let end = loaded(layer).end * BLOCK;
        share(&layer.dir, end, &self.frozen(name)).unwrap();
        end
    }

    fn clone_of(&self, name: &str, id: &str) -> Layer {
        self.store.of_clone(id, &self.base, &self.frozen(name), Some(id)).unwrap()
    }

    fn links(&self) -> Vec<PathBuf> {
        let (mut found, mut todo) = (Vec::new(), vec![self.dir.path().to_owned()]);
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                if entry.path().is_dir() {
                    todo.push(entry.path());
                } else if entry.file_name() != ".lock" {
                    found.push(entry.path());
                }
            }
        }
        found
    }
}

const PARENT: &str = "00000000000000aa";
const CLONE: &str = "00000000000000bb";
const GRANDCHILD: &str = "00000000000000cc";

/// A domain that goes on after its freeze, makes checkpoints and gives back what it can; its clone; and a clone of that.
fn family(bench: &Bench) -> (Layer, Layer, Layer) {
    let parent = bench.store.own(PARENT, &bench.base).unwrap();
    let mut log = Log::of(&parent);
    let mut writer = Writer::open(loaded(&parent), &mut log).unwrap();
    for byte in 1..20 {
        put(&mut writer, &mut log, 1000, 4, byte);
    }
    put(&mut writer, &mut log, 1001, 3, 7);
    bench.freeze(&parent, "one");
    writer.share();
    let clone = bench.clone_of("one", CLONE);
    assert_eq!((last_byte(&clone, 1000), last_byte(&clone, 1001)), (Some(19), Some(7)));
    // The clone's begins where the domain's stood, and neither sees the other's.
    let mut above = Log::of(&clone);
    let mut cloned = Writer::open(loaded(&clone), &mut above).unwrap();
    cloned.share();
    for byte in 50..70 {
        put(&mut writer, &mut log, 1000, 4, byte);
        put(&mut cloned, &mut above, 1001, 3, byte + 50);
    }
    writer.close(&mut log).unwrap();
    cloned.close(&mut above).unwrap();
    bench.freeze(&clone, "two");
    let grandchild = bench.clone_of("two", GRANDCHILD);
    let mut third = Log::of(&grandchild);
    let mut writer = Writer::open(loaded(&grandchild), &mut third).unwrap();
    put(&mut writer, &mut third, 1002, 2, 200);
    (parent, clone, grandchild)
}

#[test]
fn a_clones_files_are_read_without_its_memory() {
    let bench = Bench::new();
    let (parent, clone, grandchild) = family(&bench);
    assert_eq!([1000, 1001, 1002].map(|ino| last_byte(&parent, ino)), [Some(69), Some(7), None]);
    assert_eq!([1000, 1001, 1002].map(|ino| last_byte(&clone, ino)), [Some(19), Some(119), None]);
    assert_eq!([1000, 1001, 1002].map(|ino| last_byte(&grandchild, ino)), [Some(19), Some(119), Some(200)]);
}

#[test]
fn whoever_goes_first_takes_nothing_from_others() {
    type Part = (&'static str, fn(&Bench));
    let parts: [Part; 5] = [
        ("parent", |b| b.store.release(PARENT, PARENT).unwrap()),
        ("clone", |b| b.store.release(CLONE, CLONE).unwrap()),
        ("grandchild", |b| b.store.release(GRANDCHILD, GRANDCHILD).unwrap()),
        ("one", |b| fs::remove_dir_all(b.frozen("one")).unwrap()),
        ("two", |b| fs::remove_dir_all(b.frozen("two")).unwrap()),
    ];
    // All orders of a domain, its frozen image and its clone, before and after what comes of the clone.
    let before = orders(&[0, 1, 3]).into_iter().map(|order| [order, vec![4, 2]].concat());
    let after = orders(&[0, 1, 3]).into_iter().map(|order| [vec![2, 4], order].concat());
    for order in before.chain(after) {
        let bench = Bench::new();
        let (parent, clone, grandchild) = family(&bench);
        let expected = [(parent, 69, 7), (clone, 19, 119), (grandchild, 19, 119)];
        let mut left: Vec<usize> = order.clone();
        for &part in &order {
            parts[part].1(&bench);
            // Whoever prunes or sweeps meanwhile finds nothing that nobody has.
            assert!(bench.store.prune().unwrap().is_empty());
            bench.store.sweep().unwrap();
            left.retain(|p| *p != part);
            for (i, (layer, first, second)) in expected.iter().enumerate() {
                let said = left.contains(&i).then(|| [1000, 1001].map(|ino| last_byte(layer, ino)));
                let wanted = left.contains(&i).then_some([Some(*first), Some(*second)]);
                assert_eq!(said, wanted, "{} after {:?}", parts[i].0, order);
            }
        }
        assert!(bench.links().is_empty(), "{order:?} left {:?}", bench.links());
    }
}

fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let with = |first: usize| {
        let rest: Vec<usize> = of.iter().copied().filter(|i| *i != first).collect();
        orders(&rest).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    of.iter().flat_map(|first| with(*first)).collect()
}

#[test]
fn one_that_does_not_say_what_it_lies_on_is_refused() {
    let bench = Bench::new();
    let (_, clone, grandchild) = family(&bench);
    fs::remove_file(below(&clone.dir).join(STACK)).unwrap();
    let said = clone.open().unwrap_err().to_string();
    assert!(said.contains("older version"), "{said}");
    // Nor does what is frozen of it then.
    share(&clone.dir, 1 << 20, &bench.frozen("three")).unwrap();
    assert!(StackRecord::read(&bench.frozen("three")).unwrap().is_none());
    fs::write(below(&grandchild.dir).join(STACK), [0; HEAD + WORD]).unwrap();
    assert!(grandchild.open().unwrap_err().to_string().contains("cut short"));
}

#[test]
fn nobody_else_runs_on_a_clones() {
    let bench = Bench::new();
    family(&bench);
    let said = bench.store.named(CLONE, &bench.base, None).unwrap_err().to_string();
    assert!(said.contains("doppel commit"), "{said}");
}
