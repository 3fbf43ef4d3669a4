//! Error numbers (`errno(3)`), with the restart codes that never leave the kernel.

/// A Linux error number, 1 to 4095.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u16);

/// A result of kernel code.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(1);
    /// No such file or directory.
    pub const ENOENT: Self = Self(2);
    /// No such process.
    pub const ESRCH: Self = Self(3);
    /// Interrupted system call.
    pub const EINTR: Self = Self(4);
    /// Input/output error.
    pub const EIO: Self = Self(5);
    /// No such device or address.
    pub const ENXIO: Self = Self(6);
    /// Argument list too long.
    pub const E2BIG: Self = Self(7);
    /// Exec format error.
    pub const ENOEXEC: Self = Self(8);
    /// Bad file descriptor.
    pub const EBADF: Self = Self(9);
    /// No child processes.
    pub const ECHILD: Self = Self(10);
    /// Resource temporarily unavailable.
    pub const EAGAIN: Self = Self(11);
    /// Cannot allocate memory.
    pub const ENOMEM: Self = Self(12);
    /// Permission denied.
    pub const EACCES: Self = Self(13);
    /// Bad address.
    pub const EFAULT: Self = Self(14);
    /// Block device required.
    pub const ENOTBLK: Self = Self(15);
    /// Device or resource busy.
    pub const EBUSY: Self = Self(16);
    /// File exists.
    pub const EEXIST: Self = Self(17);
    /// Invalid cross-device link.
    pub const EXDEV: Self = Self(18);
    /// No such device.
    pub const ENODEV: Self = Self(19);
    /// Not a directory.
    pub const ENOTDIR: Self = Self(20);
    /// Is a directory.
    pub const EISDIR: Self = Self(21);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// Too many open files in system.
    pub const ENFILE: Self = Self(23);
    /// Too many open files.
    pub const EMFILE: Self = Self(24);
    /// Inappropriate ioctl for device.
    pub const ENOTTY: Self = Self(25);
    /// Text file busy.
    pub const ETXTBSY: Self = Self(26);
    /// File too large.
    pub const EFBIG: Self = Self(27);
    /// No space left on device.
    pub const ENOSPC: Self = Self(28);
    /// Illegal seek.
    pub const ESPIPE: Self = Self(29);
    /// Read-only file system.
    pub const EROFS: Self = Self(30);
    /// Too many links.
    pub const EMLINK: Self = Self(31);
    /// Broken pipe.
    pub const EPIPE: Self = Self(32);
    /// Numerical argument out of domain.
    pub const EDOM: Self = Self(33);
    /// Numerical result out of range.
    pub const ERANGE: Self = Self(34);
    /// Resource deadlock avoided.
    pub const EDEADLK: Self = Self(35);
    /// File name too long.
    pub const ENAMETOOLONG: Self = Self(36);
    /// No locks available.
    pub const ENOLCK: Self = Self(37);
    /// Function not implemented.
    pub const ENOSYS: Self = Self(38);
    /// Directory not empty.
    pub const ENOTEMPTY: Self = Self(39);
    /// Too many levels of symbolic links.
    pub const ELOOP: Self = Self(40);
    /// No message of desired type.
    pub const ENOMSG: Self = Self(42);
    /// Identifier removed.
    pub const EIDRM: Self = Self(43);
    /// Channel number out of range.
    pub const ECHRNG: Self = Self(44);
    /// Level 2 not synchronized.
    pub const EL2NSYNC: Self = Self(45);
    /// Level 3 halted.
    pub const EL3HLT: Self = Self(46);
    /// Level 3 reset.
    pub const EL3RST: Self = Self(47);
    /// Link number out of range.
    pub const ELNRNG: Self = Self(48);
    /// Protocol driver not attached.
    pub const EUNATCH: Self = Self(49);
    /// No CSI structure available.
    pub const ENOCSI: Self = Self(50);
    /// Level 2 halted.
    pub const EL2HLT: Self = Self(51);
    /// Invalid exchange.
    pub const EBADE: Self = Self(52);
    /// Invalid request descriptor.
    pub const EBADR: Self = Self(53);
    /// Exchange full.
    pub const EXFULL: Self = Self(54);
    /// No anode.
    pub const ENOANO: Self = Self(55);
    /// Invalid request code.
    pub const EBADRQC: Self = Self(56);
    /// Invalid slot.
    pub const EBADSLT: Self = Self(57);
    /// Bad font file format.
    pub const EBFONT: Self = Self(59);
    /// Device not a stream.
    pub const ENOSTR: Self = Self(60);
    /// No data available.
    pub const ENODATA: Self = Self(61);
    /// Timer expired.
    pub const ETIME: Self = Self(62);
    /// Out of streams resources.
    pub const ENOSR: Self = Self(63);
    /// Machine is not on the network.
    pub const ENONET: Self = Self(64);
    /// Package not installed.
    pub const ENOPKG: Self = Self(65);
    /// Object is remote.
    pub const EREMOTE: Self = Self(66);
    /// Link has been severed.
    pub const ENOLINK: Self = Self(67);
    /// Advertise error.
    pub const EADV: Self = Self(68);
    /// Srmount error.
    pub const ESRMNT: Self = Self(69);
    /// Communication error on send.
    pub const ECOMM: Self = Self(70);
    /// Protocol error.
    pub const EPROTO: Self = Self(71);
    /// Multihop attempted.
    pub const EMULTIHOP: Self = Self(72);
    /// RFS specific error.
    pub const EDOTDOT: Self = Self(73);
    /// Bad message.
    pub const EBADMSG: Self = Self(74);
    /// Value too large for defined data type.
    pub const EOVERFLOW: Self = Self(75);
    /// Name not unique on network.
    pub const ENOTUNIQ: Self = Self(76);
    /// File descriptor in bad state.
    pub const EBADFD: Self = Self(77);
    /// Remote address changed.
    pub const EREMCHG: Self = Self(78);
    /// Can not access a needed shared library.
    pub const ELIBACC: Self = Self(79);
    /// Accessing a corrupted shared library.
    pub const ELIBBAD: Self = Self(80);
    /// .lib section in a.out corrupted.
    pub const ELIBSCN: Self = Self(81);
    /// Attempting to link in too many shared libraries.
    pub const ELIBMAX: Self = Self(82);
    /// Cannot exec a shared library directly.
    pub const ELIBEXEC: Self = Self(83);
    /// Invalid or incomplete multibyte or wide character.
    pub const EILSEQ: Self = Self(84);
    /// Interrupted system call should be restarted.
    pub const ERESTART: Self = Self(85);
    /// Streams pipe error.
    pub const ESTRPIPE: Self = Self(86);
    /// Too many users.
    pub const EUSERS: Self = Self(87);
    /// Socket operation on non-socket.
    pub const ENOTSOCK: Self = Self(88);
    /// Destination address required.
    pub const EDESTADDRREQ: Self = Self(89);
    /// Message too long.
    pub const EMSGSIZE: Self = Self(90);
    /// Protocol wrong type for socket.
    pub const EPROTOTYPE: Self = Self(91);
    /// Protocol not available.
    pub const ENOPROTOOPT: Self = Self(92);
    /// Protocol not supported.
    pub const EPROTONOSUPPORT: Self = Self(93);
    /// Socket type not supported.
    pub const ESOCKTNOSUPPORT: Self = Self(94);
    /// Operation not supported.
    pub const EOPNOTSUPP: Self = Self(95);
    /// Protocol family not supported.
    pub const EPFNOSUPPORT: Self = Self(96);
    /// Address family not supported by protocol.
    pub const EAFNOSUPPORT: Self = Self(97);
    /// Address already in use.
    pub const EADDRINUSE: Self = Self(98);
    /// Cannot assign requested address.
    pub const EADDRNOTAVAIL: Self = Self(99);
    /// Network is down.
    pub const ENETDOWN: Self = Self(100);
    /// Network is unreachable.
    pub const ENETUNREACH: Self = Self(101);
    /// Network dropped connection on reset.
    pub const ENETRESET: Self = Self(102);
    /// Software caused connection abort.
    pub const ECONNABORTED: Self = Self(103);
    /// Connection reset by peer.
    pub const ECONNRESET: Self = Self(104);
    /// No buffer space available.
    pub const ENOBUFS: Self = Self(105);
    /// Transport endpoint is already connected.
    pub const EISCONN: Self = Self(106);
    /// Transport endpoint is not connected.
    pub const ENOTCONN: Self = Self(107);
    /// Cannot send after transport endpoint shutdown.
    pub const ESHUTDOWN: Self = Self(108);
    /// Too many references: cannot splice.
    pub const ETOOMANYREFS: Self = Self(109);
    /// Connection timed out.
    pub const ETIMEDOUT: Self = Self(110);
    /// Connection refused.
    pub const ECONNREFUSED: Self = Self(111);
    /// Host is down.
    pub const EHOSTDOWN: Self = Self(112);
    /// No route to host.
    pub const EHOSTUNREACH: Self = Self(113);
    /// Operation already in progress.
    pub const EALREADY: Self = Self(114);
    /// Operation now in progress.
    pub const EINPROGRESS: Self = Self(115);
    /// Stale file handle.
    pub const ESTALE: Self = Self(116);
    /// Structure needs cleaning.
    pub const EUCLEAN: Self = Self(117);
    /// Not a XENIX named type file.
    pub const ENOTNAM: Self = Self(118);
    /// No XENIX semaphores available.
    pub const ENAVAIL: Self = Self(119);
    /// Is a named type file.
    pub const EISNAM: Self = Self(120);
    /// Remote I/O error.
    pub const EREMOTEIO: Self = Self(121);
    /// Disk quota exceeded.
    pub const EDQUOT: Self = Self(122);
    /// No medium found.
    pub const ENOMEDIUM: Self = Self(123);
    /// Wrong medium type.
    pub const EMEDIUMTYPE: Self = Self(124);
    /// Operation canceled.
    pub const ECANCELED: Self = Self(125);
    /// Required key not available.
    pub const ENOKEY: Self = Self(126);
    /// Key has expired.
    pub const EKEYEXPIRED: Self = Self(127);
    /// Key has been revoked.
    pub const EKEYREVOKED: Self = Self(128);
    /// Key was rejected by service.
    pub const EKEYREJECTED: Self = Self(129);
    /// Owner died.
    pub const EOWNERDEAD: Self = Self(130);
    /// State not recoverable.
    pub const ENOTRECOVERABLE: Self = Self(131);
    /// Operation not possible due to RF-kill.
    pub const ERFKILL: Self = Self(132);
    /// Memory page has hardware error.
    pub const EHWPOISON: Self = Self(133);
    /// Operation would block (same as EAGAIN).
    pub const EWOULDBLOCK: Self = Self::EAGAIN;
    /// Operation not supported (same as EOPNOTSUPP).
    pub const ENOTSUP: Self = Self::EOPNOTSUPP;
    /// Interrupted: restart if the handler has SA_RESTART or there is none, else EINTR.
    pub const ERESTARTSYS: Self = Self(512);
    /// Interrupted: always restart.
    pub const ERESTARTNOINTR: Self = Self(513);
    /// Interrupted: restart if no handler ran, else EINTR.
    pub const ERESTARTNOHAND: Self = Self(514);
    /// Interrupted: continue through restart_syscall if no handler ran, else EINTR.
    pub const ERESTART_RESTARTBLOCK: Self = Self(516);

    /// What people call the errors that a wrong command has; others by their names.
    pub fn words(self) -> &'static str {
        match self {
            Self::ENOENT => "no such file or directory",
            Self::EACCES => "permission denied",
            Self::ENOTDIR => "not a directory",
            Self::ENOEXEC => "not a program for this machine",
            other => other.name(),
        }
    }

    /// The name, as `strace` prints it.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "EPERM",
            2 => "ENOENT",
            3 => "ESRCH",
            4 => "EINTR",
            5 => "EIO",
            6 => "ENXIO",
            7 => "E2BIG",
            8 => "ENOEXEC",
            9 => "EBADF",
            10 => "ECHILD",
            11 => "EAGAIN",
            12 => "ENOMEM",
            13 => "EACCES",
            14 => "EFAULT",
            15 => "ENOTBLK",
            16 => "EBUSY",
            17 => "EEXIST",
            18 => "EXDEV",
            19 => "ENODEV",
            20 => "ENOTDIR",
            21 => "EISDIR",
            22 => "EINVAL",
            23 => "ENFILE",
            24 => "EMFILE",
            25 => "ENOTTY",
            26 => "ETXTBSY",
            27 => "EFBIG",
            28 => "ENOSPC",
            29 => "ESPIPE",
            30 => "EROFS",
            31 => "EMLINK",
            32 => "EPIPE",
            33 => "EDOM",
            34 => "ERANGE",
            35 => "EDEADLK",
            36 => "ENAMETOOLONG",
            37 => "ENOLCK",
            38 => "ENOSYS",
            39 => "ENOTEMPTY",
            40 => "ELOOP",
            42 => "ENOMSG",
            43 => "EIDRM",
            44 => "ECHRNG",
            45 => "EL2NSYNC",
            46 => "EL3HLT",
            47 => "EL3RST",
            48 => "ELNRNG",
            49 => "EUNATCH",
            50 => "ENOCSI",
            51 => "EL2HLT",
            52 => "EBADE",
            53 => "EBADR",
            54 => "EXFULL",
            55 => "ENOANO",
            56 => "EBADRQC",
            57 => "EBADSLT",
            59 => "EBFONT",
            60 => "ENOSTR",
            61 => "ENODATA",
            62 => "ETIME",
            63 => "ENOSR",
            64 => "ENONET",
            65 => "ENOPKG",
            66 => "EREMOTE",
            67 => "ENOLINK",
            68 => "EADV",
            69 => "ESRMNT",
            70 => "ECOMM",
            71 => "EPROTO",
            72 => "EMULTIHOP",
            73 => "EDOTDOT",
            74 => "EBADMSG",
            75 => "EOVERFLOW",
            76 => "ENOTUNIQ",
            77 => "EBADFD",
            78 => "EREMCHG",
            79 => "ELIBACC",
            80 => "ELIBBAD",
            81 => "ELIBSCN",
            82 => "ELIBMAX",
            83 => "ELIBEXEC",
            84 => "EILSEQ",
            85 => "ERESTART",
            86 => "ESTRPIPE",
            87 => "EUSERS",
            88 => "ENOTSOCK",
            89 => "EDESTADDRREQ",
            90 => "EMSGSIZE",
            91 => "EPROTOTYPE",
            92 => "ENOPROTOOPT",
            93 => "EPROTONOSUPPORT",
            94 => "ESOCKTNOSUPPORT",
            95 => "EOPNOTSUPP",
            96 => "EPFNOSUPPORT",
            97 => "EAFNOSUPPORT",
            98 => "EADDRINUSE",
            99 => "EADDRNOTAVAIL",
            100 => "ENETDOWN",
            101 => "ENETUNREACH",
            102 => "ENETRESET",
            103 => "ECONNABORTED",
            104 => "ECONNRESET",
            105 => "ENOBUFS",
            106 => "EISCONN",
            107 => "ENOTCONN",
            108 => "ESHUTDOWN",
            109 => "ETOOMANYREFS",
            110 => "ETIMEDOUT",
            111 => "ECONNREFUSED",
            112 => "EHOSTDOWN",
            113 => "EHOSTUNREACH",
            114 => "EALREADY",
            115 => "EINPROGRESS",
            116 => "ESTALE",
            117 => "EUCLEAN",
            118 => "ENOTNAM",
            119 => "ENAVAIL",
            120 => "EISNAM",
            121 => "EREMOTEIO",
            122 => "EDQUOT",
            123 => "ENOMEDIUM",
            124 => "EMEDIUMTYPE",
            125 => "ECANCELED",
            126 => "ENOKEY",
            127 => "EKEYEXPIRED",
            128 => "EKEYREVOKED",
            129 => "EKEYREJECTED",
            130 => "EOWNERDEAD",
            131 => "ENOTRECOVERABLE",
            132 => "ERFKILL",
            133 => "EHWPOISON",
            512 => "ERESTARTSYS",
            513 => "ERESTARTNOINTR",
            514 => "ERESTARTNOHAND",
            516 => "ERESTART_RESTARTBLOCK",
            _ => "E?",
        }
    }
}

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
