"""The documents against the product: every command line shown parses, every link leads somewhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from deadlined.cli import exec_options
from deadlined.cli.app import app
from toolworkers._registry import builtin_registry

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(deadlined [^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_SEPARATORS = frozenset("();<>|&")


def name_of(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


def prose_of(text: str) -> str:
    return _FENCE.sub("", text)


def commands_in(line: str) -> list[list[str]]:
    """The commands of one shell line, those inside ``$( )`` too, without assignments before them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    for token in lexer:
        if set(token) <= _SEPARATORS:
            commands.append([])
        elif commands[-1] or "=" not in token:
            commands[-1].append(token)
    return [words for words in commands if words]


def shown_commands() -> list[tuple[str, str, list[str]]]:
    """(document, the line, the words) of each ``deadlined …`` in a shell block or in back-ticks."""
    shown = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        lines = [line for language, block in _FENCE.findall(text) if language == "sh" for line in block.splitlines()]
        for line in [*lines, *_INLINE.findall(prose_of(text))]:
            words = [words for words in commands_in(line.replace("…", "ELLIPSIS")) if words[0] == "deadlined"]
            shown += [(name_of(document), line.strip(), one) for one in words]
    return shown


def parse(words: list[str]) -> None:
    """Parse one command line as the product would. Raises what it would say; a bare name only has to exist."""
    if words[1] == "exec":
        if words[2:]:
            exec_options.parse(words[2:])
        return
    command: click.Command = app
    context, rest = click.Context(app), words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        command = found
        context = click.Context(command, info_name=name, parent=context)
    if rest:
        command.make_context(command.name, list(rest), parent=context.parent)


SHOWN = shown_commands()


@pytest.mark.parametrize(("document", "line", "words"), SHOWN, ids=[f"{where}: {line}" for where, line, _ in SHOWN])
def test_every_command_line_shown_parses(document, line, words):
    parse(words)


def test_the_documents_show_every_command():
    mentioned = {words[1] for _, _, words in SHOWN} | {"completion"}
    assert set(app.list_commands(click.Context(app))) <= mentioned


@pytest.mark.parametrize("line", ["deadlined exec --deadline 0 -- true", "deadlined stats", "deadlined ps --verbose"])
def test_a_command_line_that_is_wrong_would_be_noticed(line):
    with pytest.raises((exec_options.UsageError, click.UsageError, AssertionError)):
        parse(commands_in(line)[0])


def test_arguments_shown_for_built_in_tools_fit_them():
    registry, seen = builtin_registry(), 0
    for _, line, words in SHOWN:
        if words[1] == "call" and len(words) > 3 and words[3].startswith("{") and registry.get(words[2]):
            assert registry.get(words[2]).decode(words[3]) is not None, line
            json.loads(words[3])
            seen += 1
    assert seen


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them out of headings, and those that stand there by name."""
    anchors = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE):
        plain = re.sub(r"<[^>]*>|[`*]", "", heading).strip().lower()
        anchors.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return anchors


LINKS = [
    (document, target)
    for document in DOCUMENTS
    for target in _LINK.findall(prose_of(document.read_text(encoding="utf-8")))
    if "://" not in target
]


@pytest.mark.parametrize(("document", "target"), LINKS, ids=[f"{name_of(where)}: {target}" for where, target in LINKS])
def test_every_relative_link_leads_somewhere(document, target):
    path, _, anchor = target.partition("#")
    there = document if not path else (document.parent / path).resolve()
    assert there.exists(), f"{path} does not exist"
    assert there.is_relative_to(REPOSITORY)
    if anchor:
        assert anchor in anchors_of(there.read_text(encoding="utf-8"))


def test_every_make_target_that_is_named_exists():
    targets = re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    known = {name for names in targets for name in names.split()}
    for document in DOCUMENTS:
        named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", document.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= known, name_of(document)


def test_every_decision_is_listed_with_its_title():
    index = (REPOSITORY / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE)
    pages = sorted(page for page in (REPOSITORY / "docs" / "decisions").glob("*.md") if page.name != "README.md")
    titles = [page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(" ") for page in pages]
    assert listed == [(number, page.name, title) for page, (number, _, title) in zip(pages, titles, strict=True)]
