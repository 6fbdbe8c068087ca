"""Where a path of a command leads: into the project (and what is nobody's: /tmp, the null device), or outside.

A path is only read here, never looked up, so that a link in the project may lead elsewhere without this knowing it:
the sandbox is what holds, not this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from mudroom.core.command.verdict import CommandClass, CommandPart
from mudroom.core.command.word import Word

Where = Literal["inside", "unknown", "outside"]
_RANK: tuple[Where, ...] = ("inside", "unknown", "outside")
SOMEWHERE = b"/\0project"
"""Stands for a project whose path is not told: no path of a command leads into it from the root."""
_NOBODYS = (b"/tmp", b"/var/tmp", b"/dev/shm", b"/dev/fd")
_PLAIN = b"null zero full stdin stdout stderr tty random urandom".split()
_PLAIN_DEVICES = frozenset({b"/dev/" + name for name in _PLAIN})
_CREDENTIAL = re.compile(
    rb"(^|/)\.(ssh|aws|gnupg|azure|kube|docker|netrc|pgpass|git-credentials|npmrc|pypirc|password-store)(/|$)"
    rb"|(^|/)\.config/(gcloud|gh|op)(/|$)|^/etc/(shadow|gshadow|sudoers|ssh/.*key)|(^|/)id_(rsa|ed25519|ecdsa|dsa)$"
    rb"|^/proc/(?!(self|thread-self)/fd(/|$)).*/(environ|mem|root|cwd|fd)(/|$)|^/var/run/docker\.sock|^/run/"
)
_BY_WILDCARD = re.compile(rb"[*?\[{]")


class Scene(NamedTuple):
    """What is known around a command, and how a command inside it is looked at."""

    line: Callable[[bytes, Scene], Sequence[CommandPart]]
    words: Callable[[Sequence[Word], Scene], Sequence[CommandPart]]
    project: bytes = SOMEWHERE
    places: tuple[bytes | None, ...] = (SOMEWHERE,)
    """The directories in which the command may run; None is one that cannot be told."""
    depth: int = 0


class CommandFinding(NamedTuple):
    """What a command turned out to be; ``parts`` are the commands that it starts."""

    classes: tuple[CommandClass, ...]
    reason: str
    parts: tuple[CommandPart, ...] = ()


def normal(path: bytes) -> bytes:
    """An absolute path without ``.``, ``..`` and repeated slashes."""
    found: list[bytes] = []
    for piece in path.split(b"/"):
        if piece == b"..":
            del found[-1:]
        elif piece not in (b"", b"."):
            found.append(piece)
    return b"/" + b"/".join(found)


def _below(path: bytes, directory: bytes) -> bool:
    return path == directory or directory == b"/" or path.startswith(directory + b"/")


def _of_absolute(path: bytes, project: bytes) -> Where:
    path = normal(path)
    if _below(path, project) or path in _PLAIN_DEVICES or any(_below(path, place) for place in _NOBODYS):
        return "inside"
    return "outside"


def _from_one(text: bytes, project: bytes, place: bytes | None) -> Where:
    if text.startswith(b"/"):
        return _of_absolute(text, project)
    return "unknown" if place is None else _of_absolute(place + b"/" + text, project)


def where(word: Word, scene: Scene) -> Where:
    """The worst place to which this word may lead."""
    if word.at_home:
        return "outside"
    text = word.text
    if word.kind == "computed":
        text = word.start
        if not text.startswith(b"/") or text == b"/":
            sure = text.startswith((b"/", b"../"))
            return "outside" if sure else "unknown"
    elif word.kind == "pattern":
        text = _BY_WILDCARD.split(text, maxsplit=1)[0].rpartition(b"/")[0] + b"/"
        text = text if word.text.startswith(b"/") else b"./" + text.lstrip(b"/")
    found = max((_from_one(text, scene.project, place) for place in scene.places), key=_RANK.index)
    return "unknown" if word.kind == "computed" and found == "inside" else found


def moved(word: Word, scene: Scene) -> tuple[bytes | None, ...]:
    """Where a change of directory to this word leads."""
    if word.at_home:
        return (b"/home",)
    if not word.literal or word.text.startswith(b"-"):
        return (None,)
    if word.text.startswith(b"/"):
        return (normal(word.text),)
    found = {None if place is None else normal(place + b"/" + word.text) for place in scene.places}
    return tuple(sorted(found, key=repr))


def names_credentials(word: Word) -> bool:
    """Whether it names a file of keys (``PATH``, ``--file=PATH``, ``@PATH``): one of a home directory or of the system,
    not one of the project."""
    for sign in (b"=", b"@"):
        head, found, _tail = word.text.partition(sign)
        if found and _names_credentials(_behind(word, len(head) + 1)):
            return True
    return _names_credentials(word)


def _names_credentials(word: Word) -> bool:
    text = word.text
    if word.literal and text.startswith(b"/"):
        text = normal(text)
    if word.literal and not text.startswith(b"/"):
        return text.startswith(b"../") and bool(_CREDENTIAL.search(text))
    return (word.at_home or text.startswith(b"/")) and bool(_CREDENTIAL.search(text))


def after_equals(word: Word) -> Word:
    """The path in ``--output=PATH``, ``of=PATH``; another word is its own."""
    head, sign, _value = word.text.partition(b"=")
    cut = len(head) + len(sign)
    return word if not sign or (not word.literal and word.fixed < cut) else _behind(word, cut)


def _behind(word: Word, cut: int) -> Word:
    return Word(word.text[cut:], word.kind, max(0, word.fixed - cut))


def worst(words: Iterable[Word], scene: Scene) -> Where:
    return max((where(after_equals(word), scene) for word in words), key=_RANK.index, default="inside")


def written(words: Iterable[Word], scene: Scene) -> tuple[tuple[CommandClass, ...], str]:
    """What writing to these paths adds to a command."""
    place = worst(words, scene)
    if place == "outside":
        return ("host_escape_risk",), "outside the project"
    return (("unknown",), "at a place that cannot be told") if place == "unknown" else ((), "")
