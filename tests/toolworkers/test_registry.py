"""Names → tools: a name means one tool, whoever brings it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from protocol import Approval
from protocol._errors import InvalidArguments
from toolworkers._after_kill import hook_of
from toolworkers._context import Context
from toolworkers._registry import Registry, RegistryError, builtin_registry
from toolworkers._tools import MARK, tool

NOWHERE = Context(deadline_ns=0, workdir="/")
BUILTINS = ["edit_file", "list_files", "python", "read_file", "script", "search", "shell", "write_file"]


@tool
def one() -> int:
    """The first."""
    return 1


def _module(name: str, **things: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(things)
    return module


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_registered_tool_is_found_by_its_name_and_others_are_not() -> None:
    registry = Registry()
    registry.add_module(_module("m", one=one, other=3))
    assert registry.get("one") is getattr(one, MARK)
    assert registry.get("two") is None
    assert (registry.names(), len(registry), [made.name for made in registry]) == (["one"], 1, ["one"])


def test_the_same_tool_twice_is_one_tool() -> None:
    registry = Registry()
    registry.add_module(_module("m", one=one, alias=one))
    registry.add_module(_module("n", one=one))
    assert registry.names() == ["one"]


def test_another_tool_under_a_taken_name_is_refused_and_both_origins_are_named() -> None:
    @tool(name="one")
    def other() -> int:
        return 2

    registry = Registry()
    registry.add_module(_module("m", one=one))
    with pytest.raises(RegistryError, match=rf"'one' of {other.__module__} is already registered by .*another name"):
        registry.add_module(_module("n", other=other))
    assert registry.get("one") is getattr(one, MARK)


def test_a_module_is_loaded_by_name_and_registers_what_it_declares(module_path: Path) -> None:
    (module_path / "users_tools.py").write_text(
        "from deadlined import tool, command, CommandPlan\n"
        "@tool(read_only=True)\ndef second(n: int) -> int:\n    return n\n"
        "@command\ndef first() -> CommandPlan:\n    return CommandPlan(['true'])\n"
    )
    registry = Registry()
    registry.load_module("users_tools")
    assert [made.name for made in registry] == ["second", "first"]
    assert [made.name for made in registry.describe()] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 /", "SyntaxError"),
        ("raise OSError('no disk')", "OSError: no disk"),
        ("from deadlined import tool\n@tool(timeout_ms=0)\ndef f() -> None: ...\n", "timeout_ms is 0"),
        ("x = 1", "declares no tool; allowed: functions under @tool or @command"),
    ],
)
def test_a_module_that_cannot_be_loaded_says_why(module_path: Path, text: str, says: str) -> None:
    name = f"broken_{abs(hash(text))}"
    (module_path / f"{name}.py").write_text(text)
    with pytest.raises(RegistryError, match=name) as refused:
        Registry().load_module(name)
    assert says in str(refused.value)


def test_a_module_that_is_not_there_says_so() -> None:
    with pytest.raises(RegistryError, match="'no_such_module_at_all' cannot be loaded: ModuleNotFoundError"):
        Registry().load_module("no_such_module_at_all")


def test_a_template_becomes_a_tool_and_its_faults_carry_its_path() -> None:
    registry = Registry()
    registry.add_command_template("say", {"kind": "command", "argv": ["echo", "--", "{words...}"]})
    made = registry.get("say")
    assert made is not None
    assert made.call(made.decode('{"words": ["a"]}'), Context(deadline_ns=0, workdir="/w")).argv[-1] == "a"
    with pytest.raises(RegistryError, match=r"tool\.bad: argv\[0\] must be the literal name"):
        registry.add_command_template("bad", {"argv": ["{x}"], "arguments": {"x": "str"}})
    with pytest.raises(RegistryError, match=r"tool\.a b: "):
        registry.add_command_template("a b", {"argv": ["true"]})
    with pytest.raises(RegistryError, match="'say' of the configuration is already registered by the configuration"):
        registry.add_command_template("say", {"argv": ["true"]})


def test_a_configuration_replaces_contract_fields_and_nothing_else() -> None:
    registry = Registry()
    registry.add_module(_module("m", one=one))
    registry.override("one", {"approval": "always", "timeout_ms": 5})
    changed = registry.get("one")
    assert changed is not None
    assert (changed.contract.approval, changed.contract.timeout_ms) == (Approval.ALWAYS, 5)
    assert changed.call({}, Context(deadline_ns=0, workdir="/w")) == 1
    assert getattr(one, MARK).contract.timeout_ms != 5  # the module's own declaration is as it was


def test_an_override_of_nothing_or_with_nonsense_is_refused() -> None:
    registry = Registry()
    registry.add_module(_module("m", one=one))
    with pytest.raises(RegistryError, match=r"tool\.two: no such tool; there are: one"):
        registry.override("two", {})
    with pytest.raises(RegistryError, match=r"tool\.one: 'kind' is no field"):
        registry.override("one", {"kind": "command"})


def test_the_builtins_are_those_of_the_published_table() -> None:
    assert builtin_registry().names() == BUILTINS


def test_the_builtins_declare_what_the_published_table_says() -> None:
    contracts = {described.name: described.contract for described in builtin_registry().describe()}
    assert {name for name, it in contracts.items() if it.read_only} == {"list_files", "read_file", "search"}
    assert {name for name, it in contracts.items() if it.kind == "command"} == {"script", "shell"}
    assert {name for name, it in contracts.items() if it.approval is Approval.NEVER} == {
        "edit_file", "python", "script", "shell", "write_file",
    }  # fmt: skip
    assert {name for name, it in contracts.items() if it.home == "user"} == {"script", "shell"}
    assert {name for name, it in contracts.items() if it.fresh} == {"python"}
    assert {name for name, it in contracts.items() if it.reusable} == {"edit_file", "write_file"}


def test_every_builtin_has_a_description_and_a_closed_schema_of_its_published_arguments() -> None:
    described = {it.name: it for it in builtin_registry().describe()}
    arguments = {name: set(it.schema["properties"]) for name, it in described.items()}
    assert arguments == {
        "edit_file": {"path", "old", "new", "count"},
        "list_files": {"path", "glob", "max"},
        "python": {"code"},
        "read_file": {"path", "start_line", "max_lines"},
        "script": {"text", "interpreter", "args"},
        "search": {"pattern", "path", "glob", "max"},
        "shell": {"argv", "cwd", "stdin", "env"},
        "write_file": {"path", "text"},
    }
    for it in described.values():
        assert it.description
        assert it.schema["additionalProperties"] is False
        json.dumps(it.schema)


def test_the_misbehaving_tools_come_only_when_they_are_asked_for() -> None:
    registry = builtin_registry()
    assert not [name for name in registry.names() if name.startswith("chaos")]
    registry.load_module("toolworkers.chaos")
    assert "chaos_spin" in registry.names()


def test_the_builtins_load_no_loop_and_no_daemon() -> None:
    heavy = ("trio", "anyio", "asyncio", "click", "rich", "psutil", "supervisor", "tempfile", "shutil")
    program = (
        "import sys; from toolworkers._registry import builtin_registry; builtin_registry();"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["{path}"], "after_kill.argv\\[0\\] must be the literal name of a program"),
        (["docker", "kill", "{nam}"], "{nam}, which is no argument of read_file; there are: path"),
        (["docker", "{"], "a brace that is no placeholder"),
    ],
)
def test_a_command_after_a_kill_that_could_never_run_is_refused_at_the_start(argv: list[str], said: str) -> None:
    registry = builtin_registry()
    with pytest.raises(RegistryError, match=said):
        registry.override("read_file", {"after_kill": {"argv": argv}})


def test_a_command_after_a_kill_takes_the_calls_arguments_and_none_of_them_as_an_option() -> None:
    registry = builtin_registry()
    registry.override("read_file", {"after_kill": {"argv": ["docker", "kill", "{path}"]}})
    read_file = registry.get("read_file")
    assert read_file is not None
    hook = hook_of(read_file)
    assert hook.call(hook.decode('{"path": "x y"}'), NOWHERE).argv == ["docker", "kill", "x y"]
    with pytest.raises(InvalidArguments, match="would be read as an option of docker"):
        hook.call(hook.decode('{"path": "--all"}'), NOWHERE)
    assert hook.contract.kind == "command"
    assert read_file.contract.kind == "python"


def test_a_role_of_no_argument_is_refused_whoever_declares_it() -> None:
    @tool(roles={"pth": "path"})
    def reads(path: str) -> str:
        return path

    registry = Registry()
    with pytest.raises(
        RegistryError, match=r"tool\.reads: roles has 'pth', which is no argument of reads; there are: path"
    ):
        registry.add_module(_module("m", reads=reads))
    with pytest.raises(RegistryError, match=r"tool\.say: roles has 'y'"):
        registry.add_command_template(
            "say", {"argv": ["echo", "{x}"], "arguments": {"x": "str"}, "roles": {"y": "path"}}
        )
    registry.add_module(_module("m", one=one))
    with pytest.raises(RegistryError, match=r"tool\.one: roles has 'x', which is no argument of one; there are: none"):
        registry.override("one", {"roles": {"x": "path"}})
    assert registry.names() == ["one"]


def test_roles_come_from_the_decorator_from_a_template_and_from_the_configuration() -> None:
    @tool(roles={"path": "path"}, scrub=["in *s"])
    def reads(path: str, tags: list[str]) -> str:
        return path

    registry = Registry()
    registry.add_module(_module("m", reads=reads))
    registry.add_command_template(
        "say", {"argv": ["echo", "{x}"], "arguments": {"x": "str"}, "roles": {"x": "command"}}
    )
    told = {described.name: described.contract for described in registry.describe()}
    assert (told["reads"].roles, told["reads"].scrub) == ({"path": "path"}, ("in *s",))
    assert told["say"].roles == {"x": "command"}
    registry.override("reads", {"roles": {"tags": "set"}})
    assert registry.describe()[0].contract.roles == {"tags": "set"}


def test_the_builtins_say_which_of_their_arguments_are_paths() -> None:
    roles = {described.name: described.contract.roles for described in builtin_registry().describe()}
    files = {"edit_file", "list_files", "read_file", "search", "write_file"}
    assert {name for name, said in roles.items() if said == {"path": "path"}} == files
    assert {name: said for name, said in roles.items() if name not in files} == {
        "python": {},
        "script": {},
        "shell": {"cwd": "path"},
    }
