"""The options of ``deadlined exec``, read by hand: a parser library would double the time that the command takes.

Owns what may be typed. Leaves to `exec` what it means on this host. No I/O.
"""

from __future__ import annotations

from protocol._deadlines import CEILING_MS, EXEC_DEFAULT_MS
from protocol._errors import QuantityError
from protocol._quantities import parse_duration_ms, parse_size_bytes, say_duration

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ISOLATIONS = ("none", "limits", "contain", "guard", "bwrap")
"""Weakest first, as `protocol._contracts.ISOLATION_ORDER`, which costs msgspec."""
HELP = """\
usage: deadlined exec [OPTIONS] -- CMD [ARG…]

Run one command and really end it at the deadline: every process it has started, confirmed by the kernel.
No daemon is needed. Environment, HOME, working directory, stdin, stdout and stderr are yours.

  --deadline D          end it D after the start (10m; at most 1h): 250ms, 5s, 2m, 1h
  --term-grace D        SIGTERM so long before the deadline (none); what then ends is ended by the deadline
  --isolation L         none | limits | contain | guard | bwrap (contain); the result says what was reached
  --min-isolation L     fail (125) where this cannot be had
  --cwd DIR             working directory of the command
  --env NAME=VALUE      set a variable; may be given more than once
  --clean-env           only PATH, HOME, LANG, LC_*, TZ, TERM, SHELL, USER, LOGNAME, TMPDIR, and those that tell
                        programs to ask nobody (GIT_TERMINAL_PROMPT=0 and the like) and to buffer nothing
  --stdin FILE          standard input from a file; - is yours (as without the option)
  --max-output SIZE     end it when it writes more: 64KiB, 8MiB; its output is then shown at the end, not live
  --json                one result object instead of the output, which is captured (64MiB unless --max-output)
  --help                this text

Exit: the command's own · 124 the deadline ended it · 1 it wrote more than --max-output · 125 deadlined failed ·
      126 found but cannot be run · 127 not found · 128+n ended by signal n · 2 wrong options

example: deadlined exec --deadline 5s --term-grace 500ms -- make test
"""


class UsageError(Exception):
    """What was typed is not allowed; the text is one line that says what is."""


class ExecOptions:
    """What was asked for. Budgets in milliseconds, sizes in bytes; ``stdin`` None: the caller's."""

    __slots__ = (
        "clean_env",
        "command",
        "cwd",
        "deadline_ms",
        "environment",
        "isolation",
        "json",
        "max_output",
        "min_isolation",
        "show_help",
        "stdin",
        "term_grace_ms",
    )

    def __init__(self) -> None:
        self.deadline_ms = EXEC_DEFAULT_MS
        self.term_grace_ms = 0
        self.isolation = "contain"
        self.min_isolation: str | None = None
        self.cwd: str | None = None
        self.environment: list[tuple[str, str]] = []
        self.stdin: str | None = None
        self.max_output: int | None = None
        self.clean_env = self.json = self.show_help = False
        self.command: list[str] = []


def parse(words: list[str]) -> ExecOptions:
    """The options in the words after ``exec``. Raises UsageError; the last of a repeated option holds."""
    options = ExecOptions()
    rest = iter(words)
    for word in rest:
        if word == "--":
            options.command = list(rest)
            break
        if word in ("--help", "-h"):
            options.show_help = True
            return options
        _take(options, word, rest)
    _judge(options)
    return options


def _take(options: ExecOptions, word: str, rest: Any) -> None:
    name, equals, value = word.partition("=")
    if name in _FLAGS and not equals:
        setattr(options, _FLAGS[name], True)
        return
    if name not in _VALUES:
        raise UsageError(_unknown(word))
    attribute, read = _VALUES[name]
    typed = value if equals else next(rest, None)
    if typed is None:
        raise UsageError(f"{name} needs a value")
    try:
        read_value = read(typed)
    except QuantityError as error:
        raise UsageError(f"{name}: {error}") from error
    if attribute == "environment":
        options.environment.append(read_value)
    else:
        setattr(options, attribute, read_value)


def _unknown(word: str) -> str:
    if word.startswith("-") and word != "-":
        return f"no option {word!r}; there are {' '.join(sorted([*_FLAGS, *_VALUES, '--help']))}"
    return f"{word!r} stands before '--'; write: deadlined exec [OPTIONS] -- {word} …"


def _judge(options: ExecOptions) -> None:
    if options.deadline_ms > CEILING_MS:
        raise UsageError(f"--deadline: at most {say_duration(CEILING_MS)} is allowed")
    if options.term_grace_ms >= options.deadline_ms:
        raise UsageError(f"--term-grace: must be shorter than --deadline ({say_duration(options.deadline_ms)})")
    if not options.command:
        raise UsageError("no command; write: deadlined exec [OPTIONS] -- CMD [ARG…]")


def _isolation(text: str) -> str:
    if text not in ISOLATIONS:
        raise QuantityError(f"{text!r} is no isolation; allowed is {' | '.join(ISOLATIONS)}")
    return text


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise QuantityError(f"{text!r} is not NAME=VALUE")
    return name, value


def _text(text: str) -> str:
    if not text:
        raise QuantityError("may not be empty")
    return text


_FLAGS = {"--clean-env": "clean_env", "--json": "json"}
_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--deadline": ("deadline_ms", parse_duration_ms),
    "--term-grace": ("term_grace_ms", parse_duration_ms),
    "--isolation": ("isolation", _isolation),
    "--min-isolation": ("min_isolation", _isolation),
    "--cwd": ("cwd", _text),
    "--env": ("environment", _variable),
    "--stdin": ("stdin", _text),
    "--max-output": ("max_output", parse_size_bytes),
}
