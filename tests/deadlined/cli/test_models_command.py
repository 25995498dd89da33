"""``deadlined models check``: a table or an object, an exit code, and a sentence for what is no model."""

import json
from pathlib import Path

import pytest

from deadlined.cli.app import main

SCRIPTS = Path(__file__).parents[3] / "examples" / "scripts"


@pytest.fixture
def checked(capsys, monkeypatch):
    for name in ("LLM_MODEL", "LLM_BASE_URL", "LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*words):
        code = main(["models", "check", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.behaviour("M080")
@pytest.mark.parametrize(("script", "exits"), [("check", 0), ("loop", 1)])
def test_the_exit_code_says_whether_everything_fits_and_the_table_what_does(checked, script, exits):
    code, out, _ = checked("--model", f"scripted:{SCRIPTS / script}.toml")
    assert code == exits
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines()[1:]}
    assert rows["usage"] == "ok"
    assert (rows["length"] == "failed") is bool(exits)


def test_the_same_as_an_object(checked, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", f"scripted:{SCRIPTS}/check.toml")
    code, out, _ = checked("--json", "--skip", "usage")
    said = json.loads(out)
    assert (code, said["ok"], said["model"]) == (0, True, f"scripted:{SCRIPTS}/check.toml")
    assert {one["name"]: one["result"] for one in said["checks"]}["usage"] == "skipped"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "LLM_MODEL"),
        (("--model", "x:y"), "openai:NAME"),
        (("--model", "openai:m"), "LLM_API_KEY"),
        (("--model", "scripted:/no/such"), "/no/such"),
        (("--skip", "everything"), "tool_call"),
    ],
)
def test_what_is_no_model_or_no_check_is_one_line_and_exit_2(checked, words, says):
    code, out, err = checked(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1
