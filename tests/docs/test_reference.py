"""The reference tables and examples against the code: keys, defaults, fields, exit codes, tools; both ways."""

from __future__ import annotations

import re
import tomllib
import types
import typing
from pathlib import Path

import msgspec
import pytest

from protocol import Contract, Limits, exit_code
from protocol._contracts import CONTAINMENT_ORDER
from protocol._outcomes import Reason, Status
from supervisor import config_tools
from supervisor.config import DaemonSettings, load
from supervisor.config_policy import ApprovalSettings
from supervisor.core.policy import Action, Rule
from supervisor.core.quarantine import QuarantineSettings
from supervisor.core.respawn import RespawnSettings
from supervisor.observe.alerts import AlertSettings
from supervisor.observe.metrics import Metrics
from toolworkers._registry import Registry, builtin_registry
from toolworkers._world import ROOT_CAPABILITIES

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
TOOLS = (REPOSITORY / "docs" / "tools.md").read_text(encoding="utf-8")
PLACES = {"socket", "state_dir"}
"""Whose defaults depend on who asks; the document says how."""


def table_after(text: str, marker: str) -> list[list[str]]:
    """The rows of the first table after a line, without heading and rule."""
    rows = []
    for line in text.split(marker, 1)[1].lstrip().splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
        elif rows:
            break
    return rows[2:]


def defaults_after(text: str, marker: str) -> dict[str, str]:
    """Key → default, both without back-ticks."""
    return {row[0].strip("`"): row[1].strip("`") for row in table_after(text, marker)}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def loaded(tmp_path):
    def load_text(text: str):
        file = tmp_path / "deadlined.toml"
        file.write_text(text)
        return load(str(file))

    return load_text


def test_every_daemon_key_is_documented_with_its_default(loaded):
    documented = defaults_after(OPERATIONS, "<!-- table daemon -->")
    assert set(documented) == set(DaemonSettings.__struct_fields__)
    lines = "\n".join(f"{key} = {value}" for key, value in documented.items() if key not in PLACES)
    assert loaded(f"[daemon]\n{lines}").daemon == DaemonSettings()


def test_every_limit_is_documented_with_its_default(loaded):
    documented = defaults_after(OPERATIONS, "<!-- table limits -->")
    assert set(documented) == set(Limits.__struct_fields__)
    lines = "\n".join(f"{key} = {value}" for key, value in documented.items())
    assert loaded(f"[limits]\n{lines}").limits == Limits()


@pytest.mark.parametrize(
    ("table", "kind"),
    [("quarantine", QuarantineSettings), ("restart", RespawnSettings), ("approval", ApprovalSettings)],
)
def test_every_setting_of_a_machine_is_documented_with_its_default(table, kind, loaded):
    documented = defaults_after(OPERATIONS, f"<!-- table {table} -->")
    assert list(documented) == list(kind.__struct_fields__)
    lines = "\n".join(f"{key} = {value}" for key, value in documented.items())
    assert getattr(loaded(f"[{table}]\n{lines}"), table) == kind()


def test_every_key_of_a_rule_is_documented_with_its_default():
    documented = defaults_after(OPERATIONS, "<!-- table policy -->")
    plain = msgspec.to_builtins(Rule("t", Action.ALLOW))
    said = {key: tomllib.loads(f"x = {value}")["x"] for key, value in documented.items() if value != "required"}
    assert list(documented) == list(Rule.__struct_fields__)
    assert plain | said == plain


def test_every_contract_field_is_documented_with_its_default():
    documented = defaults_after(TOOLS, "<!-- contract fields -->")
    assert set(documented) == set(Contract.__struct_fields__) - {"kind"}
    said = {key: None if value == "none" else tomllib.loads(f"x = {value}")["x"] for key, value in documented.items()}
    plain = msgspec.json.decode(msgspec.json.encode(Contract()))
    assert {"kind": "python", **said} == plain


def test_every_other_key_of_a_tool_is_documented():
    documented = {row[0].strip("`"): row[1].strip("`") for row in table_after(OPERATIONS, "<!-- table tool -->")}
    assert documented.pop("the fields of a contract") == "any"
    of_commands = dict.fromkeys(config_tools._COMMAND_KINDS, "command")
    of_modules = dict.fromkeys(config_tools._PYTHON_KINDS, "python")
    assert documented == {"kind": "–", **of_commands, **of_modules}


def test_the_keys_of_later_versions_are_named():
    said = TOOLS.split("Fields of later versions (", 1)[1].split(")", 1)[0]
    assert sorted(re.findall(r"`(\w+)`", said)) == sorted(config_tools._NOT_SERVED)


def test_every_metric_is_documented_with_its_labels():
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = table_after(page, "## What is counted")
    documented = [(row[0].strip("`"), tuple(re.findall(r"`(\w+)`", row[1]))) for row in rows]
    assert documented == [(one.name, one.labels) for one in Metrics(bool, AlertSettings()).snapshots()]


def test_exit_codes_are_those_of_the_product():
    documented = {}
    for code, statuses in ((row[0], row[1]) for row in table_after(OPERATIONS, "<!-- table exit codes -->")):
        documented |= dict.fromkeys(re.findall(r"`(\w+)`", statuses), int(code))
    assert documented.pop("time_budget") == exit_code(Status.KILLED, Reason.TIME_BUDGET)
    assert documented == {str(status): exit_code(status, None) for status in Status}


def test_every_level_is_documented():
    levels = [re.findall(r"`([a-z+]+)`", row[0]) for row in table_after(OPERATIONS, "<!-- table levels -->")]
    assert [one for row in levels for one in row] == list(reversed(CONTAINMENT_ORDER))


def test_the_capabilities_of_root_are_those_that_are_kept():
    said = OPERATIONS.split("without mknod", 1)[1].split("(", 1)[1].split(")", 1)[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(ROOT_CAPABILITIES)


def test_the_built_in_tools_are_documented_with_their_arguments():
    documented = {}
    for name, arguments, _ in table_after(TOOLS, "## Built-in tools"):
        documented[name.strip("`")] = {word.strip("`") for word in re.findall(r"`(?:\w+\??)`", arguments)}
    for name, arguments in documented.items():
        if name == "script":
            documented[name] = arguments - {"sh", "bash", "python3", "node"}
    served = {}
    for one in builtin_registry():
        required = set(one.schema.get("required", ()))
        served[one.name] = {key if key in required else f"{key}?" for key in one.schema["properties"]}
    assert documented == served


def examples(language: str) -> list[tuple[str, str]]:
    return [
        (f"{document.name}-{number}", block)
        for document in DOCUMENTS
        for number, block in enumerate(blocks(document.read_text(encoding="utf-8"), language))
    ]


@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in examples("toml")])
def test_every_configuration_shown_loads_and_its_templates_are_good(block, loaded):
    config = loaded(block)
    registry = Registry()
    for name, table in config.tool.items():
        if table.kind == "command":
            registry.add_command_template(name, table.command_table())
        if table.kind is None:
            builtin_registry().override(name, table.contract_fields())


@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in examples("python")])
def test_every_python_shown_compiles_and_its_tools_register(block):
    code = compile(block, "the document", "exec")
    if "@tool" in block or "@command" in block:
        module = types.ModuleType("shown")
        exec(code, vars(module))
        registry = Registry()
        registry.add_module(module)
        assert len(registry) == block.count("\n@")


def test_types_that_a_template_may_declare_are_those_documented():
    from toolworkers._templates import Argument

    kinds = typing.get_args(typing.get_type_hints(Argument)["type"])
    section = TOOLS.split("## Command templates", 1)[1].split("## Contract", 1)[0]
    assert all(f"`{kind}`" in section for kind in kinds)
    assert all(f"`{field}`" in section for field in Argument.__struct_fields__)
