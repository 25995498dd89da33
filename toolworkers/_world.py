"""What a child may do: namespaces, session, descriptors, limits, capabilities, environment; and the sweep that ends
what a call left behind in its own namespace.

Each step is a function of its own because `exec`, the zygote and the workers take them in different selections; the
order inside `enter_namespaces` and `drop_privileges` matters and the comments say why. A step that this host refuses
is returned as a word in ``missing`` and never hidden.
"""

from __future__ import annotations

import errno
import os
import time

from toolworkers import _signals
from toolworkers import _syscalls as sys_
from toolworkers._children import direct_children

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it: `exec` comes through here
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

ROOT_CAPABILITIES = frozenset(
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot audit_write "
    "setfcap".split()
)
"""What a tool run by root keeps: the common container set without mknod. ``kill`` stays because the sweep needs it."""
TOOL_OOM_SCORE = 500
"""A tool is killed for memory long before the daemon is."""
_READ_ONLY_IN_PROC = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_CALLER_ENVIRONMENT = ("LANG", "TZ", "TERM", "SHELL", "USER", "LOGNAME")
_HANDED_ON = (*_CALLER_ENVIRONMENT, "PATH", "HOME")
_NOBODY_TO_ASK = {
    "DEBIAN_FRONTEND": "noninteractive",
    "GCM_INTERACTIVE": "never",
    "GIT_TERMINAL_PROMPT": "0",
    "PIP_NO_INPUT": "1",
}
"""Programs that would look for a person at a terminal are told that there is none (their own manuals' words)."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENVIRONMENT_GROUPS = {
    "@toolchains": (
        "JAVA_HOME GOPATH GOROOT GOCACHE GOMODCACHE CARGO_HOME RUSTUP_HOME NVM_DIR PYENV_ROOT RBENV_ROOT VIRTUAL_ENV "
        "CONDA_PREFIX PKG_CONFIG_PATH CC CXX"
    ).split(),
    "@certs": "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GIT_SSL_CAINFO".split(),
    "@proxy": "http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY".split(),
}
_SWEEP_BUDGET_S = 1.0
_KINDRED_BUDGET_S, _KINDRED_PAUSE_S = 0.5, 0.002
NO_NAMESPACE = -1
"""In place of the daemon's pid namespace, for a worker that has none of its own: `sweep` ends its children instead."""


class Leftovers:
    """What a sweep found: processes it had to kill, and whether nothing is left now."""

    __slots__ = ("clean", "killed")

    def __init__(self, killed: int, clean: bool) -> None:
        self.killed, self.clean = killed, clean


def own_user_namespace(extra: int) -> None:
    """Enter a user namespace (and the ``extra`` namespaces with it) in which this uid and gid stay what they are.

    An identity map, not a map to root: with uid 0 inside, ``cp -a`` breaks and programs keep namespace capabilities.
    Needs dumpable, else /proc/self/uid_map belongs to root (user_namespaces(7)).
    """
    uid, gid = os.getuid(), os.getgid()
    sys_.set_dumpable(True)
    sys_.unshare(sys_.CLONE_NEWUSER | extra)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def enter_namespaces(tmp: str | None, tmp_bytes: int) -> list[str]:
    """Private mounts and IPC, an own /proc, tmpfs on ``tmp`` and /dev/shm, kernel settings read-only.

    Must run as pid 1 of a new pid namespace (the new /proc shows that namespace). Returns what the host refused.
    """
    missing: list[str] = []
    sys_.unshare(sys_.CLONE_NEWNS | sys_.CLONE_NEWIPC)
    # Slave, not private: an unmount on the host must reach us, or we would pin its file systems.
    sys_.mount("none", "/", None, sys_.MS_SLAVE | sys_.MS_REC)
    guarded = sys_.MS_NOSUID | sys_.MS_NODEV
    _try(missing, "proc", lambda: sys_.mount("proc", "/proc", "proc", guarded | sys_.MS_NOEXEC))
    if tmp is not None:
        data = f"size={tmp_bytes},nr_inodes=65536,mode="
        _try(missing, "tmp", lambda: sys_.mount("tmpfs", tmp, "tmpfs", guarded, data + "0700"))
        _try(missing, "shm", lambda: sys_.mount("tmpfs", "/dev/shm", "tmpfs", guarded, data + "1777"))  # noqa: S108  # our own mount
    for path in _READ_ONLY_IN_PROC:
        if os.path.exists(path):
            _try(missing, "proc_read_only", lambda path=path: _freeze_in_place(path))
    _try(missing, "sys_read_only", lambda: sys_.make_read_only("/sys"))
    return missing


def drop_privileges(keep: frozenset[str]) -> None:
    """Capabilities down to ``keep`` (a plain uid: none at all), no_new_privs, not dumpable: in this order, because a
    process that is not dumpable may no longer write its own /proc files."""
    sys_.set_capabilities(keep if os.getuid() == 0 else ())
    sys_.no_new_privileges()
    sys_.set_dumpable(False)


def stand_in_for_namespaces() -> list[str]:
    """What of a namespace's protection can be had without one: capabilities are dropped for good, and signals of this
    process and its children reach nobody else, guard and daemon among them. Returns what the kernel refused or lacks.
    """
    missing: list[str] = []
    sys_.no_new_privileges()  # landlock(7) asks for it; `drop_privileges` does the same again
    _try(missing, "signal_scope", sys_.scope_signals)
    if os.getuid() == 0:
        _try(missing, "bounding_set", lambda: sys_.drop_bounding_set(ROOT_CAPABILITIES))
    return missing


def set_limits(limits: Any, processes_of_uid: int | None) -> None:
    """Resource limits from a ``protocol.Limits``. RLIMIT_NPROC means nothing to uid 0, whose tools have a cgroup."""
    import resource  # here, because `exec` sets none and would pay 1 ms; the zygote has loaded it before it forks

    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    _limit(resource.RLIMIT_CORE, limits.core_bytes)
    _limit(resource.RLIMIT_STACK, limits.stack_bytes)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    if processes_of_uid is not None and os.getuid() != 0:
        _limit(resource.RLIMIT_NPROC, processes_of_uid)


def offer_to_oom_killer() -> bool:
    """Make this process and its children the kernel's first choice. Before `drop_privileges`. False: refused (a host
    may mount /proc read-only; the cgroup limit still holds)."""
    try:
        _write("/proc/self/oom_score_adj", str(TOOL_OOM_SCORE))
    except OSError:
        return False
    return True


def join_cgroups(descriptors: list[int]) -> None:
    """Join by writing 0 (the writer) to each ``cgroup.procs``. First of all: what is forked later starts inside."""
    for descriptor in descriptors:
        os.write(descriptor, b"0")
        os.close(descriptor)


def command_environment(
    scratch_tmp: str, home: str, passed: Mapping[str, str], user: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a command: an allow-list of the daemon's own (``user``), then what the call or tool passes."""
    environment = {name: user[name] for name in user if name in _CALLER_ENVIRONMENT or name[:3] == "LC_"}
    environment |= _NOBODY_TO_ASK
    environment["PATH"] = user.get("PATH", _DEFAULT_PATH)
    environment["HOME"] = home
    environment["TMPDIR"] = scratch_tmp
    environment["PYTHONUNBUFFERED"] = "1"  # a killed program's own buffer would be lost otherwise
    environment.update(passed)
    return environment


def declared_environment(names: Iterable[str], user: Mapping[str, str]) -> dict[str, str]:
    """What of the daemon's environment a contract's ``env`` asks for: names, and groups such as ``@certs``."""
    wanted = [one for name in names for one in _ENVIRONMENT_GROUPS.get(name, (name,))]
    return {name: user[name] for name in wanted if name in user}


def handed_on(user: Mapping[str, str], declared: Iterable[str]) -> dict[str, str]:
    """What of the daemon's environment a worker may hold at all: it runs strangers' code, which can read its memory."""
    always = {name: user[name] for name in user if name in _HANDED_ON or name[:3] == "LC_"}
    return always | declared_environment(declared, user)


def sweep(outer_pid_namespace: int) -> Leftovers:
    """End every process of this namespace but this one; count those that were alive. 3 µs when there is none.

    ``kill(-1, …)`` anywhere else would be the end of the machine (root) or of the user's session, so the two facts
    that make it safe are checked here and nowhere else: we are pid 1, and not in the daemon's pid namespace.
    """
    if outer_pid_namespace == NO_NAMESPACE:
        return _sweep_children(time.monotonic() + _SWEEP_BUDGET_S)
    if os.getpid() != 1 or _own_pid_namespace() == outer_pid_namespace:
        raise RuntimeError("sweep() outside a worker's own pid namespace")
    try:
        os.kill(-1, 0)  # finds zombies too: where it finds nothing there is nothing to reap
        _reap_dead()
        os.kill(-1, 0)
    except ProcessLookupError:
        return Leftovers(0, True)
    return _kill_all(time.monotonic() + _SWEEP_BUDGET_S)


def kill_children(spared: frozenset[int] = frozenset()) -> list[int]:
    """SIGKILL to every direct child but the spared; who they are. One that may not be signalled (it has another uid by
    now) stays. For a process with one thread that reaps nowhere else. Raises OSError where there is no list."""
    others = [pid for pid in direct_children() if pid not in spared]
    for pid in others:
        try:
            os.kill(pid, _signals.SIGKILL)
        except PermissionError:
            continue
    return others


def end_session_of(pid: int, outer_pid_namespace: int) -> int:
    """What is left of the session and process group of a command that has ended and was not reaped: nobody else can
    have its number. Only where no orphan comes to us (level ``group``), so that `sweep` finds none; how many died."""
    if outer_pid_namespace != NO_NAMESPACE or sys_.is_subreaper():
        return 0
    return end_kindred(set(), {pid})


def end_kindred(roots: set[int], sessions: set[int]) -> int:
    """SIGKILL to all that `kindred` finds, until nobody is or the budget is spent; how many were killed. Level
    ``group``: a search, and no more."""
    killed, until = 0, time.monotonic() + _KINDRED_BUDGET_S
    while (found := kill_kindred(roots, sessions)) is not None and time.monotonic() < until:
        killed += found
        time.sleep(_KINDRED_PAUSE_S)  # the dying need the processor
    return killed


def kill_kindred(roots: Collection[int], sessions: set[int] | None) -> int | None:
    """SIGKILL to all that `kindred` finds now; how many got it, None: nobody was found. Beside `kill_children` where
    one of them does not die (it waits in the kernel): it would keep all below it, which nobody else reaches."""
    from toolworkers._kindred import kindred, open_same  # here, because `exec` would pay for it on every start

    found = kindred(roots, sessions)
    pidfds = [pidfd for process in found if (pidfd := open_same(process)) is not None]
    return sum(map(_send_kill, pidfds)) if found else None


def pid_namespace() -> int:
    """Inode of this process's pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


_known: list[int] = []
os.register_at_fork(after_in_child=_known.clear)


def _own_pid_namespace() -> int:
    """Asked once a process: it cannot change (pid_namespaces(7)), and the look costs 10 µs. A fork asks again."""
    if not _known:
        _known.append(pid_namespace())
    return _known[0]


def _kill_all(until: float) -> Leftovers:
    killed = 0
    while time.monotonic() < until:
        try:
            os.kill(-1, _signals.SIGKILL)
        except ProcessLookupError:
            return Leftovers(killed, True)
        killed += _reap_killed()
    return Leftovers(killed, False)


def _reap_killed() -> int:
    """Reap until no child is left; how many of them died by our SIGKILL. Blocks: the dying need the processor."""
    killed = 0
    while True:
        try:
            _, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return killed
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signals.SIGKILL


def _sweep_children(until: float) -> Leftovers:
    """The same without a namespace: this process is a subreaper, so whatever a call left is or becomes its child.

    By pidfd, checked to be a child still: a thread that the tool left may be reaping, and a number can be used again.
    A tool that has taken the subreaper's rank away has let orphans pass to the guard, who kills them with the worker.
    """
    killed = 0
    try:
        _reap_dead()
        while time.monotonic() < until:
            children = direct_children()
            if not children:
                return Leftovers(killed, sys_.is_subreaper())
            if not sum(map(_kill_child, children)):
                break
            killed += _reap_some_killed()
    except OSError:
        pass  # no list, or no descriptor free to read it: the guard's business, together with this worker
    return Leftovers(killed, False)


def _kill_child(pid: int) -> bool:
    """SIGKILL to a direct child; False when it is none any more, or has another uid."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises where it is no child
    except ChildProcessError:
        os.close(pidfd)
        return False
    return _send_kill(pidfd)


def _send_kill(pidfd: int) -> bool:
    """SIGKILL through a pidfd, which is closed; False where it reached nobody."""
    try:
        _signals.send_by_pidfd(pidfd, _signals.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def _reap_some_killed() -> int:
    """Reap one (blocking: the dying need the processor), then who else is dead; how many of them died by SIGKILL."""
    killed, flags = 0, 0
    while True:
        try:
            pid, status = os.waitpid(-1, flags)
        except ChildProcessError:
            return killed
        if pid == 0:
            return killed
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signals.SIGKILL
        flags = os.WNOHANG


def _reap_dead() -> None:
    """Zombies count for kill(-1, 0), so take the dead first."""
    while _reap_one():
        pass


def _reap_one() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _freeze_in_place(path: str) -> None:
    sys_.mount(path, path, None, sys_.MS_BIND | sys_.MS_REC)
    sys_.make_read_only(path)


def _limit(which: int, value: int) -> None:
    import resource

    _, hard = resource.getrlimit(which)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (ceiling, ceiling))


def _try(missing: list[str], what: str, step: Any) -> None:
    try:
        step()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.ENOENT):
            raise
        if what not in missing:
            missing.append(what)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
