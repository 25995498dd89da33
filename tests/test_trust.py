"""The trust suites' own frame: what fails, cannot run or tries nothing is no pass; and the first suite fails when it
should. The suites themselves are run by `make trust`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import pytest

from protocol._framing import FrameBuffer
from tests.trust import __main__ as command
from tests.trust import deaths, frames_mutated, registry
from tests.trust.registry import CannotRun, Figures, Suite


def suite(found: Figures | CannotRun) -> Suite:
    def run(_count: int, _seed: int) -> Figures:
        if isinstance(found, CannotRun):
            raise found
        return found

    return Suite("it does", 10, 100, run)


GOOD, BAD, NOTHING = Figures(tried=1_000), Figures(tried=1_000, failed=2, failures=["this one"]), Figures()


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(suites: dict[str, Suite], *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(command, "all_suites", lambda: suites)
        monkeypatch.setattr("sys.argv", ["trust", *words])
        code = command.main()
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_pass_is_one_line_with_figures_bound_seed_and_seconds(trust: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = trust({"good": suite(GOOD)}, "--seed", "7")
    assert code == 0
    assert out.startswith("good: 0 of 1,000 failed (at 95 %: fewer than 3.0e-03, 3/N); seed 7; ")
    assert out.endswith(" s\n")
    assert out.count("\n") == 1
    assert err == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (BAD, "FAILED: 2 of 1,000 failed"),
        (NOTHING, "0 of 0 failed"),
        (CannotRun("no cgroup here"), "NOT RUN (no cgroup here)"),
    ],
)
def test_anything_else_is_not_a_pass_even_beside_one(
    trust: Callable[..., tuple[int, str, str]], found: Figures | CannotRun, said: str
) -> None:
    code, out, _ = trust({"good": suite(GOOD), "other": suite(found)})
    assert code == 1
    assert said in out.splitlines()[1]


def test_a_suite_whose_extra_is_not_installed_is_named_by_a_lane_and_is_no_pass(
    trust: Callable[..., tuple[int, str, str]],
) -> None:
    needy = dataclasses.replace(suite(GOOD), needs="no_such_module")
    code, out, _ = trust({"good": suite(GOOD), "needy": needy})
    assert code == 0
    assert out.splitlines()[0] == "needy: SKIPPED (no_such_module is not installed); that is no pass"
    assert out.count("failed") == 1
    assert trust({"needy": needy})[0] == 1


def test_a_failure_is_shown_so_that_it_can_be_repeated(trust: Callable[..., tuple[int, str, str]]) -> None:
    _, _, err = trust({"bad": suite(BAD)})
    assert err == "  bad: this one\n"


def test_two_lanes_run_every_suite_and_forget_no_failure(trust: Callable[..., tuple[int, str, str]]) -> None:
    suites = {name: suite(BAD if name == "b" else GOOD) for name in "abcd"}
    code, out, _ = trust(suites, "--lanes", "2")
    assert code == 1
    assert sorted(line[0] for line in out.splitlines()) == list("abcd")


@pytest.mark.parametrize(
    ("words", "count"), [((), 10), (("--lane", "push"), 10), (("--lane", "long"), 100), (("--count", "7"), 7)]
)
def test_the_lane_or_the_count_says_how_much(
    trust: Callable[..., tuple[int, str, str]], words: tuple[str, ...], count: int
) -> None:
    asked: list[int] = []

    def run(count: int, _seed: int) -> Figures:
        asked.append(count)
        return Figures(tried=count)

    assert trust({"one": Suite("it does", 10, 100, run)}, *words)[0] == 0
    assert asked == [count]


@pytest.mark.parametrize(
    "words", [("--suite", "none"), ("--count", "0"), ("--count", "-1"), ("--lane", "slow"), ("--seed", "x")]
)
def test_a_wrong_option_is_a_usage_error(trust: Callable[..., tuple[int, str, str]], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        trust({"good": suite(GOOD)}, *words)
    assert left.value.code == 2


def test_every_module_with_a_suite_is_found_by_its_name() -> None:
    suites = registry.all_suites()
    assert suites["frames_mutated"] is frames_mutated.SUITE
    assert all(0 < one.push <= one.long and one.passes_when for one in suites.values())


def test_figures_of_two_processes_add_up_and_a_peak_stays_a_peak() -> None:
    one, other = Figures(tried=5), Figures(tried=7)
    for number in range(9):
        one.fail(f"one {number}")
        other.fail(f"other {number}")
    one.count("refused", 3)
    other.count("refused", 4)
    one.peak("bytes", 10)
    other.peak("bytes", 8)
    one.add(other)
    assert (one.tried, one.failed) == (12, 18)
    assert one.counts == {"refused": 7, "peak bytes": 10}
    assert one.failures == [f"one {number}" for number in range(registry.SHOWN)]


CHUNK = (11, 0, 1_000)


def test_the_same_seed_breaks_the_same_frames() -> None:
    one, other = frames_mutated._chunk(CHUNK), frames_mutated._chunk(CHUNK)
    assert one.failures == []
    for figures in (one, other):
        figures.counts.pop("peak bytes of a batch", None)
    assert one == other
    assert one.counts["understood"] > 0
    assert one.counts["refused"] > 0


@pytest.mark.parametrize("data", [b"\x0b", b"\n\x0c", b" " * 300, b"\r\t \n", b"a" * 256 + b"\n", b"a" * 257])
def test_what_a_line_is_told_a_second_time_is_the_same(data: bytes) -> None:
    figures = Figures()
    frames_mutated.read_twice("client to daemon, json", data, 256, lambda: 0.5, figures)
    assert figures.failures == []


def test_the_frames_suite_sees_a_codec_out_of_which_something_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaky:
        def unpack(self, body: bytes) -> object:
            raise RecursionError(len(body))

    ears = {name: dataclasses.replace(ear, hears=Leaky()) for name, ear in frames_mutated.EARS.items()}
    monkeypatch.setattr(frames_mutated, "EARS", ears)
    assert frames_mutated._chunk(CHUNK).failed > 100


def test_the_frames_suite_sees_a_buffer_that_reads_cut_bytes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(FrameBuffer):
        def feed(self, data: bytes):  # type: ignore[no-untyped-def]  # a broken one on purpose
            self._buffer.clear()
            return super().feed(data)

    ears = frames_mutated.EARS
    broken = {
        name: dataclasses.replace(ear, buffer=Forgetful) for name, ear in ears.items() if ear.buffer is FrameBuffer
    }
    monkeypatch.setattr(frames_mutated, "EARS", broken)
    assert frames_mutated._chunk(CHUNK).failed > 10


def test_the_frames_suite_sees_memory_that_an_announcement_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trusting(FrameBuffer):
        def feed(self, data: bytes):  # type: ignore[no-untyped-def]  # a broken one on purpose
            room = bytearray(4 << 20)
            yield from super().feed(data)
            del room

    ears = frames_mutated.EARS
    broken = {
        name: dataclasses.replace(ear, buffer=Trusting) for name, ear in ears.items() if ear.buffer is FrameBuffer
    }
    monkeypatch.setattr(frames_mutated, "EARS", broken)
    assert "bytes at once" in "".join(frames_mutated._chunk((11, 0, 5_000)).failures)


@pytest.mark.parametrize("point", deaths.POINTS.values(), ids=list(deaths.POINTS))
def test_every_point_at_which_a_daemon_can_be_made_to_die_is_in_the_product(point: deaths.Point) -> None:
    *_, function = deaths.find(point)
    assert callable(function)
    assert point.before or not inspect.iscoroutinefunction(function), "it returns before it has done anything"
