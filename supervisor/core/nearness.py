"""Whether two calls ask nearly the same. Owns which words of an argument text count, and how alike is alike.

What a reworded request keeps is its words; what it changes is their order, their endings, the small words between. A
number is different: another page, line or id is another place, so texts whose numbers differ are never near.
"""

from __future__ import annotations

import re

NEAR = 0.9
MOST_CHARACTERS = 2_048
MOST_WORDS = 64
_SCRIPTS_WITHOUT_SPACES = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # a word there is a sign, as far as can be told
_WORD = re.compile(rf"[{_SCRIPTS_WITHOUT_SPACES}]|[^\W{_SCRIPTS_WITHOUT_SPACES}]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")
_SMALL = frozenset("a an and are as at by for from how in is it of on or please that the this to was what with".split())

Words = frozenset[str]


def words(text: str) -> Words:
    """The words of a call's arguments (their JSON text) that are compared. Empty, and so near to nothing, for a text of
    more than ``MOST_CHARACTERS`` or ``MOST_WORDS``: its beginning alone would say too little."""
    if len(text) > MOST_CHARACTERS:
        return frozenset()
    if "\\" in text:  # as many encoders write what is not ASCII
        text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else " ", text)
    found = frozenset(_plain(word) for word in set(_WORD.findall(text.casefold())))
    return frozenset() if len(found) > MOST_WORDS else found - _SMALL


def is_near(one: Words, other: Words) -> bool:
    """Whether twice the common words are at least ``NEAR`` of all, and no number is one of one text alone."""
    return 2 * len(one & other) >= NEAR * (len(one) + len(other)) > 0 and not any(map(_has_digit, one ^ other))


def _plain(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _has_digit(word: str) -> bool:
    return any(character.isdigit() for character in word)
