"""The report of a one-shot call's first process: what is written is read, and half a line is no report."""

from __future__ import annotations

from toolworkers._oneshot_report import Report


def filled() -> Report:
    report = Report("deadline", "a message\twith\nall in it é \udcff")
    report.code, report.killed, report.signalled_ns, report.missing = -9, 4, 1 << 62, "proc,shm"
    return report


def test_a_report_is_read_as_it_was_written() -> None:
    read = Report.decode(filled().encode())
    assert read is not None
    assert (read.how, read.code, read.killed, read.signalled_ns, read.missing) == (
        "deadline",
        -9,
        4,
        1 << 62,
        "proc,shm",
    )
    assert read.message == "a message with all in it é ?"


def test_no_exit_is_not_exit_zero() -> None:
    read = Report.decode(Report("deadline").encode())
    assert read is not None
    assert read.code is None


def test_the_last_whole_line_holds() -> None:
    read = Report.decode(Report("begun").encode() + filled().encode() + b"half a li")
    assert read is not None
    assert read.how == "deadline"


def test_without_a_whole_line_there_is_no_report() -> None:
    assert Report.decode(b"") is None
    assert Report.decode(filled().encode()[:-1]) is None


def test_a_report_is_written_in_one_piece() -> None:
    report = Report("broken", "é" * 100_000)
    assert len(report.encode()) < 4096
