from __future__ import annotations

from pathlib import Path

import pytest

from protocol import Approval, Limits
from protocol._places import default_socket, default_state_dir
from supervisor.config import Config, ConfigError, load


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "deadlined.toml").write_text(text)
    return str(tmp_path / "deadlined.toml")


def read(tmp_path: Path, text: str) -> Config:
    return load(written(tmp_path, text))


def test_without_a_file_the_defaults_hold_and_say_so() -> None:
    config = load(None)
    values, sources = config.effective()
    assert config == Config()
    assert config.limits == Limits()
    assert values["daemon"]["socket"] == default_socket()
    assert values["daemon"]["state_dir"] == default_state_dir()
    assert (values["daemon"]["in_flight"], values["daemon"]["queue"], values["daemon"]["spares"]) == (64, 256, 2)
    assert set(sources.values()) == {"default"}
    assert "limits.cpu_ms" in sources


def test_the_defaults_are_the_published_numbers() -> None:
    daemon = Config().daemon
    assert (daemon.frame_limit, daemon.clients) == (1 << 20, 256)
    assert (daemon.hello_timeout_ms, daemon.frame_timeout_ms) == (5_000, 10_000)
    assert (daemon.confirm_budget_ms, daemon.shutdown_drain_ms) == (1_000, 5_000)
    assert (daemon.idle_worker_ms, daemon.result_ttl_ms) == (60_000, 3_600_000)
    assert (daemon.socket, daemon.allow_gids, daemon.min_containment) == (None, (), None)


def test_every_setting_can_be_given_and_its_source_is_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        [daemon]
        socket = "run/s"
        state_dir = "/srv/deadlined"
        frame_limit = "2MiB"
        hello_timeout_ms = "2.5s"
        frame_timeout_ms = 1500
        result_ttl_ms = "2h"
        allow_gids = [100, 4]
        min_containment = "pidns"
        [limits]
        memory_bytes = "2GiB"
        cpu_ms = "none"
        pids = "none"
        core_bytes = 0
        """,
    )
    config = load(file)
    assert config.daemon.socket == f"{tmp_path}/run/s"
    assert config.daemon.state_dir == "/srv/deadlined"
    assert (config.daemon.frame_limit, config.daemon.hello_timeout_ms, config.daemon.frame_timeout_ms) == (
        2 << 20,
        2_500,
        1_500,
    )
    assert (config.daemon.allow_gids, config.daemon.min_containment) == ((100, 4), "pidns")
    assert (config.limits.memory_bytes, config.limits.cpu_ms, config.limits.pids) == (2 << 30, None, None)
    _, sources = config.effective()
    assert sources["daemon.frame_limit"] == sources["limits.pids"] == file
    assert sources["daemon.spares"] == sources["limits.open_files"] == "default"


def test_a_command_table_goes_to_the_worker_side_whole_and_plain(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [limits]
        output_bytes = "1MiB"
        [tool.grep]
        kind = "command"
        argv = ["grep", "--", "{pattern}", "{paths...}"]
        arguments = {pattern = "str"}
        description = "Search"
        read_only = true
        timeout_ms = "3s"
        approval = "never"
        resource = "tree-{pattern}"
        limits = {pids = 20, memory_bytes = "64MiB"}
        """,
    )
    table = config.tool["grep"].command_table()
    limits = table.pop("limits")
    assert table == {
        "kind": "command",
        "argv": ["grep", "--", "{pattern}", "{paths...}"],
        "arguments": {"pattern": "str"},
        "description": "Search",
        "read_only": True,
        "timeout_ms": 3_000,
        "approval": "never",
        "resource": "tree-{pattern}",
    }
    assert (limits["pids"], limits["memory_bytes"], limits["output_bytes"]) == (20, 64 << 20, 1 << 20)
    assert Approval(table["approval"]) is Approval.NEVER


def test_a_python_table_names_a_module_and_where_it_lies(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [tool.mine]
        kind = "python"
        module = "my_tools.text"
        path = ["lib", "/opt/tools"]
        max_timeout_ms = "5s"
        [tool.other]
        kind = "python"
        module = "other"
        path = "lib"
        """,
    )
    mine = config.tool["mine"]
    assert (mine.module, mine.path) == ("my_tools.text", (f"{tmp_path}/lib", "/opt/tools"))
    assert mine.contract_fields() == {"max_timeout_ms": 5_000}
    assert config.tool["other"].path == (f"{tmp_path}/lib",)


def test_a_table_without_a_kind_changes_a_tool_that_exists(tmp_path: Path) -> None:
    table = read(tmp_path, "[tool.shell]\nterm_grace_ms = '30s'\n").tool["shell"]
    assert (table.kind, table.contract_fields()) == (None, {"term_grace_ms": 30_000})


def test_what_a_tool_holds_is_shown_with_its_source(tmp_path: Path) -> None:
    file = written(tmp_path, "[tool.t]\nkind = 'command'\nargv = ['true']\n")
    values, sources = load(file).effective()
    assert values["tool"] == {"t": {"kind": "command", "argv": ["true"]}}
    assert sources["tool.t.argv"] == file


def test_limits_that_a_tool_inherits_come_from_where_the_limits_do(tmp_path: Path) -> None:
    file = written(tmp_path, "[limits]\npids = 9\n[tool.shell.limits]\nfile_bytes = '1MiB'\n")
    values, sources = load(file).effective()
    assert (values["tool"]["shell"]["limits"]["pids"], sources["tool.shell.limits.pids"]) == (9, file)
    assert sources["tool.shell.limits.file_bytes"] == file
    assert sources["tool.shell.limits.open_files"] == "default"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[daemon]\nsparess = 1", "daemon.sparess is no setting; allowed in daemon: allow_gids"),
        ("[limits]\nmemory = 1", "limits.memory is no setting; allowed in limits: core_bytes"),
        ("[tool.shell]\ntimout_ms = 1", "tool.shell.timout_ms is no setting"),
        ("[tool.shell.limits]\npid = 1", "tool.shell.limits.pid is no setting"),
        ("[daemons]\n", "daemons is no setting; allowed: [daemon], [limits], [tool]"),
        ("spares = 1", "spares is no setting"),
        ("daemon = 3", "daemon = 3 is not allowed; allowed: a table"),
        ("tool = 3", "tool = 3 is not allowed"),
        ("[tool]\nshell = 3", "tool.shell = 3 is not allowed; allowed: a table"),
        ("[daemon]\nspares = 2.0", "daemon.spares = 2.0 is not allowed (Expected int, got float)"),
        ("[daemon]\nspares = true", "daemon.spares = True is not allowed"),
        ("[daemon]\nspares = '2'", "daemon.spares = '2' is not allowed"),
        ("[daemon]\nin_flight = 0", "daemon.in_flight = 0 is not allowed (Expected int >= 1)"),
        ("[daemon]\nqueue = -1", "daemon.queue = -1 is not allowed"),
        ("[daemon]\nframe_limit = '32MiB'", "daemon.frame_limit = 33554432 is not allowed"),
        ("[daemon]\nframe_limit = '1MB'", "daemon.frame_limit: '1MB' is not a size; allowed is"),
        ("[daemon]\nhello_timeout_ms = '5'", "daemon.hello_timeout_ms: '5' is not a duration; allowed is"),
        ("[daemon]\nhello_timeout_ms = 0", "daemon.hello_timeout_ms = 0 is not allowed"),
        ("[daemon]\nallow_gids = [1, 'x']", "daemon.allow_gids[1] = [1, 'x'] is not allowed"),
        ("[daemon]\nmin_containment = 'docker'", "allowed: pidns+cgroup, pidns, cgroup, subreaper, group"),
        ("[[policy]]\ntool = 'x'\naction = 'maybe'", "policy[0].action = 'maybe' is not allowed"),
        ("[[policy]]\ntool = 'x'\naction = 'maybe'", "; allowed: allow, ask, deny"),
        ("[tenant.a]\nperiod = 'week'", "; allowed: none, hour, day"),
        ("[tool.shell]\napproval = 'x'", "; allowed: never, on_write, always"),
        ("[daemon]\nsocket = ''", "daemon.socket = '' is not allowed; allowed: a path"),
        ("[daemon]\nhello_timeout_ms = 'none'", "daemon.hello_timeout_ms: 'none' is not a duration"),
        ("[limits]\npids = 0", "limits.pids = 0 is not allowed; allowed: at least 1"),
        ("[limits]\nopen_files = 3", "limits.open_files = 3 is not allowed; allowed: at least 16"),
        ("[limits]\nfile_bytes = -1", "limits.file_bytes = -1 is not allowed"),
        ("[limits]\nfile_bytes = 99999999999999999999", "limits: file_bytes is 99999999999999999999; allowed is"),
        ("[limits]\nfile_bytes = 'none'", "limits.file_bytes: 'none' is not a size"),
        ("[tool.'a b']\nread_only = true", "tool.a b: 'a b' is no name for a tool"),
        ("[tool.t]\nkind = 'shell'", "tool.t.kind = 'shell' is not allowed; allowed: \"command\""),
        ("[tool.t]\nkind = ['command']", "tool.t.kind = ['command'] is not allowed"),
        ("[tool.t]\nkind = 'command'", "tool.t.argv is missing"),
        ("[tool.t]\nkind = 'command'\nargv = []", "tool.t.argv is missing"),
        (
            "[tool.t]\nkind = 'command'\nargv = 'ls -l'",
            "tool.t.argv = 'ls -l' is not allowed (Expected array, got str)",
        ),
        ("[tool.t]\nkind = 'command'\nargv = ['ls', 1]", "tool.t.argv[1] = ['ls', 1] is not allowed"),
        ("[tool.t]\nkind = 'command'\nargv = ['ls']\nmodule = 'x'", "tool.t.module is no setting"),
        ("[tool.t]\nkind = 'python'", "tool.t.module = None is not allowed"),
        ("[tool.t]\nkind = 'python'\nmodule = 'a-b'", "tool.t.module = 'a-b' is not allowed"),
        ("[tool.t]\nkind = 'python'\nmodule = 'a'\nargv = ['x']", "tool.t.argv is no setting"),
        ("[tool.shell]\nargv = ['x']", "tool.shell.argv is no setting"),
        ("[tool.shell]\ntimeout_ms = '2h'", "tool.shell: timeout_ms is 7200000; allowed is"),
        ("[tool.shell]\napproval = 'maybe'", "tool.shell.approval = 'maybe' is not allowed"),
        ("[tool.shell]\nfresh = true\nreusable = true", "tool.shell: fresh and reusable exclude each other"),
        (
            "[tool.t]\nkind = 'command'\nargv = ['ls']\nterm_grace_ms = '20s'",
            "tool.t: term_grace_ms = 20000 leaves nothing of timeout_ms = 10000",
        ),
        ("[tool.shell]\nroles = { cwd = 'file' }", "tool.shell.roles"),
        ("[tool.shell]\nroles = { cwd = 'file' }", "allowed: path, realpath, command, url, set, volatile, secret"),
        ("[tool.shell]\nroles = { a.b = 'path' }", "tool.shell.roles"),
        ("[tool.shell]\nscrub = ['*']", "tool.shell: scrub has '*'; allowed:"),
        ("[tool.time]\nkind = 'mcp'\ncommand = 'x'", 'tool.time.kind = "mcp" is not served yet'),
        ("[tool.shell]\nretry = 2", "tool.shell.retry = 2 is not allowed"),
        ("[tool.shell.retry]\nattempts = 11", "tool.shell: retry.attempts is 11; allowed is"),
        ("[tool.shell.retry]\non = ['always']", "tool.shell.retry.on[0] = ['always'] is not allowed"),
        ("[tool.shell.retry]\nbase_ms = '5s'", "tool.shell: retry.cap_ms is 4000; allowed is a whole number from 5000"),
        ("[tool.shell.retry]\ntries = 1", "tool.shell.retry.tries is no setting"),
        (
            "[tool.shell.refresh]\nevery = 5",
            "tool.shell.refresh.every is no setting; allowed in tool.shell.refresh: max,",
        ),
        ("[tool.shell.refresh]\nmax = -1", "tool.shell: refresh = {'max': -1} is not allowed"),
        ("[tool.t]\nkind = 'command'\nargv = ['ls']\nprogress = 'self'", 'tool.t: progress = "self" needs'),
        ("[tool.shell.after_kill]\ntimeout_ms = 5", "tool.shell.after_kill.argv is missing"),
        ("[tool.shell.after_kill]\nargv = []", "tool.shell: after_kill.argv is empty"),
        (
            "[tool.shell.after_kill]\nargv = ['x']\ntimeout_ms = '2m'",
            "tool.shell: after_kill.timeout_ms = 120000 is not allowed",
        ),
        ("[tool.shell.after_kill]\nargv = ['x']\ncommand = 1", "tool.shell.after_kill.command is no setting"),
        ("[tool.shell]\nlock_files = ['']", "tool.shell: lock_files has ''"),
        ("[quarantine]\nleaks = 0", "quarantine: leaks = 0 is not allowed"),
        ("[quarantine]\nwarn_keys = 9", "quarantine: warn_keys = 9 is above serial_keys"),
        ("[quarantine]\npoison_ms = 'none'", "quarantine.poison_ms"),
        ("[restart]\nclass_ends = 1", "restart: class_ends = 1 opens the breaker before the back-off"),
        ("[restart]\nclass_ends = 50", "restart: class_ends = 50 can never be passed within class_window_ms"),
        ("[[policy]]\ntool = '*'", "policy[0].action is missing"),
        ("[daemon\n", "is not TOML"),
        ("[daemon]\nspares = 1\nspares = 2", "is not TOML"),
        ("x = " + "[" * 5_000, "is not TOML"),
    ],
)
def test_a_refusal_names_the_file_the_key_and_what_is_allowed(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(str(tmp_path))
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(str(tmp_path / "latin.toml"))


def test_nothing_is_looked_for_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[daemon]\nspares = 9\n")
    monkeypatch.chdir(tmp_path)
    assert load(None).daemon.spares == 2


def test_relative_paths_start_from_the_files_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[daemon]\nstate_dir = 'state'\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load("../deadlined.toml").daemon.state_dir == f"{tmp_path}/state"


def test_none_is_an_isolation_where_a_field_is_one_and_no_limit_where_it_is_not(tmp_path):
    file = tmp_path / "deadlined.toml"
    file.write_text("[daemon]\nisolation = 'none'\n[limits]\npids = 'none'\n[tool.shell]\nisolation = 'none'\n")
    config = load(str(file))
    assert (config.daemon.isolation, config.limits.pids) == ("none", None)
    assert config.tool["shell"].contract_fields() == {"isolation": "none"}


def test_a_tool_that_demands_more_isolation_than_it_wants_is_refused(tmp_path):
    file = tmp_path / "deadlined.toml"
    file.write_text("[tool.shell]\nisolation = 'none'\nmin_isolation = 'contain'\n")
    with pytest.raises(ConfigError, match="below min_isolation"):
        load(str(file))


def test_the_machines_take_their_settings_in_words_and_without_limits(tmp_path: Path) -> None:
    config = read(tmp_path, "[quarantine]\nleaks = 'none'\nwindow_ms = '5m'\n[restart]\nprobe_ms = '10s'")
    assert (config.quarantine.leaks, config.quarantine.window_ms, config.restart.probe_ms) == (None, 300_000, 10_000)
    values, sources = config.effective()
    assert values["quarantine"]["leaks"] is None
    assert sources["quarantine.leaks"] == config.file
    assert sources["restart.class_ends"] == "default"


def test_what_is_done_after_a_kill_travels_to_the_worker_side_as_plain_values(tmp_path: Path) -> None:
    text = "[tool.shell]\nlock_files = ['*.lock']\nafter_kill = { argv = ['x', '{cwd}'], timeout_ms = '5s' }"
    fields = read(tmp_path, text).tool["shell"].contract_fields()
    assert fields == {"lock_files": ("*.lock",), "after_kill": {"argv": ("x", "{cwd}"), "timeout_ms": 5_000}}
