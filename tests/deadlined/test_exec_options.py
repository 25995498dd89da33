"""What may be typed after ``deadlined exec``."""

from __future__ import annotations

import pytest

from deadlined.cli.exec_options import HELP, ISOLATIONS, UsageError, parse
from protocol._contracts import ISOLATION_ORDER


def complaint(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(list(words))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_without_options_the_deadline_is_ten_minutes_and_all_is_inherited() -> None:
    options = parse(["--", "make", "test"])
    assert options.command == ["make", "test"]
    assert (options.deadline_ms, options.term_grace_ms) == (600_000, 0)
    assert (options.isolation, options.min_isolation) == ("contain", None)
    assert (options.cwd, options.stdin, options.max_output, options.environment) == (None, None, None, [])
    assert not options.clean_env
    assert not options.json


def test_every_option_is_read_in_both_spellings() -> None:
    words = "--deadline 5s --term-grace=500ms --isolation guard --min-isolation=contain --cwd /tmp --stdin=-".split()
    words += "--env A=1 --env=B=x=y --clean-env --max-output 64KiB --json".split()
    options = parse([*words, "--", "cmd"])
    assert (options.deadline_ms, options.term_grace_ms, options.max_output) == (5_000, 500, 65_536)
    assert (options.isolation, options.min_isolation) == ("guard", "contain")
    assert (options.cwd, options.stdin) == ("/tmp", "-")
    assert options.environment == [("A", "1"), ("B", "x=y")]
    assert options.clean_env
    assert options.json


def test_what_follows_the_dashes_is_the_commands() -> None:
    assert parse(["--", "cmd", "--deadline", "x", "--", "--help"]).command == ["cmd", "--deadline", "x", "--", "--help"]


def test_the_last_of_a_repeated_option_holds() -> None:
    assert parse(["--deadline", "5s", "--deadline", "7s", "--", "cmd"]).deadline_ms == 7_000


@pytest.mark.parametrize(
    "value", ["0", "-1s", "nan", "abc", "", "1e300", "inf", "5", "0s", "5 s", "5S", "1.s", "½h", "0.0001ms"]
)
def test_a_deadline_that_is_none_says_what_is(value: str) -> None:
    assert "allowed is a positive number with a unit: 250ms, 5s, 2m, 1h" in complaint("--deadline", value, "--", "cmd")


def test_the_ceiling_is_allowed_and_named_when_passed() -> None:
    assert parse(["--deadline", "1h", "--", "cmd"]).deadline_ms == 3_600_000
    assert "at most 1 h" in complaint("--deadline", "3600001ms", "--", "cmd")


def test_a_grace_must_fit_into_the_deadline() -> None:
    assert "shorter than --deadline (5.0 s)" in complaint("--deadline", "5s", "--term-grace", "5s", "--", "cmd")


def test_a_size_that_is_none_says_what_is() -> None:
    assert "allowed is a positive whole number with a unit" in complaint("--max-output", "64k", "--", "cmd")


def test_an_isolation_that_is_none_says_what_is() -> None:
    assert "none | limits | contain | guard | bwrap" in complaint("--isolation", "jail", "--", "cmd")


def test_the_isolations_are_those_of_the_contracts() -> None:
    assert ISOLATIONS == ISOLATION_ORDER


@pytest.mark.parametrize("text", ["A", "=1", ""])
def test_a_variable_needs_a_name_and_a_value(text: str) -> None:
    assert "NAME=VALUE" in complaint("--env", text, "--", "cmd")


@pytest.mark.parametrize("name", ["--cwd", "--stdin"])
def test_a_place_is_not_empty(name: str) -> None:
    assert "may not be empty" in complaint(name, "", "--", "cmd")


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    text = complaint("--timeout", "5s", "--", "cmd")
    assert "'--timeout'" in text
    assert all(name in text for name in ("--deadline", "--json", "--help"))


@pytest.mark.parametrize("word", ["--json=yes", "-d", "--dead"])
def test_flags_take_no_value_and_names_are_not_guessed(word: str) -> None:
    assert "no option" in complaint(word, "--", "cmd")


def test_an_option_without_its_value_says_so() -> None:
    assert complaint("--deadline") == "--deadline needs a value"


def test_a_command_without_dashes_is_told_where_they_go() -> None:
    assert "deadlined exec [OPTIONS] -- make" in complaint("--deadline", "5s", "make", "test")


@pytest.mark.parametrize("words", [[], ["--"], ["--json"]])
def test_no_command_is_told_how_to_write_one(words: list[str]) -> None:
    assert "-- CMD" in complaint(*words)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_given_whatever_else_is_missing(word: str) -> None:
    assert parse([word]).show_help


def test_help_names_every_option_and_shows_an_example() -> None:
    names = "--deadline --term-grace --isolation --min-isolation --cwd --env --clean-env --stdin --max-output --json"
    for name in names.split():
        assert f"  {name} " in HELP
    assert "example: deadlined exec " in HELP
