"""Globs on paths."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import InvalidArguments
from toolworkers.builtin._globs import glob_matcher


@pytest.mark.parametrize(
    ("glob", "fits", "fits_not"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/x"]),
        ("a?.t", ["ab.t", "x/ab.t"], ["a.t", "abc.t"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py", "y/src/a.py"]),
        ("/a.py", ["a.py"], ["b.py"]),
        ("src/**", ["src/a", "src/x/y"], ["srcs/a"]),
        ("**/t.py", ["t.py", "a/t.py", "a/b/t.py"], ["at.py"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("[ab].c", ["a.c", "b.c"], ["c.c"]),
        ("[!ab].c", ["c.c"], ["a.c"]),
        ("[a-c]", ["b"], ["d"]),
        ("[]]", ["]"], ["["]),
        ("[^a]", ["^", "a"], ["b"]),
        ("[a&&b]", ["a", "&", "b"], ["c"]),
        ("[a||b]", ["a", "|", "b"], ["c"]),
        ("[a~~b]", ["a", "~", "b"], ["c"]),
        ("[[a]", ["[", "a"], ["b"]),
        ("[\\a]", ["\\", "a"], ["b"]),
        ("*.{py,txt}", ["a.py", "a.txt"], ["a.md", "a.py,txt"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b", "ac"]),
        ("a,b", ["a,b"], ["a"]),
        ("a+(b)|c^$", ["a+(b)|c^$"], ["aab"]),
        ("\\*", ["*"], ["a"]),
        ("[", ["["], ["a"]),
        (".*", [".a", "x/.a"], ["a"]),
        ("é*", ["éa"], ["e"]),
        ("a\nb", ["a\nb"], ["a"]),
    ],
)
def test_a_glob_fits_what_it_says(glob: str, fits: list[str], fits_not: list[str]) -> None:
    matches = glob_matcher(glob)
    assert [path for path in fits if not matches(path)] == []
    assert [path for path in fits_not if matches(path)] == []


def test_no_glob_fits_everything() -> None:
    assert glob_matcher(None)("any/thing")


@pytest.mark.filterwarnings("error")
@settings(deadline=None)
@given(st.text(st.sampled_from("ab*?[]{}!^-&|~\\/,.")), st.text(st.sampled_from("ab/.")))
def test_any_text_is_a_glob_or_is_refused_as_invalid(glob: str, path: str) -> None:
    with contextlib.suppress(InvalidArguments):
        glob_matcher(glob)(path)


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="*?[]{}\\/,\0"), min_size=1))
def test_a_glob_without_signs_fits_its_own_name_only(name: str) -> None:
    assert glob_matcher(name)(name)
    assert glob_matcher(name)(f"x/{name}")
    assert not glob_matcher(name)(f"{name}x")
