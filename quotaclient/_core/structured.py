"""The part of Structured Fields (RFC 9651) in which RateLimit and RateLimit-Policy are written.

A list of items, each a string, a token or a number, with parameters that are whole numbers, strings
or tokens. A field that is anything else is no such list: None.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST_LIST = 4_096  # characters

_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_TOKEN = r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*"
_NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]{1,3})?"
_BYTES = r":[A-Za-z0-9+/=]*:"
_VALUE = rf"{_STRING}|{_TOKEN}|{_NUMBER}|{_BYTES}"
_KEY = r"[a-z*][a-z0-9_.*-]*"
_PARAMETER = re.compile(rf"[ ]*;[ ]*({_KEY})(?:=({_VALUE}|\?[01]))?")
_ITEM = re.compile(_VALUE)
_COMMA = re.compile(r"[ \t]*,[ \t]*")

Parameters = dict[str, str]
"""Parameters as they are written: a string with its quotes, a number without."""


class Item(NamedTuple):
    """One member of a list: its text, without quotes, and what is said of it."""

    name: str
    parameters: Parameters


def items(text: str) -> list[Item] | None:
    """The members of a list, in order."""
    if len(text) > LONGEST_LIST:
        return None
    found: list[Item] = []
    place = 0
    while True:
        item = _ITEM.match(text, place)
        if item is None:
            return None
        place, parameters = item.end(), Parameters()
        while (parameter := _PARAMETER.match(text, place)) is not None:
            parameters[parameter[1]] = parameter[2] or "?1"
            place = parameter.end()
        found.append(Item(_unquoted(item[0]), parameters))
        if place == len(text):
            return found
        comma = _COMMA.match(text, place)
        if comma is None:
            return None
        place = comma.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def whole(parameters: Parameters, name: str) -> int | None:
    """A parameter that is a whole number of at least 0."""
    value = parameters.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else None
