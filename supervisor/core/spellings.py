"""How a role spells a text before it is compared: paths and addresses that lead to the same place as one text. Pure.

Only compared: what runs, and what a person approves, are the texts as they came.
"""

from __future__ import annotations

import posixpath
import re

_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/?#@]*@)?(?P<host>\[[^\]/?#@]*\]|[^/?#@:]*)(?::(?P<port>[0-9]*))?"
    r"(?P<rest>(?:[/?][^#]*)?)(?:#.*)?",
    re.DOTALL,
)
_DEFAULT_PORTS = {"http": "80", "ws": "80", "https": "443", "wss": "443", "ftp": "21"}


def rooted(path: str, cwd: str, home: str) -> str:
    """A path from the root, with everything else as it was: ``~`` is ``home``, a relative one starts in ``cwd``.

    An empty ``home`` or ``cwd`` is not known: then ``~``, or the path, stays. So does ``~name``, another user's.
    """
    if path == "~" or path.startswith("~/"):
        return home + path[1:] if home else path
    return path if path.startswith("~") or not path else posixpath.join(cwd, path)


def spelled_path(path: str, cwd: str, home: str) -> str:
    """A path without ``.``, ``..`` and doubled or trailing slashes. Lexically: links are not looked at."""
    full = posixpath.normpath(rooted(path, cwd, home)) if path else path
    return full[1:] if full.startswith("//") else full


def spelled_address(url: str) -> str:
    """A URL with its scheme and host in lower case, without fragment, default port, and the slash that stands alone
    (RFC 3986, 6.2.2.1 and 6.2.3). What is no URL with a host stays as it is."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return url
    scheme, port, rest = found["scheme"].lower(), found["port"], found["rest"]
    host = found["host"].lower() if found["host"].isascii() else found["host"]
    known = _DEFAULT_PORTS.get(scheme)
    if known is not None and not rest.startswith("/"):
        rest = "/" + rest
    shown = "" if not port or port == known else f":{port}"
    return f"{scheme}://{found['user'] or ''}{host}{shown}{rest}"
