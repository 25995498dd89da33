"""Each weakened build still means something: its text is where it was, and it takes something away."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import REPOSITORY, choose, main, weakened
from tests.mutants.listing import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutants_text_stands_once_in_its_file_and_the_rest_still_compiles(mutant: Mutant) -> None:
    text = (REPOSITORY / mutant.file).read_text(encoding="utf-8")
    compile(weakened(text, mutant), mutant.file, "exec")
    assert all((REPOSITORY / path.partition("::")[0]).exists() for path in mutant.suite.split())


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_sample_is_drawn_by_its_seed() -> None:
    assert choose("", 3, 5) == choose("", 3, 5)
    assert len(choose("", 3, 5)) == 3


def test_words_that_no_mutant_has_are_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["mutants", "--only", "no such words"])
    assert main() == 2
    assert "none has 'no such words'" in capsys.readouterr().err
