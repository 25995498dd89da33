from __future__ import annotations

import msgspec
import pytest

from supervisor.config import ConfigError, load
from supervisor.core.detector_sets import SETS, Levels


@pytest.fixture
def read(tmp_path):
    def read_text(text: str):
        file = tmp_path / "deadlined.toml"
        file.write_text(text)
        return load(str(file))

    return read_text


def test_without_a_table_the_sets_are_the_built_in_ones(read):
    assert read("").detectors == SETS
    assert load(None).detectors == SETS


def test_a_table_changes_what_it_says_of_the_set_of_its_name_or_of_its_base(read):
    sets = read(
        """
        [detectors.strict]
        observe = true
        [detectors.mine]
        base = "production"
        window = 40
        repeat_call = { stop_after = 40 }
        near_duplicate = { warn_after = "none" }
        no_progress = { stop_after = 6, action = "ask" }
        [detectors.plain]
        """
    ).detectors
    assert sets["strict"] == msgspec.structs.replace(SETS["strict"], observe=True)
    assert sets["mine"] == msgspec.structs.replace(
        SETS["production"],
        window=40,
        repeat_call=Levels(10, 20, 40),
        near_duplicate=Levels(),
        no_progress=Levels(stop_after=6),
        no_progress_action="ask",
    )
    assert sets["plain"] == SETS["default"]
    assert sets["default"] == SETS["default"]


@pytest.mark.behaviour("M158")
def test_other_names_of_detectors_are_taken(read):
    config = read("[detectors.a]\ngeneric_repeat = {warn_after = 3}\nglobal_circuit_breaker = {stop_after = 9}\n")
    assert config.detectors["a"].repeat_call.warn_after == 3
    assert config.detectors["a"].breaker.stop_after == 9
    _, sources = config.effective()
    assert sources["detectors.a.repeat_call.warn_after"] == config.file
    assert sources["detectors.a.repeat_call.stop_after"] == "default"


def test_every_set_is_a_profile_and_a_profile_may_name_it(read):
    budgets = read("[detectors.mine]\n[profile.p]\ndetectors = 'mine'\n").budgets
    assert budgets.profiles["mine"].detectors == "mine"
    assert budgets.profiles["p"].detectors == "mine"


def test_effective_values_are_those_a_file_would_give(read):
    values, _ = load(None).effective()
    assert set(values["detectors"]) == set(SETS)
    assert values["detectors"]["qa_readonly"]["no_progress"] == {"stop_after": 2, "action": "ask"}
    lines = [
        f"{key} = "
        + (
            "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
            if isinstance(value, dict)
            else toml(value)
        )
        for key, value in values["detectors"]["qa_readonly"].items()
    ]
    assert read("[detectors.copy]\n" + "\n".join(lines)).detectors["copy"] == SETS["qa_readonly"]


def toml(value: object) -> str:
    return {None: '"none"', True: "true", False: "false"}.get(value, repr(value))


@pytest.mark.case("B103")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("detectors = 1", "detectors = 1 is not allowed; allowed: tables [detectors.NAME]"),
        ("[detectors]\na = 1", "detectors.a = 1 is not allowed; allowed: a table"),
        ("[detectors.'a b']", "detectors.a b: 'a b' is no name for a set"),
        ("[detectors.a]\nrepeat = {}", "detectors.a.repeat is no setting; allowed in detectors.a: "),
        ("[detectors.a]\nbase = 'b'", "detectors.a.base = 'b' is not allowed; allowed: default, strict, demo"),
        ("[detectors.a]\nrepeat_call = 5", "detectors.a.repeat_call = 5 is not allowed"),
        ("[detectors.a]\nrepeat_call = {warn = 5}", "detectors.a.repeat_call.warn is no setting; allowed in"),
        ("[detectors.a]\nbreaker = {warn_after = 5}", "detectors.a.breaker.warn_after is no setting; allowed in"),
        ("[detectors.a]\nrepeat_call = {warn_after = 2.5}", "detectors.a.repeat_call.warn_after = 2.5 is not allowed"),
        ("[detectors.a]\nno_progress = {action = 'kill'}", "no_progress.action = 'kill' is not allowed"),
        ("[detectors.a]\nwindow = 6\ncycle = {stop_after = 5}", "detectors.a: window = 6 is not allowed; allowed: 30"),
        ("[detectors.a]\nrepeat_call = {warn_after = 8}", "detectors.a: repeat_call.warn_after = 8 is not below"),
        (
            "[detectors.a]\nrepeat_call = {}\ngeneric_repeat = {}",
            "detectors.a.generic_repeat is detectors.a.repeat_call by another name; allowed: one of them",
        ),
        ("[detectors.mine]\n[profile.p]\ndetectors = 'other'", "profile.p"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_path(read, text, words):
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert words in str(refused.value)


def test_a_tool_says_in_the_file_what_may_be_polled(read):
    config = read("[tool.read_file]\nrefresh = { max = 5, min_interval_ms = '2s' }\nprogress = 'none'\n")
    assert config.tool["read_file"].contract_fields() == {
        "refresh": {"max": 5, "min_interval_ms": 2_000},
        "progress": None,
    }
