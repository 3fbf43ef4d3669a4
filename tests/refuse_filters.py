#!/usr/bin/env python3
"""Runs a program that cannot give all its threads a filter of system calls at once, nor can what it starts.

So a service of Doppel cannot confine itself, and does not begin. Domains are confined otherwise.
"""
import ctypes
import os
import struct
import sys

SECCOMP, TSYNC = 317, 1
PR_SET_SECCOMP, MODE_FILTER = 22, 2
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001
# Offsets in `struct seccomp_data`: the call's number, and its second argument.
NUMBER, FLAGS = 0, 24
PROGRAM = [
    (LOAD, 0, 0, NUMBER),
    (EQUAL, 0, 3, SECCOMP),
    (LOAD, 0, 0, FLAGS),
    (ANY_BIT, 0, 1, TSYNC),
    (RETURN, 0, 0, EPERM),
    (RETURN, 0, 0, ALLOW),
]


def main() -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in PROGRAM))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(PROGRAM), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0) != 0:
        sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
