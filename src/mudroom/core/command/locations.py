"""Where a path of a command leads: into the project (or a shared place such as /tmp or the null device), or outside.

Paths are only parsed here and never looked up, so a symlink in the project may lead elsewhere unnoticed. The sandbox is
the boundary, not this check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mudroom.core.command.verdict import CommandClass, CommandPart
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex
from mudroom.typing import Literal, NamedTuple

Where = Literal["inside", "unknown", "outside"]
_RANK: tuple[Where, ...] = ("inside", "unknown", "outside")
SOMEWHERE = b"/\0project"
"""Project path that is used when none is given: no absolute path of a command leads into it."""
_SHARED = (b"/tmp", b"/var/tmp", b"/dev/shm", b"/dev/fd")
_PLAIN = b"null zero full stdin stdout stderr tty random urandom".split()
_PLAIN_DEVICES = frozenset({b"/dev/" + name for name in _PLAIN})
_CREDENTIAL = regex(
    rb"(^|/)\.(ssh|aws|gnupg|azure|kube|docker|netrc|pgpass|git-credentials|npmrc|pypirc|password-store)(/|$)"
    rb"|(^|/)\.config/(gcloud|gh|op)(/|$)|^/etc/(shadow|gshadow|sudoers|ssh/.*key)|(^|/)id_(rsa|ed25519|ecdsa|dsa)$"
    rb"|^/proc/(?!(self|thread-self)/fd(/|$)).*/(environ|mem|root|cwd|fd)(/|$)|^/var/run/docker\.sock|^/run/"
)
_BY_WILDCARD = regex(rb"[*?\[{]")


class CommandContext(NamedTuple):
    """The surroundings of a command, and the functions that classify a command inside it."""

    line: Callable[[bytes, CommandContext], Sequence[CommandPart]]
    words: Callable[[Sequence[Word], CommandContext], Sequence[CommandPart]]
    project: bytes = SOMEWHERE
    places: tuple[bytes | None, ...] = (SOMEWHERE,)
    """Directories in which the command may run; None for one that is not known."""
    depth: int = 0
    program: bytes = b""
    """The program that is judged, with its subcommands: ``git stash list``."""


class CommandFinding(NamedTuple):
    """The classes of a command; ``parts`` are the commands that it starts."""

    classes: tuple[CommandClass, ...]
    reason: str
    parts: tuple[CommandPart, ...] = ()


def normal(path: bytes) -> bytes:
    """Return an absolute path without ``.``, ``..`` and repeated slashes."""
    pieces: list[bytes] = []
    for piece in path.split(b"/"):
        if piece == b"..":
            del pieces[-1:]
        elif piece not in (b"", b"."):
            pieces.append(piece)
    return b"/" + b"/".join(pieces)


def _below(path: bytes, directory: bytes) -> bool:
    return path == directory or directory == b"/" or path.startswith(directory + b"/")


def _of_absolute(path: bytes, project: bytes) -> Where:
    path = normal(path)
    if _below(path, project) or path in _PLAIN_DEVICES or any(_below(path, place) for place in _SHARED):
        return "inside"
    return "outside"


def _of_path(text: bytes, project: bytes, directory: bytes | None) -> Where:
    if text.startswith(b"/"):
        return _of_absolute(text, project)
    return "unknown" if directory is None else _of_absolute(directory + b"/" + text, project)


def is_shared(word: Word) -> bool:
    """Return whether the word names a path below a directory that commands share, such as /tmp, or a device."""
    return word.text.startswith((*(place + b"/" for place in _SHARED), b"/dev/")) or word.text in _SHARED


def is_of_git(word: Word) -> bool:
    """Return whether the word names a path in a repository's own directory, with hooks and configuration."""
    return any(piece.lower() == b".git" for piece in word.text.split(b"/"))


def locate(word: Word, context: CommandContext) -> Where:
    """Return the worst location to which this word may lead."""
    if word.at_home:
        return "outside"
    text = word.text
    if word.kind == "computed":
        text = word.start
        if not text.startswith(b"/") or text == b"/":
            is_outside = text.startswith((b"/", b"../"))
            return "outside" if is_outside else "unknown"
    elif word.kind == "pattern":
        text = _BY_WILDCARD.split(text, maxsplit=1)[0].rpartition(b"/")[0] + b"/"
        text = text if word.text.startswith(b"/") else b"./" + text.lstrip(b"/")
    location = max((_of_path(text, context.project, place) for place in context.places), key=_RANK.index)
    return "unknown" if word.kind == "computed" and location == "inside" else location


def change_directory(word: Word, context: CommandContext) -> tuple[bytes | None, ...]:
    """Return the directories after a change of directory to this word."""
    if word.at_home:
        return (b"/home",)
    if not word.literal or word.text.startswith(b"-"):
        return (None,)
    if word.text.startswith(b"/"):
        return (normal(word.text),)
    directories = {None if place is None else normal(place + b"/" + word.text) for place in context.places}
    return tuple(sorted(directories, key=repr))


def names_credentials(word: Word) -> bool:
    """Return whether the word names a credential file (``PATH``, ``--file=PATH``, ``@PATH``) of a home directory or of
    the system; files of the project do not count."""
    for sign in (b"=", b"@"):
        head, separator, _tail = word.text.partition(sign)
        if separator and _names_credentials(_behind(word, len(head) + 1)):
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
    """Return the path in ``--output=PATH`` or ``of=PATH``; any other word is returned unchanged."""
    head, sign, _value = word.text.partition(b"=")
    cut = len(head) + len(sign)
    return word if not sign or (not word.literal and word.fixed < cut) else _behind(word, cut)


def _behind(word: Word, cut: int) -> Word:
    return Word(word.text[cut:], word.kind, max(0, word.fixed - cut))


def worst_location(words: Iterable[Word], context: CommandContext) -> Where:
    return max((locate(after_equals(word), context) for word in words), key=_RANK.index, default="inside")


def write_classes(words: Iterable[Word], context: CommandContext) -> tuple[tuple[CommandClass, ...], str]:
    """Return the classes that writing to these paths adds, and the reason."""
    words = list(words)
    location = worst_location(words, context)
    if location == "outside":
        return ("host_escape_risk",), "outside the project"
    if location == "unknown":
        return ("unknown",), "at a path that is not known before it runs"
    return (("unknown",), "in .git, where git may run it") if any(map(is_of_git, words)) else ((), "")
