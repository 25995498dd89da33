"""The model that plays a file: what it says, how it fails, and that it does the same every time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.core.model_events import Message, ModelError, ModelEvent, Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure, class_of
from supervisor.models.scripted import Script, ScriptedGateway, ScriptError

ASKED = Request([Message("user", "go")])
PLAYED_OUT = "the script has no turn left"


@pytest.fixture
def play(tmp_path):
    def load(text: str, name: str = "s.toml") -> ScriptedGateway:
        file = tmp_path / name
        file.write_text(text)
        return ScriptedGateway(Script.load(str(file)))

    return load


async def said(gateway: ScriptedGateway, request: Request = ASKED) -> list[ModelEvent] | ProviderFailure:
    """The events of one attempt, or how it failed."""
    events = []
    try:
        async for event in gateway.stream(request):
            events.append(event)
    except ModelError as error:
        return error.failure
    return events


async def words(gateway: ScriptedGateway, count: int, request: Request = ASKED) -> list[str]:
    """What each of so many attempts says, in a word."""
    told = []
    for _ in range(count):
        events = await said(gateway, request)
        told.append(events.message if isinstance(events, ProviderFailure) else told_by(events))
    return told


def told_by(events: list[ModelEvent]) -> str:
    pieces = {Text: "text", ToolCall: "arguments"}
    return "".join(getattr(event, pieces[type(event)]) for event in events if type(event) in pieces)


async def test_a_turn_has_text_calls_usage_and_a_stop(play):
    events = await said(
        play("""
        [[turn]]
        text = "I look."
        calls = [{ tool = "shell", arguments = { argv = ["ls"] } }, { tool = "shell", arguments = '{"argv": ' }]
        tokens = { in = 4000, out = 500, cached = 30 }
    """)
    )
    assert isinstance(events, list)
    assert told_by(events) == 'I look.{"argv": ["ls"]}{"argv": '
    assert events[-2:] == [Usage(4000, 500, 30), Stop("tools", "scripted")]
    assert len({event.id for event in events if isinstance(event, ToolCall)}) == 2


@pytest.mark.behaviour("M150")
async def test_a_loop_two_429s_and_a_waste_of_tokens_can_be_played(play):
    model = play("""
        [[turn]]
        status = 429
        repeat = 2
        [[turn]]
        text = "success"
        [[turn]]
        calls = [{ tool = "search", arguments = { query = "budget" } }]
        tokens = { in = 4000, out = 500 }
        repeat = "forever"
    """)
    refused = [await said(model), await said(model)]
    assert [(one.kind, one.status) for one in refused] == [(FailureKind.HTTP_STATUS, 429)] * 2
    assert await words(model, 4) == ["success", *['{"query": "budget"}'] * 3]
    events = await said(model)
    assert isinstance(events, list)
    assert events[-2] == Usage(4000, 500)


async def test_turns_come_in_their_order_and_the_number_of_the_time_can_be_in_them(play):
    model = play(
        '[[turn]]\ntext = "$n of 2"\nrepeat = 2\n[[turn]]\ncalls = [{ tool = "t", arguments = { q = "a $n" } }]\n'
    )
    assert await words(model, 4) == ["1 of 2", "2 of 2", '{"q": "a 1"}', PLAYED_OUT]
    model = play('[[turn]]\ncalls = [{ tool = "t_$n" }]\nrepeat = 2\n')
    called = [event.name for _ in range(2) for event in await said(model) if isinstance(event, ToolCall)]
    assert called == ["t_1", "t_2"]


async def test_a_script_that_is_played_out_is_an_error_that_nobody_repeats(play):
    model = play('[[turn]]\ntext = "once"\n')
    await said(model)
    failure = await said(model)
    assert isinstance(failure, ProviderFailure)
    assert class_of(failure) == "bug"


async def test_a_turn_that_does_not_fit_what_was_said_last_is_passed_over(play):
    model = play("""
        [[turn]]
        when = "pending"
        text = "again"
        repeat = "forever"
        [[turn]]
        when = "red"
        text = "mend"
        [[turn]]
        text = "finish"
    """)
    for last, expected in (("pending", "again"), ("still pending", "again"), ("green", "finish")):
        said_before = [Message("user", "red"), Message("assistant", "red")]
        told = [Message("tool", last, answers="c"), Message("tool", "another result", answers="d")]
        repeated = Message("user", "red", pinned=True)
        assert await words(model, 1, Request([*said_before, *told, repeated])) == [expected]


async def test_what_is_drawn_is_the_same_for_the_same_seed_and_another_for_another(play):
    turns = "\n".join(f'[[turn]]\ntext = "{n}"\nchance = 0.5\n' for n in range(30))
    plays = [await words(play(f"seed = {seed}\n{turns}"), 30) for seed in (1, 1, 2)]
    assert plays[0] == plays[1] != plays[2]
    assert 5 < sum(one.isdigit() for one in plays[0]) < 25


@pytest.mark.parametrize("step", [None, 1])
async def test_a_script_that_begins_in_the_middle_goes_on_behind_the_turns_that_were_answered(play, step):
    turns = ("status = 503", 'text = "a"', 'fail = "reset"', 'text = "b"')
    resumed = Request([Message("user", "go"), Message("assistant", "a", step=step), Message("user", "go on")])
    model = play("\n".join(f"[[turn]]\n{turn}" for turn in turns))
    assert await words(model, 2, resumed) == ["scripted failure: reset", "b"]


async def test_a_repeated_turn_goes_on_where_it_was(play):
    model = play('[[turn]]\ntext = "$n"\nrepeat = 5\n')
    assert await words(model, 1, Request([Message("assistant", "x", step=3)])) == ["4"]


@pytest.mark.parametrize("kind", FailureKind)
async def test_each_kind_of_failure_can_be_played(play, kind):
    failure = await said(play(f'[[turn]]\nfail = "{kind}"\n'))
    assert isinstance(failure, ProviderFailure)
    assert failure.kind is kind


@pytest.mark.parametrize(
    ("keys", "kind", "waits"),
    [
        ('retry_after = "3600"', FailureKind.HTTP_STATUS, True),
        ('retry_after = "soon"', FailureKind.HTTP_STATUS, False),
        ("", FailureKind.HTTP_STATUS, False),
        ('code = "insufficient_quota"', FailureKind.QUOTA_SPENT, False),
    ],
)
async def test_a_status_may_have_a_wait_and_a_code(play, keys, kind, waits):
    failure = await said(play(f"[[turn]]\nstatus = 429\n{keys}\n"))
    assert isinstance(failure, ProviderFailure)
    assert (failure.kind, failure.status, failure.not_before_ns is not None) == (kind, 429, waits)


@pytest.mark.behaviour("M093")
@pytest.mark.parametrize("cut_at", range(20))
@pytest.mark.parametrize(("cut_by", "kind"), [("close", FailureKind.CUT_STREAM), ("reset", FailureKind.RESET)])
async def test_a_turn_that_is_cut_has_no_stop_and_no_call_that_was_begun(play, cut_at, cut_by, kind):
    model = play(f"""
        [[turn]]
        text = "12345"
        piece = 2
        calls = [{{ tool = "t", arguments = "1234567890" }}]
        cut_at = {cut_at}
        cut_by = "{cut_by}"
    """)
    events: list[ModelEvent] = []
    with pytest.raises(ModelError) as raised:
        await collect(model, events)
    assert told_by(events) == "12345"[:cut_at] + "1234567890" * (cut_at > 15)
    assert not any(isinstance(event, Stop) for event in events)
    assert raised.value.failure.kind is (FailureKind.EMPTY_STREAM if (cut_at, cut_by) == (0, "close") else kind)


async def collect(model: ScriptedGateway, events: list[ModelEvent]) -> None:
    async for event in model.stream(ASKED):
        events.append(event)


@pytest.mark.parametrize("keys", ["silent = true", 'text = "1234"\ncut_at = 2\ncut_by = "stall"'])
async def test_a_model_that_never_answers_is_left_when_its_caller_leaves(play, keys):
    events: list[ModelEvent] = []
    with trio.move_on_after(0.05) as scope:
        await collect(play(f"[[turn]]\n{keys}\n"), events)
    assert scope.cancelled_caught
    assert told_by(events) in ("", "12")


async def test_slow_tokens_take_their_time(play, autojump_clock: MockClock):
    began = trio.current_time()
    model = play('[[turn]]\ntext = "12345678"\npiece = 2\ndelay_ms = 5000\npiece_ms = 1000\n')
    assert told_by(await said(model)) == "12345678"  # type: ignore[arg-type]  # it does not fail
    assert trio.current_time() - began == pytest.approx(9)


async def test_a_script_may_be_one_turn_a_line(play):
    lines = [{"model": "m", "seed": 3}, {"text": "a"}, {"calls": [{"tool": "t", "arguments": {"x": 1}}]}]
    model = play("\n".join(json.dumps(line) for line in lines), "s.jsonl")
    assert model.model == "m"
    assert await words(model, 2) == ["a", '{"x": 1}']


async def test_usage_is_left_out_when_it_is_to_be_and_counted_when_nothing_is_said_of_it(play):
    events = await said(play('[[turn]]\ntext = "12345678"\ntokens = "none"\n'))
    assert isinstance(events, list)
    assert not [event for event in events if isinstance(event, Usage)]
    events = await said(play('[[turn]]\ntext = "12345678"\n'))
    assert isinstance(events, list)
    assert events[-2] == Usage(1, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "turn"),
        ("turn = []", "at least one"),
        ("[[turn]]\nreply = 'x'", "reply"),
        ("[[turn]]\nrepeat = 0", "repeat"),
        ("[[turn]]\nwhen = '('", "regular expression"),
        ("[[turn]]\nwhen = 'a{99999999999}'", "regular expression"),
        (f"[[turn]]\nwhen = '{'(' * 20_000}{')' * 20_000}'", "regular expression"),
        ("turn = " + "[" * 100_000, "nested too deep"),
        ("[[turn]]\nsilent = true\nstatus = 429", "one of"),
        ("[[turn]]\nretry_after = '1'", "belong to a `status`"),
        ("[[turn]]\nstatus = 200", "status"),
        ("[[turn]]\nchance = 2", "chance"),
        ("[[turn", "end of document"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_with_its_name_and_the_reason(tmp_path, text, says):
    file = tmp_path / "bad.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ScriptError, match=says) as raised:
        Script.load(str(file))
    assert "bad.toml" in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", "7", "[" * 100_000, '{"text": "a"}\n{"what": 1}', '{"a": NaN}'])
def test_lines_that_cannot_be_played_are_refused(tmp_path, text):
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(ScriptError):
        Script.load(str(file))


def test_a_script_that_is_too_large_is_refused(tmp_path):
    file = tmp_path / "big.toml"
    file.write_text("# " + "x" * (1 << 20))
    with pytest.raises(ScriptError, match="at most"):
        Script.load(str(file))


def test_what_is_no_regular_file_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "fifo.toml")  # nobody writes to it: an open that waits for one ends in no life
    for path in (tmp_path / "fifo.toml", Path("/dev/zero")):
        with pytest.raises(ScriptError, match="regular file"):
            Script.load(str(path))
