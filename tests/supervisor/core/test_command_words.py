"""Shell commands as words, judged by real shells: what counts as one command is one to them, and only that."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from supervisor.core.command_words import LONGEST, trimmed, words_of

MARKS = "ab=é\u00a0'\"\\ \t\n#~-"
COMPLEX = "$`*?[]{}!&|;<>()\0"
PIECES = ["a", "b", "$a", "'", '"', "\\", " ", "\t", "\n", "#", ";", "|", "<<a", "<<'b '"]
NO_BUILTIN = st.sampled_from(["if", "do", "in", "time", "a", "b", "'if'", "\\if", "a=b", "'a'=b", "a'='b", "=a"])
SIMPLE = st.builds(lambda first, rest: first + rest, st.just("") | NO_BUILTIN, st.text(MARKS, max_size=12))
BASH = r"""
command_not_found_handle() { printf '%s\0' "$@"; }
for text in "$@"; do printf '\1'; (eval -- "$text") 2>/dev/null; done; :
"""
DASH = r"""
probe() { for word; do printf '%s\0' "$word"; done; }
for text in "$@"; do printf '\1'; (eval "probe $text") 2>/dev/null; done; :
"""
IN_SHELLS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def said(shell: list[str], script: str, texts: list[str], directory: object) -> list[list[str]]:
    """The words of the commands that a shell found in each text; nothing is ever found to run."""
    output = subprocess.run(
        [*shell, "-c", script, "shell", *texts],
        capture_output=True,
        check=True,
        cwd=str(directory),
        env={"PATH": "/nowhere", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
    ).stdout
    return [one.decode().split("\0")[:-1] for one in output.split(b"\1")[1:]]


@IN_SHELLS
@given(st.lists(SIMPLE, min_size=1, max_size=40))
def test_bash_runs_exactly_the_words_that_were_read(tmp_path, texts):
    read = {text: words for text in texts if (words := words_of(text)) is not None}
    assume(read)
    assert said(["/bin/bash", "--norc"], BASH, list(read), tmp_path) == list(read.values())


@IN_SHELLS
@given(st.lists(SIMPLE, min_size=1, max_size=40))
def test_a_posix_shell_splits_into_exactly_the_words_that_were_read(tmp_path, texts):
    read = {text: words for text in texts if (words := words_of(text)) is not None and text == text.lstrip("\\\n\t ")}
    assume(read)
    assert said(["/bin/sh"], DASH, list(read), tmp_path) == list(read.values())


@IN_SHELLS
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=10).map("".join), min_size=1, max_size=40))
def test_a_shell_does_the_same_with_a_text_that_was_trimmed(tmp_path, texts):
    assert said(["/bin/bash", "--norc"], BASH, texts, tmp_path) == said(
        ["/bin/bash", "--norc"], BASH, [trimmed(text) for text in texts], tmp_path
    )


def single(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def double(word: str) -> str:
    return '"' + "".join("\\" + one if one in '\\"' else one for one in word) + '"'


def escaped(word: str) -> str:
    return "".join(one if one == "\n" else "\\" + one for one in word)


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\n$`!"), min_size=1, max_size=6)


@given(st.lists(st.tuples(WORD, st.sampled_from([single, double, escaped]), st.sampled_from([" ", "\t ", " \\\n"]))))
def test_the_same_words_are_read_however_they_are_quoted(written):
    text = "".join(quote(word) + blank for word, quote, blank in written)
    assert words_of(text) == [word for word, _, _ in written]


@given(st.text(MARKS, max_size=12), st.sampled_from(COMPLEX), st.text("ab ", max_size=6))
def test_what_a_shell_acts_on_outside_quotes_is_never_words(before, sign, after):
    assume(words_of(before) is not None)
    assert words_of(before + sign + after) is None


@pytest.mark.parametrize("sign", sorted("$`!\0"))
def test_what_a_shell_acts_on_in_double_quotes_is_never_words(sign):
    assert words_of(f'a "{sign}b"') is None


@pytest.mark.parametrize("sign", sorted(set(COMPLEX + "#~=\n") - {"\0"}))
def test_in_single_quotes_every_sign_is_itself(sign):
    assert words_of(f"a '{sign}b'") == ["a", f"{sign}b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n\t ", []),
        ("\n ls \n", ["ls"]),
        ("ls\\\n -l", ["ls", "-l"]),
        ("l\\\ns", ["ls"]),
        ('"a\\\nb"', ["ab"]),
        ("'a\\\nb'", ["a\\\nb"]),
        ("'' a", ["", "a"]),
        ('a ""', ["a", ""]),
        ('"a\\c\\"\\\\"', ['a\\c"\\']),
        ("a#b ''#c", ["a#b", "#c"]),
        ("a b=c", ["a", "b=c"]),
        ("env A=b c", ["env", "A=b", "c"]),
        ("A\\=b c", ["A=b", "c"]),
        ("'if' a", ["if", "a"]),
        ("a if", ["a", "if"]),
        ("a\u00a0b\u2003c\r\vd\fe", ["a\u00a0b\u2003c\r\vd\fe"]),
        ("A=b c", None),
        ("a+=b", None),
        ("if a", None),
        ("i\\\nf a", None),
        ("time ls", None),
        ("a\nb", None),
        ("a #b", None),
        ("a \\\n#b", None),
        ("#a", None),
        ("a 'b", None),
        ('a "b', None),
        ("a \\", None),
        ("'a\0'", None),
        ("a" * (LONGEST + 1), None),
    ],
)
def test_words_of_a_text(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (" a; b \n", "a; b"),
        ("a; b \\ ", "a; b \\ "),
        ("cat <<'E '\n$x\nE \n", "cat <<'E '\n$x\nE \n"),
        ("a\u00a0; ", "a\u00a0;"),
    ],
)
def test_blanks_at_the_ends_go_where_a_shell_does_not_see_them(text, short):
    assert trimmed(text) == short
