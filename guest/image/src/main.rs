//! The guest kernel ELF: start code and wiring of `doppel-machine` with `doppel-kernel`.
//!
//! The host executes it as the domain's PID 1; every other process of the domain is cloned from it.
#![no_std]
#![no_main]

extern crate alloc;

use core::arch::naked_asm;
use core::fmt::Write;

use doppel_kernel::core::events::EVENTS;
use doppel_machine::{backtrace, boot, console, host};

#[global_allocator]
static ARENA: doppel_machine::arena::Arena = doppel_machine::arena::Arena;

/// ELF entry: hands the initial stack to [`start`] on an aligned stack.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn _start() -> ! {
    naked_asm!("xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {start}", "ud2", start = sym start)
}

extern "C" fn start(stack: *const u64) -> ! {
    // SAFETY: called once, by _start, with the initial stack.
    unsafe { boot::boot(stack, &doppel_kernel::domain::boot::START) }
}

/// Formats into a bounded buffer; a panic must not allocate.
struct Line {
    buf: [u8; 480],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.buf.len() - self.len);
        self.buf[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Our own bug: tell the host why and end the domain (fate-sharing, docs/design.md §5).
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = Line { buf: [0; 480], len: 0 };
    // Truncation is all that can go wrong.
    let _ = writeln!(line, "guest kernel panic: {info}");
    console::log(&line.buf[..line.len]);
    backtrace();
    newest_events();
    boot::report_panic();
    host::exit_process(70)
}

/// Says which functions led to the panic.
fn backtrace() {
    let table = backtrace::table();
    for pc in backtrace::here().addresses() {
        let mut line = Line { buf: [0; 480], len: 0 };
        // Truncation is all that can go wrong.
        let _ = match table.and_then(|t| t.function(pc - 1)) {
            Some(f) => writeln!(line, "  {pc:#x} {}+{:#x}", f.name, f.offset + 1),
            None => writeln!(line, "  {pc:#x}"),
        };
        console::log(&line.buf[..line.len]);
    }
}

/// Says what happened before, if events are on.
fn newest_events() {
    const MOST: u64 = 16;
    let Some(events) = EVENTS.peek() else { return };
    events.newest(MOST, &mut |number, event| {
        let mut line = Line { buf: [0; 480], len: 0 };
        let r = event.record(number);
        // Truncation is all that can go wrong.
        let _ = writeln!(line, "  event {number}: {} [{}/{}] {}: {event}", r.time_ns, r.pid, r.tid, r.kind);
        console::log(&line.buf[..line.len]);
    });
}

/// Referenced by the precompiled core library's unwind tables; never called with panic=abort.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`]: only landing pads of precompiled code refer to it.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    host::exit_process(70)
}
