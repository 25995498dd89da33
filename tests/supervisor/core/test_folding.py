"""A finished step as one line of the host's, and where its outputs lie."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import CallResult, Delivery, ErrorClass, ErrorInfo, Exit, OutputInfo, Reason, Status, Timing
from supervisor.core.folding import RawOutput, fold


def result(tool: str, status: Status, number: int = 1, **more: object) -> CallResult:
    return CallResult(f"c_{number}", tool, status, delivery=Delivery.SUCCEEDED, timing=Timing(duration_ms=200), **more)  # type: ignore[arg-type]  # fields by name


def written(number: int, size: int = 4_096) -> OutputInfo:
    return OutputInfo(size, False, "SECRET WORDS OF AN OUTPUT\n" * 200, f"/out/c_{number}.both", sha256="ab" * 32)


READ = result("read_file", Status.OK, output=written(1))
RED = result("shell", Status.ERROR, 2, exit=Exit(1), output=written(2, 9 << 20))


@pytest.mark.behaviour("M049")
def test_a_step_is_one_line_that_says_what_ended_how_and_where_the_raw_outputs_lie():
    folded = fold(7, [READ, RED])
    assert folded.line == (
        "[step 7, folded: read_file ok, shell error (exit 1); took 400 ms in all;"
        f" raw output: /out/c_1.both (4.0 KiB, sha256 {'ab' * 32}) and 1 more]"
    )
    assert folded.raw == (
        RawOutput("c_1", "/out/c_1.both", 4_096, "ab" * 32),
        RawOutput("c_2", "/out/c_2.both", 9 << 20, "ab" * 32),
    )


@pytest.mark.behaviour("M049")
def test_nothing_that_was_written_or_said_is_in_the_line():
    error = ErrorInfo(ErrorClass.TOOL, "raised", "SECRET WORDS OF AN ERROR")
    folded = fold(1, [READ, result("t", Status.ERROR, error=error, content="SECRET CONTENT")])
    assert "SECRET" not in folded.line
    assert "t error (raised)" in folded.line


def test_what_nobody_knows_the_outcome_of_is_said_to_be_unknown():
    lost = CallResult("c_1", "pay", Status.CRASHED, reason=Reason.WORKER_LOST, delivery=Delivery.UNKNOWN)
    assert "pay crashed (worker_lost) OUTCOME UNKNOWN" in fold(1, [lost]).line
    many = [result("t", Status.OK, number) for number in range(4)]
    assert "1 more (1 crashed (worker_lost) OUTCOME UNKNOWN)" in fold(1, [*many, lost]).line


def test_a_step_without_calls_says_so():
    assert fold(3, []).line == "[step 3, folded: no call was made]"


@given(
    st.lists(
        st.builds(
            lambda tool, code, path: CallResult(
                "c", tool, Status.ERROR, error=ErrorInfo(ErrorClass.TOOL, code, ""), output=OutputInfo(1, path=path)
            ),
            st.text(min_size=1, max_size=300),
            st.text(max_size=300),
            st.text(min_size=1, max_size=900),
        ),
        max_size=100,
    )
)
@settings(deadline=None, max_examples=50)
def test_whatever_names_are_it_is_one_short_line(results):
    line = fold(1, results).line
    assert line.isprintable()
    assert len(line) <= 1_400
