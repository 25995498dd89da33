"""The few system calls that Python does not offer, through libc. Nothing here decides anything.

Every function raises OSError as the ``os`` module would. Constants are those of the kernel's uapi headers; calls newer
than Linux 5.0 have one number on every architecture, older ones go through their libc wrapper.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it: `exec` comes through here
if TYPE_CHECKING:
    from collections.abc import Iterable

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 32, 4096, 16384
MS_PRIVATE, MS_SLAVE = 1 << 18, 1 << 19

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 37, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SYS_CLOSE_RANGE, _SYS_MOUNT_SETATTR = 436, 442
_SYS_LANDLOCK_CREATE_RULESET, _SYS_LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_SCOPE_SIGNAL = 2
_CLOSE_RANGE_CLOEXEC = 4
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = 0o4000, 0o2000000, 1
_CLOCK_MONOTONIC = 1
_SFD_NONBLOCK, _SFD_CLOEXEC = 0o4000, 0o2000000
_SIGNAL_SET_BYTES = 128
_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63
_SHM_INFO, _SEM_INFO, _MSG_INFO = 14, 19, 12

CAPABILITIES = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service "
    "net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin "
    "sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override "
    "mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
).split()
"""Names by number, capability.h."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]


def _checked(returned: int, what: str) -> int:
    if returned == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return returned


def unshare(flags: int) -> None:
    """unshare(2). With CLONE_NEWPID only the children of this process enter the new namespace."""
    _checked(_libc.unshare(flags), "unshare")


def setns(namespace: int, flags: int) -> None:
    """setns(2) to the namespace that a descriptor names."""
    _checked(_libc.setns(namespace, flags), "setns")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _checked(_libc.mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]), f"mount on {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def make_read_only(path: str) -> None:
    """mount_setattr(2): the mount at ``path`` and all mounts below it become read-only (Linux 5.12)."""
    wanted = _MountAttributes(attr_set=_MOUNT_ATTR_RDONLY)
    returned = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _checked(returned, f"mount_setattr on {path}")


def die_with_parent(signal_number: int = 9) -> None:
    """PR_SET_PDEATHSIG; 0: none. It follows the *thread* that forked and is lost when the uid changes (prctl(2))."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl PDEATHSIG")


def set_dumpable(on: bool) -> None:
    """PR_SET_DUMPABLE: off means no ptrace, no core, and a /proc/self owned by root."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, int(on), 0, 0, 0), "prctl DUMPABLE")


def become_subreaper() -> None:
    """PR_SET_CHILD_SUBREAPER."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl SUBREAPER")


def is_subreaper() -> bool:
    """PR_GET_CHILD_SUBREAPER: whether orphans below this process come to it."""
    answer = ctypes.c_int()
    _checked(_libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer), 0, 0, 0), "prctl GET_CHILD_SUBREAPER")
    return answer.value == 1


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("handled_access_fs", "handled_access_net", "scoped")]


def scope_signals() -> None:
    """landlock(7): this process and its children may signal each other only, and nobody outside, for good (Linux 6.12).

    Needs no_new_privs, or CAP_SYS_ADMIN.
    """
    wanted = _Ruleset(scoped=_LANDLOCK_SCOPE_SIGNAL)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    ruleset = _libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), ctypes.byref(wanted), size, ctypes.c_uint32(0))
    _checked(ruleset, "landlock_create_ruleset")
    try:
        restricted = _libc.syscall(
            ctypes.c_long(_SYS_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0)
        )
        _checked(restricted, "landlock_restrict_self")
    finally:
        os.close(ruleset)


def no_new_privileges() -> None:
    """PR_SET_NO_NEW_PRIVS: set-user-id programs give nothing from here on, in this process and all its children."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


def drop_bounding_set(keep: Iterable[str]) -> None:
    """Take every capability that is not in ``keep`` out of the bounding set, for good."""
    kept = set(keep)
    for number in range(_HIGHEST_CAPABILITY + 1):
        name = CAPABILITIES[number] if number < len(CAPABILITIES) else ""
        if name not in kept and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == -1:
            if ctypes.get_errno() == 22:  # EINVAL: past the last capability this kernel knows
                return
            _checked(-1, "prctl CAPBSET_DROP")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def set_capabilities(keep: Iterable[str]) -> None:
    """capset(2): permitted and effective become ``keep`` (what of it we hold), inheritable and ambient empty."""
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    words = (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(ctypes.byref(header), ctypes.byref(words)), "capget")
    permitted = words[1] | words[4] << 32
    kept = set(keep)
    wanted = permitted & sum(1 << number for number, name in enumerate(CAPABILITIES) if name in kept)
    low, high = wanted & 0xFFFFFFFF, wanted >> 32
    words[:] = [low, low, 0, high, high, 0]
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(words)), "capset")


def close_on_exec_from(lowest: int) -> None:
    """close_range(2) with CLOEXEC: no descriptor from ``lowest`` up survives the next exec (Linux 5.11)."""
    returned = _libc.syscall(
        ctypes.c_long(_SYS_CLOSE_RANGE),
        ctypes.c_uint(lowest),
        ctypes.c_uint(0xFFFFFFFF),
        ctypes.c_uint(_CLOSE_RANGE_CLOEXEC),
    )
    _checked(returned, "close_range")


def lock_memory() -> None:
    """mlockall(MCL_CURRENT | MCL_FUTURE)."""
    _checked(_libc.mlockall(3), "mlockall")


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


def open_timer() -> int:
    """A non-blocking timerfd on CLOCK_MONOTONIC, not set."""
    return _checked(_libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC), "timerfd_create")


def set_timer(timer: int, instant_ns: int) -> None:
    """Let a timerfd become readable at an instant; 0 stops it. An instant in the past fires at once."""
    spec = _TimerSpec()
    spec.value.seconds, spec.value.nanoseconds = divmod(instant_ns, 1_000_000_000)
    _checked(_libc.timerfd_settime(timer, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None), "timerfd_settime")


_usage = (ctypes.c_int * 64)()


def system_v_objects() -> int:
    """Shared memory segments, semaphore sets and message queues of this IPC namespace (shmctl(2) and its kin)."""
    _libc.shmctl(0, _SHM_INFO, _usage)
    found = _usage[0]  # shm_info.used_ids
    _libc.semctl(0, 0, _SEM_INFO, _usage)
    found += _usage[7]  # seminfo.semusz: in use
    _libc.msgctl(0, _MSG_INFO, _usage)
    return found + _usage[0]  # msginfo.msgpool: in use


def flush_c_streams() -> None:
    """fflush(3) of every stream: what C code printed through stdio."""
    _libc.fflush(None)


def open_signals(numbers: Iterable[int]) -> int:
    """A non-blocking signalfd(2), readable while one of these signals is pending. Block them first."""
    wanted = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)  # all zero is the empty set
    for number in numbers:
        _checked(_libc.sigaddset(wanted, number), "sigaddset")
    return _checked(_libc.signalfd(-1, wanted, _SFD_NONBLOCK | _SFD_CLOEXEC), "signalfd")
