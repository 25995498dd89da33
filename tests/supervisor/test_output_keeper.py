"""Real files and threads, no clock to wait for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import trio

from protocol._outcomes import CallResult, OutputInfo, Status, StreamInfo
from supervisor.core.shelf import Shelf
from supervisor.journal.outputs import OutputStore
from supervisor.output_keeper import OutputKeeper, Seal

MIB = 1 << 20
HOUR_MS = 3_600_000


def settled(
    directory: Path, call: str, digest: str | None = None, **streams: bytes
) -> tuple[CallResult, tuple[str, ...]]:
    """A call with these outputs, and the paths of its files."""
    infos = {}
    for name, data in streams.items():
        path = directory / f"{call}.{name}"
        path.write_bytes(data)
        infos[name] = StreamInfo(len(data), str(path))
    paths = tuple(info.path for info in infos.values() if info.path)
    return (
        CallResult(call, "shell", Status.OK, output=OutputInfo(path=paths[0], streams=infos, sha256=digest)),
        7,
        paths,
    )


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not true():
            await trio.sleep(0.005)


async def test_what_the_result_has_no_digest_of_is_sealed_once(tmp_path: Path) -> None:
    seals: list[Seal] = []
    keeper = OutputKeeper(OutputStore(str(tmp_path)), Shelf(100 * MIB, HOUR_MS), seals.append)
    large, small = os.urandom(2 * MIB), b"small\n"
    for ended in (
        settled(tmp_path, "c_1", both=large),
        settled(tmp_path, "c_2", digest="known", both=small),
        settled(tmp_path, "c_3", digest="known", stdout=small, stderr=small),
    ):
        keeper.settled(*ended)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        await until(lambda: len(seals) == 2)
        nursery.cancel_scope.cancel()
    assert seals == [
        Seal("c_1", 7, None, "both", 2 * MIB, hashlib.sha256(large).hexdigest()),
        Seal("c_3", 7, None, "stderr", 6, hashlib.sha256(small).hexdigest()),
    ]


async def test_a_file_that_has_gone_or_is_none_is_not_sealed_and_holds_up_nothing(tmp_path: Path) -> None:
    seals: list[Seal] = []
    keeper = OutputKeeper(OutputStore(str(tmp_path)), Shelf(100 * MIB, HOUR_MS), seals.append)
    for call in ("c_1", "c_2", "c_3"):
        keeper.settled(*settled(tmp_path, call, both=bytes(MIB + 1)))
    (tmp_path / "c_1.both").unlink()
    (tmp_path / "c_2.both").unlink()
    os.mkfifo(tmp_path / "c_2.both")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        await until(lambda: bool(seals))
        nursery.cancel_scope.cancel()
    assert [seal.call for seal in seals] == ["c_3"]


async def test_over_the_quota_the_oldest_files_go_and_those_of_an_earlier_life_first(tmp_path: Path) -> None:
    old = tmp_path / "c_old.both"
    old.write_bytes(bytes(MIB))
    os.utime(old, (1_000_000, 1_000_000))
    keeper = OutputKeeper(OutputStore(str(tmp_path)), Shelf(3 * MIB, 10**15), lambda _: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        for number in range(3):
            keeper.settled(*settled(tmp_path, f"c_{number}", digest="known", both=bytes(MIB)))
        await until(lambda: not old.exists())
        keeper.settled(*settled(tmp_path, "c_3", digest="known", both=bytes(MIB)))
        await until(lambda: not (tmp_path / "c_0.both").exists())
        nursery.cancel_scope.cancel()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c_1.both", "c_2.both", "c_3.both"]


async def test_a_work_directory_counts_as_much_as_all_that_is_in_it(tmp_path: Path) -> None:
    keeper = OutputKeeper(OutputStore(str(tmp_path)), Shelf(3 * MIB, HOUR_MS), lambda _: None)
    work = tmp_path / "c_1.work" / "deep"
    work.mkdir(parents=True)
    (work / "large").write_bytes(bytes(4 * MIB))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        keeper.settled(CallResult("c_1", "shell", Status.KILLED), 0, (str(work.parent),))
        keeper.settled(*settled(tmp_path, "c_2", digest="known", both=b"x"))
        await until(lambda: not work.parent.exists())
        nursery.cancel_scope.cancel()
    assert (tmp_path / "c_2.both").exists()


async def test_what_is_too_old_goes_when_somebody_looks(tmp_path: Path) -> None:
    keeper = OutputKeeper(OutputStore(str(tmp_path)), Shelf(100 * MIB, 1), lambda _: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        keeper.settled(*settled(tmp_path, "c_1", digest="known", both=b"x"))
        await trio.sleep(0.01)
        keeper.expire()
        await until(lambda: not (tmp_path / "c_1.both").exists())
        nursery.cancel_scope.cancel()


async def test_a_tree_deeper_than_any_path_is_weighed_as_far_as_one_can_look(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(3_000):
            os.mkdir("d", dir_fd=here)
            deeper = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
    finally:
        os.close(here)
    store = OutputStore(str(tmp_path))
    assert store.weigh(str(tmp_path)) == 0
    store.discard(str(tmp_path / "d"))
