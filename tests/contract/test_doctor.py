"""``deadlined doctor``: each level is tried for real, and what is said is what a daemon then reaches."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest

from deadlined import Client
from tests.contract.lower_levels import GROUP, SUBREAPER, open_lower, refusing

pytestmark = pytest.mark.contract
LEVELS = ["pidns+cgroup", "pidns", "cgroup", "subreaper", "group"]


def doctor(words: Sequence[str], code: int) -> dict[str, Any]:
    """Its JSON. It must leave no process, no directory and no group, and show no traceback."""
    argv = [*words, "-m", "deadlined", "doctor", "--json"]
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        process = subprocess.Popen(
            argv,
            cwd="/",
            env={**os.environ, "TMPDIR": directory},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, complained = process.communicate(timeout=120)
        assert os.listdir(directory) == []
    assert process.returncode == code, said + complained
    assert "Traceback" not in complained
    for name in (f"deadlined.{process.pid}", f"deadlined.{process.pid}.*"):  # not those of a pid that begins so
        assert glob.glob(f"/sys/fs/cgroup/**/{name}", recursive=True) == []
    found: dict[str, Any] = json.loads(said)
    assert [level["level"] for level in found["levels"]] == LEVELS
    return found


def works(found: dict[str, Any]) -> dict[str, bool]:
    return {level["level"]: level["works"] for level in found["levels"]}


def why(found: dict[str, Any], name: str) -> str:
    return str(next(level["why"] for level in found["levels"] if level["level"] == name))


def test_a_host_that_contains_is_told_with_what_died(python):
    found = doctor(python, 0)
    assert found["reached"].startswith("pidns")
    assert found["isolation"] == "contain"
    assert works(found)["subreaper"]
    tried = [level for level in found["levels"] if level["works"] and level["level"] != "group"]
    assert all(level["killed"] >= 4 for level in tried)
    assert set(found["limits"].values()) <= {"v1", "v2"}


def test_a_host_without_namespaces_is_told_why_and_what_it_has_instead(python):
    found = doctor(refusing(SUBREAPER, python), 1)
    assert (found["reached"], found["isolation"]) == ("subreaper", "limits")
    assert works(found) == dict(zip(LEVELS, [False, False, False, True, True], strict=True))
    assert "no pid namespace" in why(found, "pidns")
    with open_lower(SUBREAPER, python=python) as daemon, Client(daemon.socket) as client:
        assert client.status().containment == found["reached"]


def test_a_namespace_without_its_privileges_is_none(python):
    """As AppArmor of Ubuntu gives one to a plain uid."""
    found = doctor(refusing("mounts", python), 1)
    assert found["reached"] in ("cgroup", "subreaper")
    with open_lower("mounts", python=python) as daemon, Client(daemon.socket) as client:
        assert client.status().containment == found["reached"]
        assert client.call("shell", {"argv": ["true"]}).isolation.achieved == "limits"


def test_the_last_level_is_tried_where_there_is_no_other():
    found = doctor(refusing(GROUP), 1)
    assert found["reached"] == "group"
    assert "subreaper" in why(found, "subreaper")
