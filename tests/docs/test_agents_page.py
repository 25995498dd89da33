"""docs/agents.md against the code: every option of the command, every setting, what the examples are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from deadlined.cli.agent import agent_command
from supervisor.config_agent import AgentSettings, read_agent
from supervisor.config_tables import ConfigError
from supervisor.core.context import LAST
from supervisor.core.conversation import FOLD_AFTER
from supervisor.core.plan import MOST_CLAIMS, MOST_REVISIONS, MOST_STEPS
from supervisor.core.retry import DEFAULT
from supervisor.core.run_wishes import MOST_CHECKS, MOST_NOTES, MOST_TEXT
from supervisor.hosting import MOST_AGENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())
WORDS = {2: "twice", 3: "three", 8: "eight"}


def test_every_option_of_the_command_is_on_the_page() -> None:
    options = {name for one in agent_command.params if isinstance(one, click.Option) for name in one.opts}
    assert {name for name in options if f"`{name}" not in PAGE} == {"--socket"}


def test_every_setting_is_shown_and_those_with_a_number_by_their_default() -> None:
    [block] = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    table = tomllib.loads(block)["agent"]
    assert set(table) == set(AgentSettings.__struct_fields__)
    read, default = read_agent(table), AgentSettings()
    assert (read.max_out, read.last) == (default.max_out, default.last)


@pytest.mark.parametrize(
    ("setting", "least", "most"), [("max_out", 1, 1_000_000), ("last", 4, 1_000), ("system", 0, 16_000)]
)
def test_the_bounds_of_every_setting_are_those_that_are_read(setting: str, least: int, most: int) -> None:
    said = f"`{setting}` at most {most} characters" if setting == "system" else f"{least} to {most}"
    assert said in FLAT
    values = [("x" * number if setting == "system" else number) for number in (least, most, most + 1)]
    for value in values[:2]:
        assert getattr(read_agent({setting: value}), setting) == value
    with pytest.raises(ConfigError):
        read_agent({setting: values[2]})


@pytest.mark.parametrize(
    "said",
    [
        f"at most {MOST_STEPS}, with the tools that change nothing",
        f"claimed {WORDS[MOST_CLAIMS]} times",
        f"can change, {WORDS[MOST_REVISIONS]} times",
        f"when {WORDS[FOLD_AFTER]} later ones are finished",
        f"the latest {LAST} messages",
        f"at most {WORDS[DEFAULT.retries]}, after {DEFAULT.base_ms} ms and then {2 * DEFAULT.base_ms} ms",
        f"something between {DEFAULT.jitter_low} and {DEFAULT.jitter_high}",
        f"steers {MOST_AGENTS} agents at once",
        f"has at most {MOST_TEXT} characters, and {MOST_CHECKS} constraints of at most {MOST_TEXT} each",
        f"at most {MOST_NOTES} characters are kept for a later life",
    ],
)
def test_the_numbers_of_the_page_are_those_of_the_code(said: str) -> None:
    assert said in FLAT
