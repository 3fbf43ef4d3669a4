//! The domain's console: the channel of its first program, and the kernel's log.

use alloc::sync::Arc;

use doppel_abi_machine::{boot_flags, event as ev};
use doppel_machine::boot;

use crate::core::part::Part;
use crate::process::task::Process;
use crate::terminals::channel::{self, Channel};

/// The console.
pub struct Console {
    channel: Arc<Channel>,
}

/// The domain's.
pub static CONSOLE: Part<Console> = Part::new();

impl Default for Console {
    fn default() -> Self {
        Self { channel: Arc::new(Channel::console()) }
    }
}

/// The console's channel.
pub fn get() -> Arc<Channel> {
    CONSOLE.channel.clone()
}

/// Serves console events; runs on PID 1.
pub fn event(events: u64) {
    let c = get();
    if events & ev::CONSOLE_IN != 0 {
        c.input_came();
    }
    if events & ev::CONSOLE_OUT != 0 {
        c.room_came();
    }
    if events & ev::WINCH != 0 {
        c.resized(boot::vregs().winsize.load(core::sync::atomic::Ordering::SeqCst));
    }
}

/// Opens descriptors 0, 1 and 2 of the first process.
pub fn open_standard(p: &Arc<Process>, tty: bool, winsize: u32) {
    let connected = boot::boot_data().args.flags & boot_flags::STDIN != 0;
    if tty {
        open_thrice(p, &crate::terminals::open_console(p, winsize, connected));
    } else {
        channel::open_streams(p, &get(), connected);
    }
}

/// Opens a terminal as descriptors 0, 1 and 2.
pub fn open_thrice(p: &Process, file: &Arc<crate::objects::vfs::File>) {
    for _ in 0..3 {
        let r = p.files().insert(file.clone(), false);
        debug_assert!(r.is_ok());
    }
}
