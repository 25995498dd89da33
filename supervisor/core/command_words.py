"""A shell command as its words, where a shell would do nothing but take the quotes off. Pure.

Rules (POSIX sh; what bash adds makes a command complex)
1. The text is read once from the left, quote by quote: '…' is literal; in "…" and outside a backslash escapes as in sh;
   backslash and line end are nothing at all. Words end at blanks and tabs, and at no other space that Unicode has.
2. Complex is what expands, globs, redirects, joins, assigns or comments: outside quotes ``$ ` * ? [ ] ~ { } ! & | ; < >
   ( )``, a line end between words, ``#`` at the beginning of a word, ``=`` in the first word, a reserved word as the
   first; in "…" any of ``$ ` !``; anywhere NUL, a quote that stays open, a backslash at the end.
3. A complex command has no words: it is compared as a text without the blanks at its ends, where a shell would not see
   those either, and otherwise byte for byte. So is a command of more than 4 096 characters: the work stays bounded.
"""

from __future__ import annotations

import re

LONGEST = 4_096
"""Characters of a command that is read at all."""
_BLANKS = " \t\n"
_RESERVED = frozenset("if then else elif fi do done case esac while until for in function select time coproc".split())
_MEANT = r"""\\'"$`*?\[\]~{}!&|;<>()\0"""
"""What is more than itself outside quotes, wherever it stands."""
_DOUBLE = r"""(?:[^"\\$`!\0]++|\\[^\0])*+"""
_WORD = re.compile(rf"(?!#)((?:[^ \t\n{_MEANT}]++|'[^'\0]*'|\"{_DOUBLE}\"|\\[^\0])++)(?:[ \t]|\\\n)*+")
_MARKS = re.compile(r"[\\'\"]")
_NOTHING = re.compile(r"(?:[ \t\n]|\\\n)*+")
_QUOTED = re.compile(rf"'([^']*)'|\"({_DOUBLE})\"|\\([^\n])|\\\n")
_ESCAPED_IN_DOUBLE = re.compile(r"\\([$`\"\\\n])")


def words_of(text: str) -> list[str] | None:
    """The words of a simple command, quotes taken off; None for a complex one (rule 2)."""
    if len(text) > LONGEST:
        return None
    at, written = _end(_NOTHING.match(text)), []
    while found := _WORD.match(text, at):
        written.append(found[1])
        at = found.end()
    if not _NOTHING.fullmatch(text, at) or (written and _is_no_name(written[0])):
        return None
    return [_unquoted(word) for word in written]


def trimmed(text: str) -> str:
    """A complex command without the blanks that mean nothing to a shell.

    At its end they may be escaped, or belong to a here-document: then they stay.
    """
    text = text.lstrip(_BLANKS)
    bare = text.rstrip(_BLANKS)
    return text if bare.endswith("\\") or "<<" in bare else bare


def _end(found: re.Match[str] | None) -> int:
    return found.end() if found else 0


def _is_no_name(word: str) -> bool:
    """Whether a first word is read before commands are: an assignment, or a word of the language, none of it quoted."""
    return "=" in _QUOTED.sub("", word) or word.replace("\\\n", "") in _RESERVED


def _unquoted(word: str) -> str:
    return _QUOTED.sub(_literal, word) if _MARKS.search(word) else word


def _literal(found: re.Match[str]) -> str:
    single, double, escaped = found.groups()
    return _ESCAPED_IN_DOUBLE.sub(_of_double, double) if double is not None else single or escaped or ""


def _of_double(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]
