"""Watching a run: every event once and in order, a stop after what happened before it, a cancel once."""

import itertools

import pytest

from deadlined import Client, ConnectionLost, RequestRefused
from deadlined.cli._run_watch import RunWatch
from protocol import _client_messages as cm
from protocol._events import Event, EventKind
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RunReason, RunStatus
from tests.deadlined.conftest import stop_record


def event(number, kind=EventKind.STEP_BEGUN):
    return Event(number, 0, kind, None, "r_1", 0, {"step": number}, "")


WAITING = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER)


class Log:
    """What happens in the fake daemon's run, an event an answer; the next stop is told when all of it was."""

    def __init__(self, daemon):
        self.events, self.stops = [], []
        self.daemon = daemon
        daemon.on.update({cm.ReadEvents: self._read, cm.WaitRun: self._wait, cm.CancelRun: lambda m: []})
        self.waiting = []

    def _read(self, message):
        new = [one for one in self.events if one.seq > message.after][:1]
        if not new and message.wait_ms:
            told = [cm.RunSettled(self.waiting.pop(), self.stops.pop(0))] if self.waiting and self.stops else []
            return [*told, cm.Events(message.id, [], message.after)]
        return [cm.Events(message.id, new, new[-1].seq if new else message.after)]

    def _wait(self, message):
        self.waiting.append(message.id)
        return []


@pytest.fixture
def log(fake_daemon):
    return Log(fake_daemon)


@pytest.fixture
def watching(fake_daemon):
    """A watch of the run, and what it showed."""
    with Client(fake_daemon.path) as client:
        yield lambda interrupted=lambda: False, **more: make(client, interrupted, **more)


def make(client, interrupted, **more):
    shown = []
    return RunWatch(client, "r_1", shown.append, interrupted, **more), shown


def test_every_event_is_shown_once_and_before_the_stop(log, watching):
    log.events, log.stops = [event(n) for n in (3, 4, 8)], [stop_record(RunStatus.COMPLETED)]
    watch, shown = watching(after=3)
    assert watch.to_stop().status == "completed"
    assert [one.seq for one in shown] == [4, 8]


def test_a_run_that_waits_is_followed_further_only_when_it_goes_on(log, watching):
    log.events, log.stops = [event(1), event(2, EventKind.RUN_SUSPENDED)], [WAITING, stop_record(RunStatus.COMPLETED)]
    watch, shown = watching()
    assert watch.to_stop().status == "needs_input"
    log.daemon.on[cm.ReadEvents] = lambda m: [
        cm.Events(m.id, [event(3, EventKind.RUN_RESUMED)] if m.after < 3 else [], max(3, m.after))
    ]
    watch.to_resumption()
    assert [one.seq for one in shown] == [1, 2, 3]
    log.daemon.on[cm.WaitRun] = lambda m: [cm.RunSettled(m.id, stop_record(RunStatus.COMPLETED))]
    assert watch.to_stop().status == "completed"


def test_one_that_went_on_before_its_stop_was_heard_is_not_waited_for(log, watching):
    log.daemon.on[cm.WaitRun] = lambda m: [cm.RunSettled(m.id, WAITING)]
    log.events = [event(1, EventKind.RUN_SUSPENDED), event(2, EventKind.RUN_RESUMED)]
    watch, shown = watching()
    assert watch.to_stop().status == "needs_input"
    watch.to_resumption()
    assert [one.seq for one in shown] == [1, 2]


def test_a_stop_that_is_heard_first_hides_nothing_of_what_happened_before_it(log, watching):
    log.daemon.on[cm.WaitRun] = lambda m: [cm.RunSettled(m.id, stop_record(RunStatus.COMPLETED))]
    log.events = [event(1), event(2), event(3, EventKind.RUN_SETTLED)]
    watch, shown = watching()
    assert watch.to_stop().status == "completed"
    assert [one.seq for one in shown] == [1, 2, 3]


@pytest.mark.parametrize("answered", [True, False])
def test_a_stop_is_told_though_the_daemon_ends_with_the_run(log, watching, answered):
    open_questions = []

    def read(message):
        if message.wait_ms:
            open_questions.append(message.id)
            last = [cm.Events(open_questions.pop(), [event(1, EventKind.RUN_SETTLED)], 1)] if answered else []
            return [cm.RunSettled(log.waiting.pop(), stop_record(RunStatus.CANCELLED, RunReason.SHUTDOWN)), *last]
        return None

    log.daemon.on[cm.ReadEvents] = read
    watch, shown = watching()
    stop = watch.to_stop()
    assert (stop.status, stop.reason) == ("cancelled", "shutdown")
    assert [one.seq for one in shown] == ([1] if answered else [])


def test_what_two_questions_are_answered_by_is_shown_once(log, watching):
    open_questions = []

    def read(message):
        if message.after == 1:
            return [cm.Events(message.id, [event(2, EventKind.RUN_RESUMED)] if message.wait_ms else [], 1)]
        if message.wait_ms:
            open_questions.append(message.id)
            return [cm.RunSettled(log.waiting.pop(), WAITING)]
        late = [cm.Events(open_questions.pop(), [event(1)], 1)] if open_questions else []
        return [cm.Events(message.id, [event(1)], 1), *late]

    log.daemon.on[cm.ReadEvents] = read
    watch, shown = watching()
    assert watch.to_stop().status == "needs_input"
    watch.to_resumption()
    assert [one.seq for one in shown] == [1, 2]


def test_an_interrupt_cancels_the_run_once_and_waits_for_its_end(fake_daemon, log, watching):
    ticks = itertools.count()
    watch, _ = watching(lambda: next(ticks) > 2)
    asked = []

    def cancelled(message):
        asked.append(message.run)
        log.events.append(event(1, EventKind.RUN_SETTLED))
        return [cm.RunSettled(number, stop_record(RunStatus.CANCELLED)) for number in log.waiting]

    fake_daemon.on[cm.CancelRun] = cancelled
    assert watch.to_stop().status == "cancelled"
    assert asked == ["r_1"]


def test_whoever_else_steers_is_told_to_cancel(fake_daemon, log, watching):
    told = []

    def cancel():
        told.append(1)
        fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [], 0)]

    log.daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [event(1)], 1)]
    watch, _ = watching(lambda: True, cancel=cancel)
    watch._hear(None)
    watch._hear(None)
    assert told == [1]
    assert not [one for one in fake_daemon.heard if isinstance(one, cm.CancelRun)]


def test_a_run_that_nobody_knows_and_a_daemon_that_is_gone_are_told_as_such(fake_daemon, log, watching):
    fake_daemon.on[cm.WaitRun] = lambda m: [cm.Failed(m.id, ErrorInfo(ErrorClass.ARGUMENT, "unknown_run", "no run"))]
    watch, _ = watching()
    with pytest.raises(RequestRefused):
        watch.to_stop()
    fake_daemon.on[cm.WaitRun] = lambda m: None
    with pytest.raises(ConnectionLost):
        watch.to_stop()


def test_a_daemon_that_stopped_talking_is_not_waited_for_for_ever(fake_daemon, log, watching, monkeypatch):
    from deadlined import DaemonSilent
    from deadlined.cli import _run_watch

    monkeypatch.setattr(_run_watch, "_WAIT_MS", 0)
    monkeypatch.setattr(_run_watch, "ANSWER_TIMEOUT_S", 0.01)
    fake_daemon.on[cm.ReadEvents] = lambda m: []
    watch, _ = watching()
    with pytest.raises(DaemonSilent):
        watch.to_stop()
