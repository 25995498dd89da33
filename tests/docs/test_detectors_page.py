"""The page about detectors against the code: every detector, number, set, setting and alias; both ways."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from supervisor.config_detectors import _OTHERS
from supervisor.core import detector_texts
from supervisor.core.attempts import MOST_TALLIES
from supervisor.core.detector_sets import ALIASES, LEAST_WINDOW, MOST_WINDOW, SERVED, SETS, Levels, Settings
from supervisor.core.detectors import _ORDER
from supervisor.core.novelty import MOST_SEEN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "detectors.md").read_text(encoding="utf-8")


def rows(marker: str) -> list[list[str]]:
    """The rows of the first table after a marker, without heading and rule."""
    table = PAGE.split(f"<!-- table {marker} -->", 1)[1].lstrip().split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def levels_in(text: str) -> Levels:
    return Levels(*(None if part == "–" else int(part) for part in re.split(r"\s*/\s*", text)))


def test_the_detectors_are_documented_with_the_numbers_of_the_default_set():
    documented = {row[0].strip("`"): levels_in(row[1]) for row in rows("detectors")}
    assert documented == {name: getattr(SETS["default"], name) for name in SERVED}


def test_the_sets_are_documented_with_all_that_differs():
    documented = {}
    for name, said in rows("sets"):
        changes: dict[str, object] = {}
        for what, value in re.findall(r"`(\w+)`\s*([^,`]*)", said):
            if what == "block_settles":
                changes[what] = True
            elif what == "action":
                changes["no_progress_action"] = value.strip()
            else:
                changes[what] = levels_in(value.strip())
        documented[name.strip("`")] = msgspec.structs.replace(Settings(), **changes)
    assert documented == SETS


def test_the_order_is_the_documented_one():
    said = PAGE.split("among equals the order", 1)[1].split(".\n", 1)[0]
    assert re.findall(r"`(\w+)`", said) == _ORDER


def test_the_settings_are_documented_with_their_defaults():
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows("detector settings")}
    assert documented.pop("each detector") == "as above"
    assert documented.pop("action") == f'"{Settings().no_progress_action}"'
    assert documented == {name: str(getattr(Settings(), name)).lower() for name in _OTHERS}
    assert f"{LEAST_WINDOW} to {MOST_WINDOW}" in PAGE


def test_the_other_names_are_documented():
    said = re.search(r"(`.*) are other names of (.*)\.\n", PAGE)
    assert said is not None
    names, detectors = (re.findall(r"`(\w+)`", part) for part in said.groups())
    assert dict(zip(names, detectors, strict=True)) == ALIASES


def test_the_bounds_are_documented():
    said = re.search(r"bounded: ([\d ]+) calls, ([\d ]+) things seen", PAGE)
    assert said is not None
    assert [int(number.replace(" ", "")) for number in said.groups()] == [MOST_TALLIES, MOST_SEEN]


def test_the_example_of_what_a_model_is_told_is_what_it_is_told():
    quoted = " ".join(line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> "))
    assert quoted == detector_texts.repeat_error("warn", "shell", 3, "c_12")
