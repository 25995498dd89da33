"""Zygote and workers by themselves, against the blocking stand-in of `farside`: as root and as a plain uid."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol._contracts import Limits
from protocol._worker_messages import Reaped, SpawnFailed
from tests.contract.farside import Worker, Zygote, is_alive, namespace_of, open_zygote, send_with

pytestmark = pytest.mark.contract
PLAIN_UID = 61_234
TOOLS = '''
import os, signal, sys, tempfile, threading, time
from toolworkers import Context, ToolError, tool

@tool(read_only=True)
def look() -> dict:
    """What a tool sees of its world."""
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    return {
        "pid": os.getpid(), "cwd": os.getcwd(), "uid": os.getuid(), "sid": os.getsid(0),
        "environment": dict(os.environ), "tmp": tempfile.gettempdir(),
        "capabilities": status["CapEff"], "new_privileges": status["NoNewPrivs"], "processes": status["NSpid"],
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "listed": [name for name in os.listdir("/proc") if name.isdigit()],
        "stdin": os.readlink("/proc/self/fd/0"), "signals": status["SigBlk"],
        "oom": open("/proc/self/oom_score_adj").read().strip(),
    }

@tool(read_only=True)
def say(text: str) -> str:
    print(text)
    return text

@tool(read_only=True)
def say_half_a_line(text: str) -> None:
    print(text, end="")
    print(text, end="", file=sys.stderr)
    import ctypes
    ctypes.CDLL(None).printf(b"%s", text.encode())

@tool(reusable=True)
def change(what: str) -> bool:
    {
        "cwd": lambda: os.chdir("/"),
        "umask": lambda: os.umask(0o77),
        "environment": lambda: os.environ.update(LEFT="x", PATH="/nowhere"),
        "path": lambda: sys.path.insert(0, "/nowhere"),
        "descriptor": lambda: os.open("/dev/null", os.O_RDONLY),
        "swapped": lambda: os.dup2(os.open("/dev/zero", os.O_WRONLY), 1),
        "closed": lambda: os.close(0),
        "thread": lambda: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
        "handler": lambda: signal.signal(signal.SIGUSR1, lambda *_: None),
        "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
        "alarm": lambda: signal.alarm(500),
        "stdout": lambda: setattr(sys, "stdout", open("/dev/null", "w")),
        "tmp": lambda: open(os.path.join(os.environ["TMPDIR"], "left"), "w").close(),
        "work": lambda: open("left", "w").close(),
        "shm": lambda: open("/dev/shm/left", "w").close(),
        "user": lambda: os.seteuid(61235),
        "nothing": lambda: None,
    }[what]()
    return True

@tool(read_only=True)
def random_number() -> list:
    import random
    return [random.random() for _ in range(3)]

@tool
def not_reusable() -> bool:
    return True

@tool
def fork_and(how: str) -> str:
    if os.fork() == 0:
        if how == "raise":
            raise ValueError("from the child")
        return "from the child"
    return "from the parent"

@tool
def raises(how: str) -> None:
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")
    def deep():
        return deep()
    {
        "exit": lambda: sys.exit(3),
        "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
        "deep": deep,
        "memory": lambda: bytearray(1 << 62),
        "odd": lambda: (_ for _ in ()).throw(Odd()),
        "surrogate": lambda: (_ for _ in ()).throw(ValueError("\\udc80")),
        "own": lambda: (_ for _ in ()).throw(ToolError("come back later", code="busy", class_="transient_tool")),
        "denied": lambda: (_ for _ in ()).throw(ToolError("not there", code="sandbox_denied", class_="policy")),
    }[how]()

@tool
def wait_for_term(ctx: Context) -> str:
    ctx.progress(text="waiting")
    while not ctx.cancelled:
        time.sleep(0.01)
    return "heard it"

@tool
def report(count: int, ctx: Context) -> int:
    for number in range(count):
        ctx.progress(number, count, "going")
    return count

@tool
def know(ctx: Context) -> dict:
    return {"deadline": ctx.deadline_ns, "key": ctx.idempotency_key, "work": str(ctx.workdir), "root": str(ctx.root)}

@tool(home="user", env=("WANTED", "@proxy"))
def environment() -> dict:
    return dict(os.environ)
'''


@contextlib.contextmanager
def zygote_with_tools(directory: Path, python: list[str]) -> Iterator[Zygote]:
    """A zygote with the tools above and the chaos tools; its workers run as the uid of ``python``."""
    (directory / "far_side_tools.py").write_text(TOOLS)
    words = {"WANTED": "x", "HIDDEN": "y", "https_proxy": "http://p", "HOME": "/", "PATH": os.environ["PATH"]}
    modules = ["far_side_tools", "toolworkers.chaos"]
    with open_zygote(directory, python=python, modules=modules, path=[str(directory)], user_env=words) as zygote:
        zygote.uid = PLAIN_UID if len(python) > 1 else os.getuid()
        yield zygote


@pytest.fixture(scope="module", params=["own uid", "plain uid"])
def interpreter(request: pytest.FixtureRequest) -> list[str]:
    """As the fixture ``python``, once a module."""
    if request.param == "own uid":
        return [sys.executable]
    if os.getuid() != 0:
        pytest.skip("the tests run as a plain uid already: 'own uid' is that")
    return request.getfixturevalue("plain_uid_python")


@pytest.fixture(scope="module")
def zygote(interpreter: list[str]) -> Iterator[Zygote]:
    with tempfile.TemporaryDirectory(prefix="deadlined-test-") as directory:
        os.chmod(directory, 0o777)
        with zygote_with_tools(Path(directory), interpreter) as zygote:
            yield zygote


@pytest.fixture
def own_zygote(open_directory: Path, interpreter: list[str]) -> Iterator[Zygote]:
    """For tests that end it."""
    with zygote_with_tools(open_directory, interpreter) as zygote:
        yield zygote


@pytest.fixture
def spawn(zygote: Zygote) -> Iterator[Callable[..., Worker]]:
    """Starts ready workers, of the module's zygote unless another is named; they are gone afterwards."""
    workers: list[Worker] = []

    def start(own: Zygote | None = None, **fields: object) -> Worker:
        parent = own or zygote
        worker = parent.spawn(uid=parent.uid, **fields)
        workers.append(worker)
        worker.ready = worker.wait_ready()
        return worker

    yield start
    for worker in workers:
        worker.kill()
        assert worker.gone()
        worker.close()


@pytest.fixture
def worker(spawn: Callable[..., Worker]) -> Worker:
    return spawn()


# ---------------------------------------------------------------- becoming a worker


def test_a_worker_says_which_tools_there_are_when_asked(spawn: Callable[..., Worker]) -> None:
    asked, silent = spawn(describe=True), spawn()
    assert {"shell", "look"} <= {tool.name for tool in asked.ready.tools}
    assert silent.ready.tools is None


def test_a_worker_is_alone_in_its_world(worker: Worker) -> None:
    seen = worker.call("look").content
    assert seen["pid"] == 1
    assert seen["listed"] == ["1"]
    assert namespace_of(worker.pid) != namespace_of(os.getpid())
    assert seen["sid"] == 1
    assert seen["stdin"] == "/dev/null"
    assert seen["signals"].strip("0") == ""
    assert worker.ready.missing == []


def test_a_worker_holds_no_descriptor_that_is_not_its_own(worker: Worker, spawn: Callable[..., Worker]) -> None:
    other = spawn()
    for one in (worker, other):
        low = [number for number in one.call("look").content["descriptors"] if number < 512]
        # 0, 1, 2, four directories of the baseline and the scratch, and the listing's own
        assert len(low) <= 11, low


def test_a_worker_cannot_gain_privileges_and_dies_first_for_memory(worker: Worker) -> None:
    seen = worker.call("look").content
    assert seen["new_privileges"] == "1"
    assert int(seen["oom"]) >= 500
    capabilities = int(seen["capabilities"], 16)
    assert not capabilities >> 21 & 1, "sys_admin"
    assert not capabilities >> 19 & 1, "sys_ptrace"
    if seen["uid"] != 0:
        assert capabilities == 0


def test_a_worker_starts_in_its_own_directories(worker: Worker) -> None:
    seen = worker.call("look").content
    assert seen["cwd"] == str(worker.scratch / "work")
    assert seen["tmp"] == seen["environment"]["TMPDIR"] == str(worker.scratch / "tmp")
    assert seen["environment"]["HOME"] == str(worker.scratch / "tmp" / "home")
    assert "HIDDEN" not in seen["environment"]


def test_two_workers_draw_different_numbers(worker: Worker, spawn: Callable[..., Worker]) -> None:
    assert worker.call("random_number").content != spawn().call("random_number").content


def test_limits_reach_the_worker(spawn: Callable[..., Worker]) -> None:
    worker = spawn(limits=Limits(open_files=300))
    ended, output = worker.command(["sh", "-c", "ulimit -n; ulimit -c"])
    assert (ended.how, output) == ("exit", b"300\n0\n")


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_one_child_waits_ahead_and_becomes_the_next_worker(own_zygote: Zygote, spawn: Callable[..., Worker]) -> None:
    wait_for(lambda: len(own_zygote.children()) == 1)
    (ahead,) = own_zygote.children()
    worker = spawn(own_zygote)
    assert worker.pid == ahead
    wait_for(lambda: len(own_zygote.children()) == 2)
    another = spawn(own_zygote)
    assert another.call("say", {"text": "x"}).reusable
    assert another.pid != worker.pid


def test_a_child_that_dies_waiting_costs_nobody_a_worker(own_zygote: Zygote, spawn: Callable[..., Worker]) -> None:
    wait_for(lambda: len(own_zygote.children()) == 1)
    (ahead,) = own_zygote.children()
    os.kill(ahead, signal.SIGKILL)
    wait_for(lambda: own_zygote.children() == [])
    assert spawn(own_zygote).call("say", {"text": "x"}).how == "ok"
    assert own_zygote.reaped == {}


def test_a_request_without_its_descriptors_is_refused_by_name(zygote: Zygote) -> None:
    answer, _ = zygote.ask([], scratch="/nowhere")
    assert isinstance(answer, SpawnFailed)
    assert answer.code == "descriptors"


def test_a_worker_that_cannot_start_says_why_on_stderr_and_is_reaped_with_70(zygote: Zygote) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        _, (pidfd,) = zygote.ask([theirs.fileno()], scratch="/nowhere")
        reaped = zygote.hear_reaped(zygote.workers)
    os.close(pidfd)
    assert (reaped.code, reaped.signal) == (70, None)
    assert "/nowhere/out" in zygote.errors.read_text()


def test_the_zygote_reports_how_a_worker_ended(worker: Worker, spawn: Callable[..., Worker]) -> None:
    worker.kill()
    assert worker.reaped().signal == signal.SIGKILL
    other = spawn()
    assert other.call("chaos_exit", {"code": 9}) is None
    reaped = other.reaped()
    assert isinstance(reaped, Reaped)
    assert (reaped.code, reaped.signal) == (9, None)
    assert reaped.max_rss_bytes > 1 << 20


def test_a_worker_ends_when_its_socket_does(worker: Worker) -> None:
    worker.socket.close()
    assert worker.reaped().code == 71


def test_when_the_zygote_is_killed_everything_in_it_is_gone(own_zygote: Zygote, spawn: Callable[..., Worker]) -> None:
    workers = [spawn(own_zygote) for _ in range(3)]
    for one in workers:
        one.send("chaos_setsid", {"count": 2, "then": "hang"})
        until = time.monotonic() + 20
        while len(one.processes()) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    everybody = [pid for one in workers for pid in one.processes()]
    assert len(everybody) == 9
    own_zygote.process.kill()  # the launcher: PDEATHSIG passes it on
    assert all(one.gone() for one in workers)
    assert not any(map(is_alive, everybody))


def test_when_the_daemon_goes_the_zygote_goes(own_zygote: Zygote, spawn: Callable[..., Worker]) -> None:
    worker = spawn(own_zygote)
    own_zygote.link.close()
    assert worker.gone()
    assert own_zygote.process.wait(20) == 0


def test_a_zygote_survives_the_signals_of_a_terminal(zygote: Zygote, spawn: Callable[..., Worker]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        zygote.process.send_signal(number)
    assert spawn().call("say", {"text": "x"}).how == "ok"


def test_tools_that_cannot_be_loaded_are_named_on_stderr(open_directory: Path, interpreter: list[str]) -> None:
    zygote = Zygote(open_directory, python=interpreter, modules=["no_such_module"])
    assert zygote.hear() == (None, [])
    assert zygote.process.wait(20) == 78
    assert "no_such_module" in zygote.errors.read_text()
    zygote.close()


# ---------------------------------------------------------------- Python tools


def test_a_value_comes_back(worker: Worker) -> None:
    ended = worker.call("say", {"text": "grün"})
    assert (ended.how, ended.content, worker.accepted) == ("ok", "grün", True)
    assert worker.printed() == "grün\n".encode()


def test_what_was_printed_is_there_with_the_answer(worker: Worker) -> None:
    assert worker.call("say_half_a_line", {"text": "half"}).reusable
    assert worker.printed() == b"half" * 3


def test_what_is_refused_was_never_accepted(worker: Worker) -> None:
    unknown = worker.call("no_such_tool")
    assert (unknown.how, unknown.error_code, worker.accepted) == ("invalid_arguments", "unknown_tool", False)
    wrong = worker.call("say", {"text": 7})
    assert (wrong.how, worker.accepted) == ("invalid_arguments", False)
    assert "text" in wrong.message
    nowhere = worker.call("say", {"text": "x"}, cwd="/no/such/directory")
    assert (nowhere.how, worker.accepted) == ("bad_cwd", False)
    assert all(ended.reusable for ended in (unknown, wrong, nowhere))
    assert worker.call("say", {"text": "still here"}).how == "ok"


@pytest.mark.parametrize("arguments", ["{", "[]", '{"text": "\\ud800"}', '{"text": "x", "more": 1}', "[" * 100_000])
def test_arguments_that_are_none_are_refused(worker: Worker, arguments: str) -> None:
    assert worker.call("say", arguments).how == "invalid_arguments"
    assert worker.call("say", {"text": "still here"}).how == "ok"


@pytest.mark.parametrize("how", ["exit", "interrupt", "deep", "memory", "odd", "surrogate", "own", "denied"])
def test_whatever_a_tool_raises_is_told(worker: Worker, how: str) -> None:
    ended = worker.call("raises", {"how": how})
    assert worker.accepted
    expected = {"own": ("raised", "transient_tool", "busy"), "denied": ("refused", "policy", "sandbox_denied")}
    code = "exit" if how == "exit" else "raised"
    assert (ended.how, ended.error_class, ended.error_code) == expected.get(how, ("raised", "tool", code))
    assert not ended.reusable
    assert worker.call("say", {"text": "still here"}).how == "ok"


@pytest.mark.parametrize("kind", ["deep", "cyclic", "object", "nan", "huge_integer", "surrogate", "large"])
def test_a_value_that_json_cannot_say_is_the_tools_error(worker: Worker, kind: str) -> None:
    ended = worker.call("chaos_content", {"kind": kind})
    assert (ended.how, ended.error_code) == ("raised", "content")
    assert worker.call("say", {"text": "still here"}).how == "ok"


def test_a_tool_that_returns_nothing_has_no_result(worker: Worker) -> None:
    assert worker.call("chaos_constant_empty").how == "no_result"


def test_a_tool_knows_its_call(worker: Worker) -> None:
    known = worker.call("know", key="k7", deadline_ns=1 << 60, cwd="/tmp").content
    assert known == {"deadline": 1 << 60, "key": "k7", "work": str(worker.scratch / "work"), "root": "/tmp"}


def test_a_tool_gets_the_environment_it_declares_and_loses_it_again(worker: Worker) -> None:
    lent = worker.call("environment").content
    assert (lent["WANTED"], lent["https_proxy"], lent["HOME"]) == ("x", "http://p", "/")
    assert "HIDDEN" not in lent
    after = worker.call("look").content["environment"]
    assert "WANTED" not in after
    assert after["HOME"] == str(worker.scratch / "tmp" / "home")


def test_sigterm_sets_cancelled(worker: Worker) -> None:
    worker.send("wait_for_term", {})
    assert type(worker.hear()).__name__ == "Accepted"
    assert worker.hear().text == "waiting"
    signal.pidfd_send_signal(worker.pidfd, signal.SIGTERM)
    assert worker.result().content == "heard it"


def test_sigterm_between_calls_is_nothing(worker: Worker) -> None:
    signal.pidfd_send_signal(worker.pidfd, signal.SIGTERM)
    assert worker.call("say", {"text": "x"}).how == "ok"


def test_progress_is_limited_and_ends_with_the_call(worker: Worker) -> None:
    ended = worker.call("report", {"count": 5000})
    assert ended.content == 5000
    assert 1 <= len(worker.progress) <= 3
    assert worker.progress[0].text == "going"


def test_a_new_output_file_takes_the_place_of_the_old_one(worker: Worker) -> None:
    worker.call("say", {"text": "first"})
    second = os.memfd_create("out")
    worker.send("say", {"text": "second"}, [second])
    ended = worker.result()
    assert (ended.how, ended.reusable) == ("ok", True)
    assert worker.printed() == b"first\n"
    assert os.pread(second, 100, 0) == b"second\n"
    assert worker.call("say", {"text": "third"}).reusable
    os.close(second)


# ---------------------------------------------------------------- what a call leaves


def test_a_clean_worker_serves_again_and_again(worker: Worker) -> None:
    for _ in range(50):
        assert worker.call("say", {"text": "x"}).reusable
    assert not worker.call("not_reusable").reusable


@pytest.mark.parametrize("what", ["nothing", "cwd", "umask", "environment", "path", "swapped"])
def test_what_can_be_put_back_is_put_back(worker: Worker, what: str) -> None:
    before = worker.call("look").content
    changed = worker.call("change", {"what": what})
    assert changed.reusable == (what != "swapped")  # it leaves the descriptor that it swapped in
    after = worker.call("look").content
    for key in ("cwd", "environment"):
        assert after[key] == before[key]
    worker.call("say", {"text": "where it belongs"})
    assert b"where it belongs" in worker.printed()


@pytest.mark.parametrize(
    "what", ["descriptor", "closed", "handler", "mask", "alarm", "stdout", "tmp", "work", "shm", "thread"]
)
def test_a_worker_that_something_is_left_in_does_not_serve_again(worker: Worker, what: str) -> None:
    ended = worker.call("change", {"what": what})
    assert (ended.how, ended.reusable) == ("ok", False)
    assert ended.left_threads == (1 if what == "thread" else 0)


def test_a_worker_that_has_become_somebody_else_does_not_serve_again(worker: Worker, zygote: Zygote) -> None:
    if zygote.uid != 0:
        pytest.skip("only root can become somebody else")
    ended = worker.call("change", {"what": "user"})
    assert (ended.how, ended.reusable) == ("ok", False)


def test_processes_left_behind_are_killed_and_counted(worker: Worker) -> None:
    ended = worker.call("chaos_setsid", {"count": 3})
    assert (ended.how, ended.left_processes) == ("ok", 3)
    assert worker.processes() == [worker.pid]


@pytest.mark.parametrize("how", ["return", "raise"])
def test_a_forked_child_that_comes_back_answers_nothing(worker: Worker, how: str) -> None:
    ended = worker.call("fork_and", {"how": how})
    assert (ended.how, ended.content) == ("ok", "from the parent")
    assert worker.call("say", {"text": "x"}).how == "ok"
    assert worker.processes() == [worker.pid]


@pytest.mark.parametrize("tool", ["chaos_close_descriptors", "chaos_segfault", "chaos_abort", "chaos_exit"])
def test_a_tool_that_destroys_its_worker_gets_no_result(
    worker: Worker, spawn: Callable[..., Worker], tool: str
) -> None:
    assert worker.call(tool) is None
    assert worker.gone()
    assert spawn().call("say", {"text": "others go on"}).how == "ok"


def test_a_cut_frame_of_the_daemon_ends_the_worker(worker: Worker) -> None:
    send_with(worker.socket, b"\0\0\0\x05abc")
    worker.socket.shutdown(socket.SHUT_WR)
    assert worker.reaped().code == 71


def test_garbage_of_the_daemon_ends_the_worker(worker: Worker) -> None:
    send_with(worker.socket, b"\0\0\0\x05abcde")
    assert worker.reaped().code == 71
