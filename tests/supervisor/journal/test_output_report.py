from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from supervisor.journal.output_report import HASHED_BYTES, SILENT, SILENT_APART, Written, look_into, output_of


def written(directory: Path, **streams: bytes) -> list[Written]:
    """Files of a call with these contents."""
    rows = []
    for name, data in streams.items():
        path = directory / f"c_1.{name}"
        path.write_bytes(data)
        rows.append(Written(name, len(data), str(path) if data else None))
    return rows


def test_the_output_of_two_streams_is_their_sum_and_its_path_that_of_the_first_with_bytes(tmp_path: Path) -> None:
    info = output_of(written(tmp_path, stdout=b"", stderr=b"oops\n"), truncated=True)
    assert (info.bytes, info.truncated, info.path) == (5, True, str(tmp_path / "c_1.stderr"))
    assert {name: (stream.bytes, stream.path) for name, stream in info.streams.items()} == {
        "stdout": (0, None),
        "stderr": (5, info.path),
    }


def test_silence_is_shared_and_lists_its_streams(tmp_path: Path) -> None:
    assert output_of(written(tmp_path, both=b""), truncated=False) is SILENT
    assert output_of(written(tmp_path, stdout=b"", stderr=b""), truncated=False) is SILENT_APART


def test_a_small_file_is_viewed_and_hashed(tmp_path: Path) -> None:
    info = output_of(written(tmp_path, both=b"hello\n"), truncated=False)
    look_into(info)
    assert (info.view, info.sha256, info.invalid_utf8) == ("hello\n", hashlib.sha256(b"hello\n").hexdigest(), False)


@pytest.mark.parametrize("size", [1 << 19, (1 << 19) + 1, HASHED_BYTES, HASHED_BYTES + 1])
def test_up_to_a_mebibyte_a_file_is_hashed_whole_and_its_lines_are_counted(tmp_path: Path, size: int) -> None:
    data = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
    info = output_of(written(tmp_path, both=data), truncated=False)
    look_into(info)
    assert info.sha256 == (hashlib.sha256(data).hexdigest() if size <= HASHED_BYTES else None)
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    missing, kept = (int(part.split(" lines")[0].split()[-1]) for part in info.view.split("[… ")[1].split(";")[:2])
    assert missing + kept == lines


def test_bytes_that_are_no_utf8_in_any_stream_are_flagged(tmp_path: Path) -> None:
    info = output_of(written(tmp_path, stdout=b"good\n", stderr=b"b\xffd\n"), truncated=False)
    look_into(info)
    assert (info.invalid_utf8, info.view) == (True, "[stdout]\ngood\n[stderr]\nb\ufffdd\n")


def test_what_is_no_file_any_more_is_an_error_and_no_wait(tmp_path: Path) -> None:
    info = output_of(written(tmp_path, both=b"hello\n"), truncated=False)
    os.unlink(info.path or "")
    os.mkfifo(info.path or "")
    with pytest.raises(OSError, match="no regular file"):
        look_into(info)
