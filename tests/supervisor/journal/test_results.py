"""Results kept in memory."""

from __future__ import annotations

from protocol import CallResult, OutputInfo, Status
from supervisor.journal.results import ResultStore

MS = 1_000_000


def result(call: str, content: str = "") -> CallResult:
    return CallResult(call, "t", Status.OK, content=content)


def test_a_reader_gets_what_was_told():
    store = ResultStore(1_000, lambda _: None)
    told = result("c_1", "hello")
    store.keep(7, told, [], 0)
    kept = store.get("c_1")
    assert kept is not None
    assert (kept.uid, kept.result) == (7, told)


def test_what_is_too_old_is_forgotten_with_its_files():
    gone: list[tuple[str, ...]] = []
    store = ResultStore(10, gone.append)
    store.keep(0, result("c_1"), ["/a", "/b"], 0)
    store.keep(0, result("c_2"), [], 5 * MS)
    store.expire(10 * MS)
    assert (store.get("c_1"), store.get("c_2") is not None, gone) == (None, True, [("/a", "/b")])
    store.expire(15 * MS)
    assert len(store) == 0


def test_the_oldest_go_when_memory_is_short():
    store = ResultStore(1_000, lambda _: None, most_bytes=9_000)
    for number in range(100):
        store.keep(0, result(f"c_{number}", "x" * 500), [], 0)
    assert store.get("c_0") is None
    assert store.get("c_99") is not None
    assert 0 < len(store) < 10


def test_clear_forgets_everything():
    gone: list[tuple[str, ...]] = []
    store = ResultStore(1_000, gone.append)
    store.keep(0, result("c_1"), ["/a"], 0)
    store.clear()
    assert (len(store), gone) == (0, [("/a",)])


def test_the_oldest_outputs_go_when_the_disk_is_short():
    gone: list[tuple[str, ...]] = []
    store = ResultStore(1_000, gone.append, most_output=100)
    for number in range(3):
        kept = result(f"c_{number}")
        kept.output = OutputInfo(bytes=60)
        store.keep(0, kept, [f"/{number}"], 0)
    assert gone == [("/0",), ("/1",)]
    assert store.get("c_2") is not None
