"""One digest for what a tool promises and takes, whoever computes it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec

from protocol import Contract, Limits, ToolDescription
from supervisor.core.contract_hash import contract_hash

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 3}}}


def tool(schema: dict[str, Any] = SCHEMA, name: str = "t", about: str = "", **contract: Any) -> ToolDescription:
    return ToolDescription(name, about, Contract(**contract), schema)


def test_every_field_of_a_contract_and_the_schema_count() -> None:
    others = [
        tool(read_only=True),
        tool(timeout_ms=9),
        tool(limits=Limits(pids=9)),
        tool(roles={"a": "path"}),
        tool(roles={"a": "url"}),
        tool(scrub=("a *",)),
        tool({**SCHEMA, "required": ["a"]}),
        tool({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 4}}}),
    ]
    assert len({contract_hash(one) for one in [tool(), *others]}) == len(others) + 1


def test_name_and_description_do_not_count_nor_does_the_order_of_a_schema() -> None:
    turned = {"properties": {"b": {"default": 3, "type": "integer"}, "a": {"type": "string"}}, "type": "object"}
    assert contract_hash(tool()) == contract_hash(tool(turned, "other", "About."))


def test_a_field_at_its_default_is_a_field_left_out() -> None:
    assert contract_hash(tool(read_only=False, timeout_ms=Contract().timeout_ms)) == contract_hash(tool())


def test_the_digest_outlives_the_process_that_made_it() -> None:
    """Another process, another seed of its hashes, and a description that has been over the wire."""
    code = (
        "import sys, msgspec; from protocol import ToolDescription; from supervisor.core.contract_hash import *;"
        "print(contract_hash(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ToolDescription)))"
    )
    one = tool(read_only=True, env=("A", "B"), roles={"b": "volatile", "a": "path"})
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            input=msgspec.msgpack.encode(one),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout.decode()
        for seed in ("1", "2")
    }
    assert said == {contract_hash(one) + "\n"}


def test_it_is_sha_256_in_hexadecimal() -> None:
    assert len(contract_hash(tool())) == 64
    assert int(contract_hash(tool()), 16) > 0
