"""Guest threads for gdb on a domain's process (docs/debugging.md).

    gdb -p PID -x scripts/doppel_gdb.py KERNEL
    (gdb) doppel threads
    (gdb) doppel bt [TID]

KERNEL is the guest kernel's ELF file that the domain runs, with its debug information. `doppel threads` lists the
threads of the domain as `doppel debug stacks` does: process and thread number, state, name, and the function of the
kernel in which they wait. `doppel bt` prints the calls of one that waits in the kernel, or of all. All processes of a
domain have the kernel and its memory at the same addresses, so any of them will do.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import gdb

TASKS = "doppel_kernel::process::task::table::TASKS"
# What `swap_stacks` leaves on a kernel stack, lowest address first (guest/machine/src/backtrace.rs).
PUSHED = ("r15", "r14", "r13", "r12", "rbx", "rbp", "rip")
# Functions by which threads wait, whatever for (guest/kernel/src/domain/procfs/waiting.rs).
MEANS = ("doppel_machine::", "doppel_kernel::core::sched::", "doppel_kernel::process::task::", "core::", "alloc::")
# Most frames of a backtrace.
DEPTH = 64

Registers = dict[str, int]


def inner(value: gdb.Value, *names: str) -> gdb.Value:
    """A field of a field of a field."""
    for name in names:
        value = value[name]
    return value


def cell(value: gdb.Value) -> gdb.Value:
    """What is in the cells, atomics and wrappers of one field around a value."""
    while value.type.code == gdb.TYPE_CODE_STRUCT:
        fields = [f for f in value.type.fields() if f.type.sizeof]
        if len(fields) != 1:
            break
        value = value[fields[0]]
    return value


def find(value: gdb.Value, wanted: str) -> gdb.Value | None:
    """The first pointer to a type of this name inside of a value, through its wrappers."""
    value_type = value.type.strip_typedefs()
    if value_type.code == gdb.TYPE_CODE_PTR:
        return value if wanted in str(value_type.target()) else None
    if value_type.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        for field in value_type.fields():
            if field.is_base_class or not field.type.sizeof:
                continue
            found = find(value[field], wanted)
            if found is not None:
                return found
    return None


def named(value: gdb.Value, name: str) -> gdb.Value | None:
    """The first field of this name inside of a value, through its wrappers."""
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        for field in value.type.strip_typedefs().fields():
            found = value[field] if field.name == name else named(value[field], name)
            if found is not None:
                return found
    return None


def pointer(value: gdb.Value, wanted: str) -> gdb.Value:
    """What the pointer to a type of this name inside of a value leads to."""
    found = find(value, wanted)
    if found is None or not int(found):
        raise gdb.GdbError(f"the guest kernel has no {wanted} here: it has not booted, or its file is another one")
    return found.dereference()


def entries(tree: gdb.Value) -> Iterator[tuple[gdb.Value, gdb.Value]]:
    """Keys and values of a BTreeMap, in order."""
    if int(tree["length"]) == 0:
        return
    leaf = find(tree["root"], "LeafNode")
    assert leaf is not None, "the map's root is not where it was"
    leaf_name = str(leaf.dereference().type)
    internal = gdb.lookup_type(leaf_name.replace("LeafNode", "InternalNode", 1)).pointer()
    height = named(tree["root"], "height")
    assert height is not None, "the map's height is not where it was"

    def walk(node: gdb.Value, level: int) -> Iterator[tuple[gdb.Value, gdb.Value]]:
        data = node.dereference()
        n = int(data["len"])
        for i in range(n + 1):
            if level:
                edge = find(node.cast(internal).dereference()["edges"][i], "LeafNode")
                assert edge is not None, "an edge of the map is no pointer any more"
                yield from walk(edge, level - 1)
            if i < n:
                yield cell(data["keys"][i]["value"]), data["vals"][i]["value"]

    yield from walk(leaf, int(height))


def threads() -> Iterator[tuple[int, gdb.Value]]:
    """Number and `Thread` of each guest thread."""
    symbol = gdb.lookup_global_symbol(TASKS) or gdb.lookup_static_symbol(TASKS)
    if symbol is None:
        raise gdb.GdbError(f"no {TASKS}: give the kernel's file, with its debug information, as gdb's program")
    tasks = pointer(symbol.value(), "table::Tasks")
    for tid, arc in entries(inner(tasks, "threads", "value", "value")):
        yield int(tid), pointer(arc, "ArcInner")["data"]


def switched_out(thread: gdb.Value) -> Registers | None:
    """Registers that a thread which is switched out left on its kernel stack."""
    task = thread["task"]
    if int(cell(task["on_cpu"])):
        return None
    top = int(cell(task["krsp"]))
    memory = gdb.selected_inferior().read_memory(top, 8 * len(PUSHED)).tobytes()
    words = [int.from_bytes(memory[i : i + 8], "little") for i in range(0, len(memory), 8)]
    return {**dict(zip(PUSHED, words, strict=True)), "rsp": top + len(memory)}


def resting(thread: gdb.Value) -> Registers | None:
    """Where a thread stands that waits on its vCPU (guest/machine/src/position.rs)."""
    rest = thread["task"]["resting"]
    if int(cell(rest["turn"])) % 2 == 0:
        return None
    return {name: int(cell(rest["place"][i])) for i, name in enumerate(("rip", "rsp", "rbp"))}


def position(thread: gdb.Value) -> Registers | None:
    """Registers of a thread that waits in the kernel; none if it runs."""
    return switched_out(thread) or resting(thread)


@contextlib.contextmanager
def standing_at(registers: Registers) -> Iterator[None]:
    """gdb unwinds as if the selected host thread had these registers, which gets its own back."""
    gdb.execute("frame 0", to_string=True)
    frame = gdb.newest_frame()
    # The last one tells Linux whether a host call goes on: gdb may change it with the others.
    names = [*registers, "orig_rax"]
    word = gdb.lookup_type("u64")
    own: dict[str, Any] = {n: int(frame.read_register(n).cast(word)) for n in names}
    try:
        for n, value in registers.items():
            gdb.execute(f"set var ${n} = {value}", to_string=True)
        yield
    finally:
        for n in names:
            gdb.execute(f"set var ${n} = {own[n]}", to_string=True)


def addresses() -> list[int]:
    """Where the calls of the selected host thread stand, innermost first; inlined ones are left out."""
    found: list[int] = []
    frame = gdb.newest_frame()
    while frame is not None and len(found) < DEPTH:
        if frame.type() != gdb.INLINE_FRAME:
            found.append(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    return found


def function(pc: int) -> str:
    """The function of the code before an address, as the kernel names it."""
    text = gdb.execute(f"info symbol {pc - 1:#x}", to_string=True) or ""
    if text.startswith("No symbol"):
        return hex(pc)
    name = re.sub(r"( \+ \d+)? in section .*", "", text.strip(), flags=re.DOTALL)
    return re.sub(r"::h[0-9a-f]{16}$", "", name)


def channel(names: list[str]) -> str:
    """The function in which a thread waits, in short, from its calls."""
    for name in names:
        # `<a::B as c::D>::e` is `a::B::e`.
        method = re.match(r"<(.*?)(?: as .*)?>::(\w.*)$", name)
        path = f"{method[1]}::{method[2]}" if method else name
        if not path.startswith(MEANS):
            return "::".join(p for p in path.removeprefix("doppel_kernel::").split("::") if not p.startswith("{"))
    return "-"


def line(tid: int, thread: gdb.Value) -> str:
    """A thread as `doppel debug stacks` shows it."""
    process = pointer(thread["process"], "ArcInner")["data"]
    at = position(thread)
    where = "-"
    if at is not None:
        with standing_at(at):
            where = channel([function(pc) for pc in addresses()])
    state = "R" if at is None else "S"
    if int(cell(process["signals"]["stopped"])):
        state = "T"
    comm = inner(thread, "comm", "value", "value")
    name = bytes(int(comm[i]) for i in range(16)).split(b"\0")[0].decode("ascii", "backslashreplace")
    return f"{int(process['pid'])}/{tid} {state} {name} {where}\n"


class Doppel(gdb.Command):
    """Commands for the guest kernel of a domain: threads, bt."""

    def __init__(self) -> None:
        super().__init__("doppel", gdb.COMMAND_STATUS, prefix=True)


class Threads(gdb.Command):
    """doppel threads: the guest threads of the domain."""

    def __init__(self) -> None:
        super().__init__("doppel threads", gdb.COMMAND_STATUS)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        for tid, thread in threads():
            gdb.write(line(tid, thread))


class Backtrace(gdb.Command):
    """doppel bt [TID]: the calls in the kernel of a guest thread that waits, or of all."""

    def __init__(self) -> None:
        super().__init__("doppel bt", gdb.COMMAND_STACK)

    def invoke(self, argument: str, _from_tty: bool) -> None:
        if argument and not argument.isdecimal():
            raise gdb.GdbError("doppel bt [TID]: the number of a guest thread")
        found = [(tid, thread) for tid, thread in threads() if not argument or tid == int(argument)]
        if not found:
            raise gdb.GdbError(f"no guest thread {argument}")
        for tid, thread in found:
            gdb.write(line(tid, thread))
            at = position(thread)
            if at is not None:
                with standing_at(at):
                    gdb.execute(f"backtrace {DEPTH}")


Doppel()
Threads()
Backtrace()
gdb.execute("handle SIGSYS SIGSEGV SIGTTIN nostop noprint pass", to_string=True)
