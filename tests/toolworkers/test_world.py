"""What needs no namespace of its own. (The rest: tests/contract.)"""

from __future__ import annotations

import pytest

from toolworkers import _world as world


def test_a_sweep_outside_a_namespace_of_its_own_is_refused() -> None:
    with pytest.raises(RuntimeError, match="own pid namespace"):
        world.sweep(outer_pid_namespace=0)


def test_pid_1_of_the_daemons_own_namespace_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the daemon may be pid 1."""
    monkeypatch.setattr(world.os, "getpid", lambda: 1)
    monkeypatch.setattr(world.os, "kill", lambda *_: pytest.fail("it would have killed everything"))
    with pytest.raises(RuntimeError, match="own pid namespace"):
        world.sweep(outer_pid_namespace=world.pid_namespace())


def test_the_environment_is_an_allow_list_and_what_is_passed_wins() -> None:
    user = {"PATH": "/u", "HOME": "/root", "LANG": "de", "LC_ALL": "C", "SECRET": "s", "LD_PRELOAD": "x"}
    made = world.command_environment("/tmp/t", "/tmp/t/home", {"PATH": "/p", "MORE": "m"}, user)
    assert made == {
        "PATH": "/p",
        "HOME": "/tmp/t/home",
        "LANG": "de",
        "LC_ALL": "C",
        "TMPDIR": "/tmp/t",
        "PYTHONUNBUFFERED": "1",
        "DEBIAN_FRONTEND": "noninteractive",
        "GCM_INTERACTIVE": "never",
        "GIT_TERMINAL_PROMPT": "0",
        "PIP_NO_INPUT": "1",
        "MORE": "m",
    }


def test_what_a_program_is_told_of_prompts_may_be_overruled() -> None:
    made = world.command_environment("/tmp/t", "/tmp/t/home", {"GIT_TERMINAL_PROMPT": "1"}, {})
    assert (made["GIT_TERMINAL_PROMPT"], made["PIP_NO_INPUT"]) == ("1", "1")


def test_a_contract_asks_for_names_and_groups() -> None:
    user = {"TOKEN": "t", "HTTPS_PROXY": "p", "no_proxy": "n", "SSL_CERT_FILE": "c", "CARGO_HOME": "r", "OTHER": "o"}
    asked = world.declared_environment(("TOKEN", "@proxy", "ABSENT"), user)
    assert asked == {"TOKEN": "t", "HTTPS_PROXY": "p", "no_proxy": "n"}
    assert world.declared_environment(("@certs", "@toolchains"), user) == {"SSL_CERT_FILE": "c", "CARGO_HOME": "r"}
