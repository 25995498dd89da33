"""Results at hand."""

from __future__ import annotations

from protocol import CallResult, Status
from supervisor.journal.results import KeptCall, ResultStore, pack


def result(call: str, content: str = "") -> CallResult:
    return CallResult(call, "t", Status.OK, content=content)


def nobody(_: KeptCall) -> None:
    """Whoever need not hear what is forgotten."""


def test_a_reader_gets_what_was_told():
    store = ResultStore(nobody)
    told = result("c_1", "hello")
    store.keep(pack(7, told, (), 10))
    kept = store.get("c_1")
    assert kept is not None
    assert (kept.uid, kept.result) == (7, told)


def test_what_is_too_old_is_forgotten_with_its_files():
    gone: list[KeptCall] = []
    store = ResultStore(gone.append)
    store.keep(pack(0, result("c_1"), ("/a", "/b"), 10))
    store.keep(pack(0, result("c_2"), (), 15))
    store.expire(10)
    assert (store.get("c_1"), store.get("c_2") is not None) == (None, True)
    assert [(kept.id, kept.files) for kept in gone] == [("c_1", ("/a", "/b"))]
    store.expire(15)
    assert len(store) == 0


def test_the_oldest_go_when_memory_is_short():
    store = ResultStore(nobody, most_bytes=9_000)
    for number in range(100):
        store.keep(pack(0, result(f"c_{number}", "x" * 500), (), 10))
    assert store.get("c_0") is None
    assert store.get("c_99") is not None
    assert 0 < len(store) < 10
