"""Why this host gives no namespaces, in one line that names the setting. Read from /proc only after it has refused."""

from __future__ import annotations

_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
    ("/proc/sys/user/max_pid_namespaces", "0", "user.max_pid_namespaces is 0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1 (Ubuntu's default)",
    ),
)
_NEEDED = "needed is CAP_SYS_ADMIN, or unprivileged user namespaces"


def why_no_namespaces(refused: str, is_root: bool) -> str:
    """``refused``: the step that failed. The text says what is missing and how a container gets it."""
    found = [text for path, wrong, text in _SWITCHES if _value(path) == wrong]
    if found:
        reason = "; ".join(found)
    elif is_root:
        reason = "this root has no CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined)"
    else:
        reason = "a seccomp profile refuses it (Docker's default does: --security-opt seccomp=unconfined)"
    return f"{refused}; {_NEEDED}: {reason}"


def _value(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None
