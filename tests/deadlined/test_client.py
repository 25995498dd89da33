import os
import signal
import threading
import time

import pytest

from deadlined import Client, ConnectionLost, DaemonNotRunning, DaemonSilent, RequestRefused
from deadlined._blocking import connect
from protocol import _client_messages as cm
from protocol._codecs import daemon_to_client
from protocol._errors import ProtocolError
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Status
from protocol._places import PlaceError
from protocol._runs import ApprovalView, OpenEffect


def _kinds(fake_daemon):
    return [type(message) for message in fake_daemon.heard]


def _until_heard(fake_daemon, kind):
    while kind not in _kinds(fake_daemon):
        time.sleep(0.001)


def test_no_daemon_says_how_to_start_one(tmp_path):
    with pytest.raises(DaemonNotRunning, match=f"start one with: deadlined serve --socket {tmp_path}/none"):
        Client(str(tmp_path / "none"))


def test_a_socket_that_nobody_serves_is_no_daemon(fake_daemon):
    fake_daemon.close()
    with pytest.raises(DaemonNotRunning, match="Connection refused"):
        Client(fake_daemon.path)


def test_a_daemon_that_lets_nobody_in_is_silent_and_not_absent(full_door):
    with pytest.raises(DaemonSilent, match=r"no connection from the daemon within 0\.1 s"):
        Client(full_door.path, answer_timeout_s=0.1)


def test_who_finds_the_door_full_waits_until_others_have_been_let_in(full_door):
    threading.Timer(0.05, full_door).start()
    with connect(full_door.path, 20) as connection:
        assert connection.getpeername() == full_door.path
        assert connection.getblocking()


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_tried():
    with pytest.raises(PlaceError, match="at most 107"):
        Client("/" + "x" * 200)


def test_a_call_returns_its_result(fake_daemon):
    with Client(fake_daemon.path) as d:
        result = d.call("echo", {"a": 1}, deadline_ms=500, key="k", split_streams=True)
    assert result.status == "ok"
    submit = fake_daemon.heard[1]
    assert (submit.arguments, submit.deadline_ms, submit.key, submit.split_streams) == ('{"a":1}', 500, "k", True)
    assert not submit.announce


def test_bad_arguments_never_reach_the_daemon_and_harm_no_later_call(fake_daemon):
    with Client(fake_daemon.path) as d:
        for bad in ({"x": float("nan")}, {1: 2}, {"x": "\ud800"}):
            with pytest.raises(ValueError, match="arguments"):
                d.call("echo", bad)
        with pytest.raises(ValueError):
            d.call("echo", deadline_ms=2**64)
        assert d.call("echo").status == "ok"
    assert _kinds(fake_daemon) == [cm.Hello, cm.Submit]


def test_a_handle_waits_cancels_and_reports(fake_daemon):
    with Client(fake_daemon.path) as d:
        h = d.submit("hang")
        assert (h.call, h.deadline_ms, h.result()) == ("c_1", 5000, None)
        with pytest.raises(TimeoutError):
            h.wait(0.01)
        assert h.cancel()
        assert h.wait().status == "cancelled"
        assert h.result().status == "cancelled"
        assert not h.cancel()


def test_its_own_client_cancels_a_call_and_an_operator_any_other(fake_daemon):
    with Client(fake_daemon.path) as d:
        own, other = d.submit("hang"), d.submit("hang")
        own.cancel()
        d.handle(other.call).cancel()
        assert (own.wait().reason, other.wait().reason) == ("client", "operator")


def test_a_cancel_that_comes_just_too_late_is_no_error(fake_daemon):
    late = CallResult("c_1", "t", Status.OK)
    fake_daemon.on[cm.Cancel] = lambda m: [
        cm.Failed(m.id, ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "settled")),
        cm.Settled(m.submit, late),
    ]
    with Client(fake_daemon.path) as d:
        h = d.submit("hang")
        assert not h.cancel()
        assert h.wait() == late


def test_a_detached_call_is_waited_for_by_its_id(fake_daemon):
    with Client(fake_daemon.path) as d:
        assert d.submit("echo", detach=True).wait().call == "c_1"
        assert d.handle("c_77").wait().call == "c_77"


def test_output_is_read_to_its_end(fake_daemon):
    chunks = iter([(0, b"ab", False), (2, b"", False), (2, b"c", True), (3, b"", True)])
    fake_daemon.on[cm.ReadOutput] = lambda m: [cm.OutputChunk(m.id, m.call, *next(chunks))]
    with Client(fake_daemon.path) as d:
        assert list(d.handle("c_1").output()) == [b"ab", b"c"]
    assert [m.offset for m in fake_daemon.heard if isinstance(m, cm.ReadOutput)] == [0, 2, 2, 3]


def test_output_without_follow_ends_where_the_call_is(fake_daemon):
    chunks = iter([(0, b"ab", False), (2, b"", False)])
    fake_daemon.on[cm.ReadOutput] = lambda m: [cm.OutputChunk(m.id, m.call, *next(chunks))]
    with Client(fake_daemon.path) as d:
        assert list(d.handle("c_1").output(follow=False)) == [b"ab"]


def test_a_refused_request_is_typed_and_the_connection_goes_on(fake_daemon):
    error = ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "no call c_9 is known")
    fake_daemon.on[cm.Wait] = lambda m: [cm.Failed(m.id, error)]
    with Client(fake_daemon.path) as d:
        with pytest.raises(RequestRefused) as caught:
            d.handle("c_9").wait()
        assert caught.value.error == error
        assert d.call("echo").status == "ok"


def test_a_daemon_that_goes_away_mid_call_is_a_lost_connection(fake_daemon):
    fake_daemon.on[cm.Submit] = lambda m: None
    with Client(fake_daemon.path) as d:
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                d.call("hang")


def test_a_torn_answer_is_a_lost_connection(fake_daemon):
    whole = daemon_to_client(False).pack(cm.Settled(1, CallResult("c_1", "t", Status.OK)))
    fake_daemon.on[cm.Submit] = lambda m: [whole[:-3]]
    fake_daemon.on[cm.ListTools] = lambda m: None
    lost = []
    with Client(fake_daemon.path) as d:
        waiter = threading.Thread(target=_lose, args=(d, lost))
        waiter.start()
        _until_heard(fake_daemon, cm.Submit)
        with pytest.raises(ConnectionLost):
            d.tools()
        waiter.join(10)
    assert lost == [1]


def _lose(d, lost):
    with pytest.raises(ConnectionLost):
        d.call("hang")
    lost.append(1)


def test_a_peer_that_is_no_daemon_is_a_protocol_error(fake_daemon):
    fake_daemon.on[cm.Hello] = lambda m: [b"HTTP/1.1 400 Bad Request\r\n\r\n"]
    with pytest.raises(ConnectionLost) as caught:
        Client(fake_daemon.path)
    assert isinstance(caught.value, ProtocolError)


def test_a_stopped_daemon_is_told_from_none(fake_daemon):
    fake_daemon.on[cm.Hello] = lambda m: []
    with pytest.raises(DaemonSilent, match="stopped or overloaded"):
        Client(fake_daemon.path, answer_timeout_s=0.05)


def test_one_silent_answer_leaves_the_other_calls_alone(fake_daemon):
    fake_daemon.on[cm.ListTools] = lambda m: []
    with Client(fake_daemon.path, answer_timeout_s=0.05) as d:
        h = d.submit("hang")
        with pytest.raises(DaemonSilent):
            d.tools()
        h.cancel()
        assert h.wait().status == "cancelled"


def test_many_threads_share_one_connection(fake_daemon):
    with Client(fake_daemon.path) as d:
        calls = []
        threads = [
            threading.Thread(target=lambda: calls.extend(d.call("echo").call for _ in range(50))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(calls) == sorted(f"c_{n}" for n in range(1, 401))


def test_one_thread_cancels_what_another_waits_for(fake_daemon):
    with Client(fake_daemon.path) as d:
        h = d.submit("hang")
        ended = []
        waiter = threading.Thread(target=lambda: ended.append(h.wait().status))
        waiter.start()
        assert h.cancel()
        waiter.join(10)
    assert ended == ["cancelled"]


def test_closing_wakes_the_threads_that_wait(fake_daemon):
    lost = []
    d = Client(fake_daemon.path)
    waiter = threading.Thread(target=_lose, args=(d, lost))
    waiter.start()
    _until_heard(fake_daemon, cm.Submit)
    d.close()
    waiter.join(10)
    assert lost == [1]
    with pytest.raises(ConnectionLost, match="client was closed"):
        d.call("echo")


def test_an_interrupted_call_is_cancelled_and_its_end_awaited(fake_daemon):
    def interrupt():
        _until_heard(fake_daemon, cm.Submit)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who started us may have it ignored
    try:
        with Client(fake_daemon.path) as d:
            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt):
                d.call("hang")
            assert _kinds(fake_daemon)[-1] is cm.Cancel
            assert d.call("echo").status == "ok"
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_client_leaves_no_descriptor_behind(fake_daemon, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        Client(fake_daemon.path).close()
    with pytest.raises(DaemonNotRunning):
        Client(str(tmp_path / "none"))
    fake_daemon.on[cm.Hello] = lambda m: None
    with pytest.raises(ConnectionLost):
        Client(fake_daemon.path)
    fake_daemon.close()
    assert len(os.listdir("/proc/self/fd")) <= before


APPROVAL = ApprovalView("a_1", 0, "r_1", "c_1", "shell", '{"argv":["ls"]}', "write", "pending", 1, 2)
EFFECT = OpenEffect("c_1", "shell", "r_1", 0, "KEY", 1)


def test_people_decide_and_close_through_the_client(fake_daemon):
    fake_daemon.on[cm.ListApprovals] = lambda m: [cm.Approvals(m.id, [APPROVAL] if m.all or m.run is None else [])]
    fake_daemon.on[cm.Decide] = lambda m: [cm.Decided(m.id, APPROVAL, "c_2" if m.decision == "approve" else None)]
    fake_daemon.on[cm.ListEffects] = lambda m: [cm.Effects(m.id, [EFFECT] if m.run == "r_1" else [])]
    fake_daemon.on[cm.CloseEffect] = lambda m: [
        cm.EffectClosed(m.id, OpenEffect("c_1", "t", None, 0, "K", 1, None, m.note))
    ]
    with Client(fake_daemon.path) as d:
        assert (d.approvals(), d.approvals(run="r_2"), d.approvals(run="r_2", all=True)) == ([APPROVAL], [], [APPROVAL])
        assert d.approve("a_1", note="n", arguments={"argv": ["ls", "-l"]}, scope="tool").call == "c_2"
        assert d.reject("a_1", note="no", then="stop").call is None
        assert (d.effects(run="r_1"), d.effects()) == ([EFFECT], [])
        assert d.close_effect("c_1", "was done").closed == "was done"
    decided = [message for message in fake_daemon.heard if isinstance(message, cm.Decide)]
    assert decided == [
        cm.Decide(4, "a_1", "approve", "n", '{"argv":["ls","-l"]}', "tool"),
        cm.Decide(5, "a_1", "reject", "no", then="stop"),
    ]


def test_runs_and_metrics_are_asked_for(fake_daemon):
    fake_daemon.on[cm.ListRuns] = lambda m: [cm.Runs(m.id, [])]
    fake_daemon.on[cm.AskMetrics] = lambda m: [cm.Metrics(m.id, "# EOF\n")]
    with Client(fake_daemon.path) as d:
        assert (d.runs(), d.runs(all=True), d.metrics()) == ([], [], "# EOF\n")
    assert [message.all for message in fake_daemon.heard if isinstance(message, cm.ListRuns)] == [False, True]
