//! The structures of io_uring as programs see them (`linux/io_uring.h`).

use doppel_machine::pod_struct;

bitflags::bitflags! {
    /// `IORING_SETUP_` flags that an instance can have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetupFlags: u32 {
        /// Devices are polled for completions: here they tell of them as ever.
        const IOPOLL = 1;
        /// A thread of the kernel submits: here it always sleeps, so the program wakes it by a call.
        const SQPOLL = 1 << 1;
        /// Which CPU that thread is on.
        const SQ_AFF = 1 << 2;
        /// The program says how many completions fit.
        const CQSIZE = 1 << 3;
        /// Sizes beyond the largest are cut.
        const CLAMP = 1 << 4;
        /// Threads are those of another instance.
        const ATTACH_WQ = 1 << 5;
        /// It begins to work when it is enabled.
        const R_DISABLED = 1 << 6;
        /// A bad request does not keep those behind it from being submitted.
        const SUBMIT_ALL = 1 << 7;
        /// No interrupts for work.
        const COOP_TASKRUN = 1 << 8;
        /// The ring says when there is work.
        const TASKRUN_FLAG = 1 << 9;
        /// One thread submits.
        const SINGLE_ISSUER = 1 << 12;
        /// Work is done when its program asks for completions.
        const DEFER_TASKRUN = 1 << 13;
        /// No array of indices.
        const NO_SQARRAY = 1 << 16;
    }
}

bitflags::bitflags! {
    /// `IORING_FEAT_` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u32 {
        /// One mapping has both rings.
        const SINGLE_MMAP = 1;
        /// Completions for which there is no room are kept.
        const NODROP = 1 << 1;
        /// What a request points to may change once it is submitted.
        const SUBMIT_STABLE = 1 << 2;
        /// -1 is the current position.
        const RW_CUR_POS = 1 << 3;
        /// Requests have the identity of who submits them.
        const CUR_PERSONALITY = 1 << 4;
        /// Files are polled, not waited for by a thread.
        const FAST_POLL = 1 << 5;
        /// All events of poll.
        const POLL_32BITS = 1 << 6;
        /// Any files with SQPOLL.
        const SQPOLL_NONFIXED = 1 << 7;
        /// Timeouts and masks in one structure.
        const EXT_ARG = 1 << 8;
        /// Its threads are the process' own.
        const NATIVE_WORKERS = 1 << 9;
        /// Completions of success can be left out.
        const CQE_SKIP = 1 << 11;
        /// The files of linked requests are looked up when they begin.
        const LINKED_FILE = 1 << 12;
    }
}

pod_struct! {
    /// `struct io_sqring_offsets` and `struct io_cqring_offsets`: where words of a ring are.
    pub struct Offsets {
        /// The words.
        pub words: [u32; 8],
        /// Where the program has put it, if it has.
        pub user: u64,
    }
}

pod_struct! {
    /// `struct io_uring_params`.
    pub struct Params {
        /// Requests that fit.
        pub sq_entries: u32,
        /// Completions that fit.
        pub cq_entries: u32,
        /// [`SetupFlags`].
        pub flags: u32,
        /// CPU of the kernel's thread.
        pub sq_thread_cpu: u32,
        /// How long that thread looks before it sleeps, in ms.
        pub sq_thread_idle: u32,
        /// [`Features`].
        pub features: u32,
        /// Another instance.
        pub wq_fd: u32,
        /// Zero.
        pub reserved: [u32; 3],
        /// Submissions.
        pub sq: Offsets,
        /// Completions.
        pub cq: Offsets,
    }
}

pod_struct! {
    /// `struct io_uring_sqe`: a request.
    pub struct Sqe {
        /// What to do.
        pub opcode: u8,
        /// [`SqeFlags`].
        pub flags: u8,
        /// Priority, or flags of some operations.
        pub ioprio: u16,
        /// Descriptor.
        pub fd: i32,
        /// Place in the file, or a second address.
        pub off: u64,
        /// Address.
        pub addr: u64,
        /// Length.
        pub len: u32,
        /// Flags of the operation.
        pub op_flags: u32,
        /// Given back with the completion.
        pub user_data: u64,
        /// Number of a buffer, or a group of buffers.
        pub buffer: u16,
        /// Identity.
        pub personality: u16,
        /// A second descriptor, or a place among the registered files.
        pub file_index: i32,
        /// A third address.
        pub addr3: u64,
        /// Zero.
        pub pad: u64,
    }
}

bitflags::bitflags! {
    /// `IOSQE_` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SqeFlags: u8 {
        /// The descriptor is a place among the registered files.
        const FIXED_FILE = 1;
        /// It begins when all before it have completed.
        const DRAIN = 2;
        /// The next one begins when this one has succeeded.
        const LINK = 4;
        /// The next one begins when this one has completed.
        const HARDLINK = 8;
        /// It does not keep its submitter waiting.
        const ASYNC = 16;
        /// It takes a buffer from a group.
        const BUFFER_SELECT = 32;
        /// Success is not told.
        const CQE_SKIP_SUCCESS = 64;
    }
}

impl Sqe {
    /// Its flags; unknown ones are refused before.
    pub fn flags(&self) -> SqeFlags {
        SqeFlags::from_bits_truncate(self.flags)
    }

    /// Whether the next request belongs to it.
    pub fn is_linked(&self) -> bool {
        self.flags().intersects(SqeFlags::LINK.union(SqeFlags::HARDLINK))
    }
}

pod_struct! {
    /// `struct io_uring_cqe`: a completion.
    pub struct Cqe {
        /// Of which request.
        pub user_data: u64,
        /// Its result, or the negated error.
        pub result: i32,
        /// [`CqeFlags`], and the number of a buffer in the upper half.
        pub flags: u32,
    }
}

bitflags::bitflags! {
    /// `IORING_CQE_F_` flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CqeFlags: u32 {
        /// A buffer was taken.
        const BUFFER = 1;
        /// More completions of the request will come.
        const MORE = 2;
        /// The socket has more to read.
        const SOCK_NONEMPTY = 4;
    }
}
