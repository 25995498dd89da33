"""``python refuse.py WHAT[,WHAT…] CMD ARG…``: run a command to which, and to all it starts, system calls are refused.

``namespaces``: unshare, setns and clone with CLONE_NEW* (what Docker's default seccomp profile refuses a container).
``subreaper``: prctl(PR_SET_CHILD_SUBREAPER), which no real host refuses: it stands for a kernel without it.
``kills``: pidfd_send_signal, as if every process belonged to somebody else (a setuid program, another user).
``mounts``: mount and mount_setattr, which a user namespace without its privileges refuses (AppArmor of Ubuntu).
``cgroups``: root only; a mount namespace of its own, in which cgroup v2 is not mounted.
``namespaces`` takes clone3 with it, because a filter cannot look into its arguments (libraries then use clone).

A filter of the command's own, by ctypes; no setting of the machine is touched. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"arch": 0xC000003E, "clone": 56, "prctl": 157, "mount": 165, "unshare": 272, "setns": 308},
    "aarch64": {"arch": 0xC00000B7, "clone": 220, "prctl": 167, "mount": 40, "unshare": 97, "setns": 268},
}[platform.machine()]
PIDFD_SEND_SIGNAL, CLONE3, MOUNT_SETATTR = 424, 435, 442
CLONE_NEW = 0x7E020080
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NR, ARCH, FIRST, SECOND = 0, 4, 16, 24
CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 1 << 14, 1 << 18, 2
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 36, 38, 22, 2


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def refused_if(number: int, argument: int, test: int, value: int) -> list[bytes]:
    """EPERM for a system call whose argument passes a test; the number is in the accumulator before and after."""
    return [
        instruction(EQUAL, number, 0, 4),
        instruction(LOAD, argument),
        instruction(test, value, 0, 1),
        instruction(RETURN, ERRNO | errno.EPERM),
        instruction(LOAD, NR),
    ]


def program(what: set[str]) -> bytes:
    words = [
        instruction(LOAD, ARCH),
        instruction(EQUAL, NUMBERS["arch"], 1, 0),
        instruction(RETURN, KILL),
        instruction(LOAD, NR),
    ]
    if "namespaces" in what:
        words += [instruction(EQUAL, CLONE3, 0, 1), instruction(RETURN, ERRNO | errno.ENOSYS)]
        words += refused_if(NUMBERS["clone"], FIRST, ANY_BIT, CLONE_NEW)
        words += refused_if(NUMBERS["unshare"], FIRST, ANY_BIT, CLONE_NEW)
        words += [instruction(EQUAL, NUMBERS["setns"], 0, 1), instruction(RETURN, ERRNO | errno.EPERM)]
    if "mounts" in what:
        for number in (NUMBERS["mount"], MOUNT_SETATTR):
            words += [instruction(EQUAL, number, 0, 1), instruction(RETURN, ERRNO | errno.EPERM)]
    if "subreaper" in what:
        words += refused_if(NUMBERS["prctl"], FIRST, EQUAL, PR_SET_CHILD_SUBREAPER)
    if "kills" in what:
        words += [instruction(EQUAL, PIDFD_SEND_SIGNAL, 0, 1), instruction(RETURN, ERRNO | errno.EPERM)]
    return b"".join([*words, instruction(RETURN, ALLOW)])


class FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def hide_control_groups(libc: ctypes.CDLL) -> None:
    with open("/proc/self/mounts") as mounts:
        points = [line.split()[1].encode() for line in mounts if line.split()[2] == "cgroup2"]
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "a mount namespace")
    for point in points:
        if libc.umount2(point, MNT_DETACH):
            raise OSError(ctypes.get_errno(), "umount2")


def refuse(what: set[str]) -> None:
    """For this process and all it will start. Raises OSError."""
    if "cgroups" in what:
        hide_control_groups(ctypes.CDLL(None, use_errno=True))
    code = program(what)
    held = ctypes.create_string_buffer(code, len(code))
    given = FilterProgram(len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, FILTER_MODE, ctypes.addressof(given))):
        if libc.prctl(*arguments, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse(set(sys.argv[1].split(",")))
    os.execvp(sys.argv[2], sys.argv[2:])
