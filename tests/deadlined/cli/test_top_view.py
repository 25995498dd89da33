from __future__ import annotations

from deadlined.cli._top_view import Key, TopView, keys_in
from protocol._client_messages import ProcessRow


def call(name: str, left_ms: int, worker: int | None = 1) -> ProcessRow:
    return ProcessRow(worker, worker and 100 + worker, "busy" if worker else "queued", name, "shell", left_ms)


def idle(worker: int) -> ProcessRow:
    return ProcessRow(worker, 100 + worker, "idle")


def shown(view: TopView, most: int = 20) -> list[str]:
    return [f"{'>' if line.selected else ' '}{line.row.call or line.row.worker}" for line in view.lines(most)]


def test_calls_come_first_by_the_time_they_have_left_and_then_workers_by_number() -> None:
    view = TopView()
    view.update([idle(9), call("c_slow", 9_000, 3), idle(2), call("c_soon", 10, 7), call("c_queued", 500, None)])
    assert shown(view) == [">c_soon", " c_queued", " c_slow", " 2", " 9"]
    assert (view.calls, view.workers) == (3, 4)


def test_the_selection_stays_on_its_call_when_places_change() -> None:
    view = TopView()
    view.update([call("c_1", 100), call("c_2", 200), call("c_3", 300)])
    view.move(1)
    view.update([call("c_0", 50), call("c_1", 90), call("c_3", 150), call("c_2", 190)])
    assert shown(view) == [" c_0", " c_1", " c_3", ">c_2"]


def test_when_the_selected_call_has_gone_the_one_in_its_line_is_selected() -> None:
    view = TopView()
    view.update([call("c_1", 100), call("c_2", 200), call("c_3", 300)])
    view.move(1)
    view.update([call("c_1", 100), call("c_3", 300)])
    assert view.selected == "c_3"
    view.update([call("c_1", 100)])
    assert view.selected == "c_1"
    view.update([idle(1)])
    assert (view.selected, shown(view)) == (None, [" 1"])
    view.update([])
    assert (view.selected, shown(view)) == (None, [])


def test_the_arrows_stop_at_the_first_and_the_last_call() -> None:
    view = TopView()
    view.update([call("c_1", 100), call("c_2", 200), idle(1)])
    view.move(-1)
    assert view.selected == "c_1"
    view.move(5)
    assert view.selected == "c_2"
    view.move(1)
    assert view.selected == "c_2"


def test_a_small_screen_shows_the_selected_call_with_what_fits() -> None:
    view = TopView()
    view.update([call(f"c_{number}", number) for number in range(9)])
    assert shown(view, 3) == [">c_0", " c_1", " c_2"]
    view.move(4)
    assert shown(view, 3) == [" c_2", " c_3", ">c_4"]
    assert shown(view, 0) == []


def test_keys_are_found_among_what_means_nothing() -> None:
    assert keys_in(b"k\x1b[Aq\x1bOBz\x1b[5~k") == [Key.KILL, Key.UP, Key.QUIT, Key.DOWN, Key.KILL]
    assert keys_in(b"\x1b\xff\x00") == []
