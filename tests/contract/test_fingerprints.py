"""The fingerprint of a call as a caller sees it: from a running daemon, with real directories and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from deadlined import Client
from tests.contract.conftest import open_daemons

pytestmark = pytest.mark.contract

CONFIG = """
[tool.see]
kind = "command"
argv = ["true", "{file}", "{command}", "{note}"]
roles = { file = "realpath", command = "command", note = "volatile" }
read_only = true
home = "user"

[tool.see.arguments]
file = { type = "str", default = "" }
command = { type = "str", default = "" }
note = { type = "int", default = 0 }
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with open_daemons() as start, Client(start(CONFIG).socket) as client:
        yield client


@pytest.fixture
def fingerprint(client, tmp_path):
    def of(tool: str = "see", cwd: Any = tmp_path, **arguments: Any) -> str:
        result = client.call(tool, arguments, cwd=str(cwd), deadline_ms=60_000)
        assert result.status == "ok", result
        return result.fingerprint

    return of


@pytest.mark.behaviour("M020")
@pytest.mark.behaviour("M160")
def test_a_result_shows_16_digits_that_are_the_same_for_the_same_call_however_it_is_written(fingerprint, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    plain = fingerprint(file="real", command="ls 'a b'")
    assert re.fullmatch("[0-9a-f]{16}", plain)
    same = [
        {"command": 'ls  "a b"', "file": str(tmp_path / "real")},
        {"file": "./link", "command": "ls a\\ b", "note": 7},
        {"file": "link/../real", "command": "ls 'a b'"},
    ]
    assert {fingerprint(**arguments) for arguments in same} == {plain}
    others = [
        fingerprint(file="real", command="ls a b"),
        fingerprint(file="real/..", command="ls 'a b'"),
        fingerprint(file="real", command="ls 'a b'", cwd="/"),
        fingerprint(),
    ]
    assert len({plain, *others}) == 5
    assert fingerprint("shell", argv=["true"]) == fingerprint("shell", argv=["true"], env=None)
