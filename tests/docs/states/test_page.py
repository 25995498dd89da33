"""The pages about machines, all of them, and the command that makes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.states.conftest import SCRIPTS, loaded

PAGES = {"make.py": "call.md", "make_run.py": "run.md", "make_turn.py": "turn.md"}


def test_every_page_has_its_script() -> None:
    assert {script.name for script in SCRIPTS.glob("make*.py")} == PAGES.keys()
    assert {page.name for page in SCRIPTS.glob("*.md")} == set(PAGES.values())


@pytest.mark.parametrize("script", PAGES)
def test_the_page_is_what_the_machine_says(script: str) -> None:
    with loaded(script) as make:
        assert SCRIPTS / PAGES[script] == make.PAGE
        assert make.main(["--check"]) == 0, f"run: python docs/states/{script}"


def test_a_page_that_is_not_what_the_machine_says_is_told_and_then_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with loaded("_page.py") as page:
        file = tmp_path / "x.md"
        for stale in (None, "something else"):
            if stale is not None:
                file.write_text(stale)
            assert page.main("make_x.py", file, lambda: "all of it", ["--check"]) == 1
            told = capsys.readouterr().err
            assert told == "x.md is not what the machine says; run: python docs/states/make_x.py\n"
        assert page.main("make_x.py", file, lambda: "all of it", []) == 0
        assert page.main("make_x.py", file, lambda: "all of it", ["--check"]) == 0
        assert file.read_text() == "all of it"
