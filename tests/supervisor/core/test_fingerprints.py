"""When two calls are one call and two outcomes one outcome."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from protocol import CallResult, Contract, ErrorClass, ErrorInfo, Exit, OutputInfo, Reason, Status, ToolDescription
from protocol._outcomes import Delivery, KillReceipt, Notice, StreamInfo, Timing, Usage
from supervisor.core.arguments import parse
from supervisor.core.fingerprints import (
    SHOWN,
    Surroundings,
    args_fingerprint,
    call_fingerprint,
    contract_hash,
    outcome_fingerprint,
    paths_to_resolve,
    situation,
)
from supervisor.core.output import view_of
from supervisor.core.tools import ServedTool, Tools

TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"path": TEXT, "line": TEXT, "n": {}, "list": {"type": "array"}}}
AROUND = Surroundings("/cwd", "/home/u", b"k" * 32)


def served(name: str = "append", **contract: Any) -> ServedTool:
    tools = Tools()
    tools.serve([ToolDescription(name, "", Contract(**contract), SCHEMA)], "bare")
    tool = tools.get(name)
    assert tool is not None
    return tool


PATHS, PLAIN = served(roles={"path": "path"}), served()


def of(text: str, tool: ServedTool = PATHS, around: Surroundings = AROUND) -> str:
    """From the text of the arguments, as they come."""
    return args_fingerprint(tool, parse(text).values, around)


@pytest.mark.case("B096")
@pytest.mark.behaviour("M020")
@pytest.mark.behaviour("M152")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"path":"a","line":"x"}', '{ "line" : "x", "path":"a" }'),
        ('{"n":1}', '{"n":1.0}'),
        ('{"n":0}', '{"n":-0.0}'),
        ('{"n":1e2}', '{"n":100}'),
        ('{"path":"a"}', '{"path":"./a"}'),
        ('{"path":"a"}', '{"path":"/cwd/a"}'),
        ('{"line":"\\u00e9"}', '{"line":"e\\u0301"}'),
        ('{"line":"\\u00e9"}', '{"line":"é"}'),
        ('{"line":"a/b"}', '{"line":"a\\/b"}'),
        ('{"path":"a"}', '```json\n{"path":"a"}\n```'),
    ],
)
def test_arguments_that_mean_the_same_are_one_call(one: str, other: str) -> None:
    assert of(one) == of(other)


@pytest.mark.case("B096")
@pytest.mark.behaviour("M152")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"list":["a","b"]}', '{"list":["b","a"]}'),
        ('{"line":"a"}', '{"line":"./a"}'),
        ('{"line":"a"}', '{"line":"/cwd/a"}'),
        ('{"n":1}', '{"n":"1"}'),
        ('{"n":1}', '{"n":true}'),
        ('{"n":0}', '{"n":null}'),
        ('{"n":null}', "{}"),
        ('{"n":9007199254740992}', '{"n":9007199254740993}'),
        ('{"n":1}', '{"n":1.5}'),
        ('{"n":{}}', '{"n":[]}'),
        ('{"path":"a","line":"b"}', '{"path":"b","line":"a"}'),
        ('{"line":"a "}', '{"line":"a"}'),
    ],
)
def test_arguments_that_mean_something_else_are_another_call(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_a_path_is_one_only_where_the_contract_says_so() -> None:
    assert of('{"path":"a"}', PLAIN) != of('{"path":"./a"}', PLAIN)


def test_the_same_arguments_of_another_tool_or_contract_or_place_are_another_call() -> None:
    text = '{"line":"a"}'
    elsewhere = AROUND._replace(cwd="/other")
    all_of_them = [of(text), of(text, PLAIN), of(text, served("other")), of(text, PATHS, elsewhere)]
    assert len(set(all_of_them)) == len(all_of_them)


@pytest.mark.behaviour("M160")
def test_fingerprints_are_sha_256_of_which_16_digits_are_shown() -> None:
    args = of("{}")
    call = call_fingerprint("append", args)
    outcome = outcome_fingerprint(result(), Contract())
    for one in (args, call, outcome, contract_hash(PATHS.description)):
        assert len(one) == 64
        assert set(one) <= set("0123456789abcdef")
    assert SHOWN == 16


def test_a_fingerprint_is_the_same_in_every_version_of_this_product() -> None:
    """Approvals and keys of calls outlive a daemon: whoever changes the form changes the version word in it as well."""
    form = served("t", roles={"path": "path"})
    assert contract_hash(form.description) == "e5afddc7ac8a501c2be370073282375c23488b02736393bdc423664a7ac0a61d"
    assert (
        of('{"path":"./a","n":1.0,"line":"é"}', form)
        == "3112dec7c794b1c1bbd9e1340933eca4e08cbf0cf9eb0638100e8b07dc1064b7"
    )


@pytest.mark.behaviour("M107")
def test_a_situation_is_a_call_in_one_state_of_what_it_works_on() -> None:
    one, other = call_fingerprint("t", of('{"n":1}')), call_fingerprint("t", of('{"n":2}'))
    assert situation(one, 3) == situation(one, 3)
    every = {situation(call, version) for call, version in itertools.product([one, other], [3, 4, 33])}
    assert len(every) == 6
    assert call_fingerprint("u", of('{"n":1}')) != one


def test_who_wants_links_followed_is_told_which() -> None:
    assert paths_to_resolve(served(roles={"path": "realpath"}), {"path": "a", "line": "b"}, AROUND) == {"a": "/cwd/a"}
    assert paths_to_resolve(PATHS, {"path": "a"}, AROUND) == {}


# ---------------------------------------------------------------- outcomes

USUAL = Contract()


def result(**fields: Any) -> CallResult:
    return msgspec.structs.replace(CallResult("c_1", "t", Status.OK), **fields)


def wrote(data: bytes, digest: str | None = None, path: str = "/raw/c_1", **fields: Any) -> CallResult:
    """A call that wrote so. Without a digest it is as if it had been too much to be hashed at once."""
    streams = {"both": StreamInfo(len(data), path)}
    return result(
        output=OutputInfo(len(data), False, view_of(data, b"", len(data), path), path, streams, digest), **fields
    )


def error(code: str, message: str = "", **fields: Any) -> CallResult:
    return result(status=Status.ERROR, error=ErrorInfo(ErrorClass.TOOL, code, message), **fields)


def test_when_where_and_by_whom_is_no_part_of_an_outcome() -> None:
    one = wrote(b"text" * 5_000, content={"a": 1})
    other = wrote(b"text" * 5_000, path="/raw/c_2", content={"a": 1.0})
    for name, value in {
        "call": "c_2",
        "run": "r_1",
        "timing": Timing(5, 6, 7, 8, 9),
        "usage": Usage(5, 6),
        "summary": "t: ok after 7 ms",
        "fingerprint": "f" * 16,
        "idempotency_key": "k",
        "replayed": True,
        "durable": True,
        "workdir": "/kept",
        "notices": [Notice("left_processes", "info", "1 process")],
        "left_processes": 1,
        "delivery": Delivery.SUCCEEDED,
        "kill": KillReceipt(["pidns"], 1, 0.4, 1.9, True),
    }.items():
        setattr(other, name, value)
    assert outcome_fingerprint(one, USUAL) == outcome_fingerprint(other, USUAL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (result(), result(status=Status.NO_RESULT)),
        (result(content=1), result(content=2)),
        (result(content=1), result(content=True)),
        (result(content="a"), result(content=["a"])),
        (result(items=["a"]), result(items=["b"])),
        (result(items=["a"]), result(content=["a"])),
        (error("a"), error("b")),
        (error("raised", "no file a"), error("raised", "no file b")),
        (error("exit", exit=Exit(1)), error("exit", exit=Exit(2))),
        (error("signal", exit=Exit(None, "SIGSEGV")), error("signal", exit=Exit(None, "SIGABRT"))),
        (wrote(b"a"), wrote(b"b")),
        (wrote(b"a" * 20_000), wrote(b"a" * 20_001)),
        (wrote(b"a", "d1"), wrote(b"a", "d2")),
        (wrote(b"a"), result()),
    ],
)
def test_what_came_of_a_call_is_its_outcome(one: CallResult, other: CallResult) -> None:
    assert outcome_fingerprint(one, USUAL) != outcome_fingerprint(other, USUAL)


def test_output_whose_digest_is_known_is_told_apart_where_no_view_shows_it() -> None:
    one, other = (
        wrote(b"a" * 9_000 + middle + b"b" * 9_000, digest) for middle, digest in ((b"x", "d1"), (b"y", "d2"))
    )
    assert outcome_fingerprint(one, USUAL) != outcome_fingerprint(other, USUAL)


def test_of_two_streams_the_digest_of_one_does_not_stand_for_both() -> None:
    def two(view: str) -> CallResult:
        streams = {"stdout": StreamInfo(1, "/raw/a"), "stderr": StreamInfo(1, "/raw/b")}
        return result(output=OutputInfo(2, False, view, "/raw/a", streams, "digest of stdout"))

    assert outcome_fingerprint(two("[stdout]\na\n[stderr]\nb\n"), USUAL) != outcome_fingerprint(
        two("[stdout]\na\n[stderr]\nc\n"), USUAL
    )


@pytest.mark.parametrize("status", [Status.KILLED, Status.CRASHED, Status.CANCELLED])
def test_where_a_kill_cut_a_call_off_is_no_part_of_its_outcome(status: Status) -> None:
    def killed(data: bytes, message: str) -> str:
        told = ErrorInfo(ErrorClass.KILLED, "deadline", message)
        return outcome_fingerprint(wrote(data, status=status, reason=Reason.TIME_BUDGET, error=told), USUAL)

    assert killed(b"tick\n" * 3, "after 3 s") == killed(b"tick\n" * 4, "after 4 s")


def test_what_the_contract_calls_volatile_is_no_part_of_an_outcome() -> None:
    contract = Contract(scrub=("in *s", "0x*", "$.took_ms"))
    same = [
        (wrote(b"3 passed in 0.03s", "d1"), wrote(b"3 passed in 12.1s", "d2")),
        (result(content={"took_ms": 1, "n": 2}), result(content={"took_ms": 3, "n": 2})),
        (result(content="in 1s"), result(content="in 2s")),
        (error("raised", "<A at 0x7f12>"), error("raised", "<A at 0x7f34>")),
    ]
    for one, other in same:
        assert outcome_fingerprint(one, contract) == outcome_fingerprint(other, contract)
        assert outcome_fingerprint(one, USUAL) != outcome_fingerprint(other, USUAL)
    assert outcome_fingerprint(wrote(b"3 passed in 0.03s"), contract) != outcome_fingerprint(
        wrote(b"2 passed in 0.03s"), contract
    )


def test_a_long_output_that_differs_in_volatile_parts_only_is_one_outcome() -> None:
    contract = Contract(scrub=("run *",))
    lines = "".join(f"line {number:090}\n" for number in range(5_000))
    one, other = (wrote(f"run {run}\n{lines}".encode()) for run in (7, 123))
    assert one.output.view != other.output.view
    assert outcome_fingerprint(one, contract) == outcome_fingerprint(other, contract)
    assert outcome_fingerprint(one, USUAL) != outcome_fingerprint(other, USUAL)
