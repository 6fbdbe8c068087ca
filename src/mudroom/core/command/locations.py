"""Where a command's path leads: into the project (or a shared place such as /tmp or the null device), or outside.

Paths are only parsed here and never looked up, so a symlink in the project may lead elsewhere unnoticed. The sandbox is
the boundary, not this check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mudroom.core.command.verdict import Aim, CommandClass, CommandPart
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex
from mudroom.core.tree.secret import hidden_names, names_secret
from mudroom.typing import Literal, NamedTuple

Where = Literal["inside", "unknown", "outside"]
_RANK: tuple[Where, ...] = ("inside", "unknown", "outside")
SOMEWHERE = b"/\0project"
"""Project path if none is given: no absolute path leads into it."""
_SHARED = (b"/tmp", b"/var/tmp", b"/dev/shm", b"/dev/fd")
_PLAIN = b"null zero full stdin stdout stderr tty random urandom".split()
_PLAIN_DEVICES = frozenset({b"/dev/" + name for name in _PLAIN})
_OF_THE_SYSTEM = regex(
    rb"^/etc/(sudoers|ssh/.*key)|^/var/run/docker\.sock|^/run/"
    rb"|^/proc/(?!(self|thread-self)/fd(/|$)).*/(environ|mem|root|cwd|fd)(/|$)"
)
_BY_WILDCARD = regex(rb"[*?\[{]")
_EMBEDDED = regex(rb"(?:\A-\w+|[=@<,\"']|\A(?i:file)://[\w.-]*)(/[^,;\"'}]*)")
"""Absolute paths inside a word: ``-fPATH``, ``f=@"PATH"``, ``file://localhost/PATH``."""
_SYSTEM_NAMES = (b"shadow", b"gshadow", b"sudoers")
_BRACES = regex(rb"(?<!\$)\{([^{}]*,[^{}]*)\}")
"""Innermost braces with a comma."""
_MOST_ALTERNATIVES, _MOST_STARS = 64, 4


class CommandContext(NamedTuple):
    """Where a command runs, and the functions that classify a command inside it."""

    line: Callable[[bytes, CommandContext], Sequence[CommandPart]]
    words: Callable[[Sequence[Word], CommandContext], Sequence[CommandPart]]
    project: bytes = SOMEWHERE
    places: tuple[bytes | None, ...] = (SOMEWHERE,)
    """Directories in which the command may run; None for an unknown one."""
    stack: tuple[tuple[bytes | None, ...], ...] = ()
    """Directories that ``pushd`` has left, the last one last."""
    depth: int = 0
    program: bytes = b""
    """The program that is judged, with its subcommands: ``git stash list``."""


class CommandFinding(NamedTuple):
    """A command's classes; ``parts`` are the commands that it starts."""

    classes: tuple[CommandClass, ...]
    reason: str
    parts: tuple[CommandPart, ...] = ()
    aims: tuple[Aim, ...] = ()
    """All targets that make the command a ``host_escape_risk``; empty: ``add_aims`` looks for them."""


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


def all_scratch(words: Sequence[Word], context: CommandContext) -> bool:
    """Return whether all words name entries of a shared directory, such as /tmp/x: no checkpoint holds them. A path
    farther below may lead through a link."""
    known = [after_equals(word) for word in words if word.literal]
    folders = [normal(word.text).rpartition(b"/")[0] for word in known if word.text.startswith(b"/")]
    apart = not any(_below(context.project, normal(word.text)) or word.text.endswith(b"/") for word in known)
    return bool(words) and len(folders) == len(words) and apart and all(map(_SHARED.__contains__, folders))


def is_of_git(word: Word) -> bool:
    """Return whether the word names a path in a ``.git`` directory, which holds hooks and configuration."""
    return any(piece.lower() == b".git" for piece in word.text.split(b"/"))


def locate(word: Word, context: CommandContext) -> Where:
    """Return the worst location to which this word may lead."""
    if word.at_home:
        return "outside"
    text = word.text
    if word.kind == "computed" and b"{" in text and b"$" not in text and b"`" not in text:
        several = [one for one in alternatives(text) if one != text]
        if any(one.startswith(b"~") or _of_pattern(one, context) == "outside" for one in several):
            return "outside"
    if word.kind == "computed":
        text = word.start
        if not text.startswith(b"/") or text == b"/":
            is_outside = text.startswith((b"/", b"../"))
            return "outside" if is_outside else "unknown"
    elif word.kind == "pattern":
        if b".." in text and _of_pattern(text, context) == "outside":
            return "outside"
        text = _BY_WILDCARD.split(text, maxsplit=1)[0].rpartition(b"/")[0] + b"/"
        text = text if word.text.startswith(b"/") else b"./" + text.lstrip(b"/")
    location = max((_of_path(text, context.project, place) for place in context.places), key=_RANK.index)
    return "unknown" if word.kind == "computed" and location == "inside" else location


def _of_pattern(text: bytes, context: CommandContext) -> Where:
    """Return where a path leads if each piece with a wildcard is a single directory, and ``**`` none."""
    path = b"/".join(b"." if piece == b"**" else piece for piece in text.split(b"/"))
    return max((_of_path(path, context.project, place) for place in context.places), key=_RANK.index)


def move(words: Sequence[Word], context: CommandContext) -> CommandContext:
    """Return the context after ``cd``, ``pushd`` or ``popd``."""
    name, operands = words[0].text, [word for word in words[1:] if word.text not in (b"-P", b"-L", b"-e", b"-@", b"--")]
    here, stack = context.places, context.stack
    if name == b"cd":
        return context._replace(places=change_directory(operands[0] if operands else Word(b"~", "computed"), context))
    if name == b"pushd" and operands and not operands[0].text.startswith((b"+", b"-")):
        return context._replace(places=change_directory(operands[0], context), stack=(*stack, here))
    if operands or not stack:
        return context._replace(places=(None,), stack=())
    return context._replace(places=stack[-1], stack=stack[:-1] if name == b"popd" else (*stack[:-1], here))


def change_directory(word: Word, context: CommandContext) -> tuple[bytes | None, ...]:
    """Return the possible directories after a change to the directory that this word names."""
    if word.at_home:
        return (b"/home",)
    if not word.literal or word.text.startswith(b"-"):
        return (None,)
    if word.text.startswith(b"/"):
        return (normal(word.text),)
    directories = {None if place is None else normal(place + b"/" + word.text) for place in context.places}
    return tuple(sorted(directories, key=repr))


def names_credentials(word: Word, context: CommandContext) -> bool:
    """Return whether the word names a credential file in a home directory or in the system, also as an option's value
    (``--file=PATH``, ``-fPATH``, ``@PATH``, ``file://PATH``). Files in the project do not count."""
    if word.literal:
        if b"/" not in word.text and all(
            place is not None and _below(place, context.project) for place in context.places
        ):
            return False
        return any(map(_is_credential, _literal_paths(word.text, context)))
    if b"/" not in word.text:
        return False
    return any(_may_be_credential(end) for text in alternatives(word.text) for end in _ends(text))


def _literal_paths(text: bytes, context: CommandContext) -> Iterable[bytes]:
    if b"/" in text and b" " not in text and b"\n" not in text:
        yield from (normal(match[1]) for match in _EMBEDDED.finditer(text))
    for end in _ends(text):
        for place in context.places:
            if end.startswith(b"/"):
                yield normal(end)
            elif place is None:
                yield end if end.startswith(b"../") else b""
            elif not _below(path := normal(place + b"/" + end), context.project):
                yield path


def _ends(text: bytes) -> Iterable[bytes]:
    yield text
    yield from (tail for sign in (b"=", b"@") if (tail := text.partition(sign)[2]))


def _is_credential(path: bytes) -> bool:
    """Return whether a path is one of a credential. In a place that commands share only a store's name counts, as of a
    home there: ``/tmp/server.key`` is a command's own."""
    if any(_below(path, place) for place in _SHARED):
        hidden = hidden_names().intersection(path.split(b"/"))
        if all(name.startswith(b".env") for name in hidden):
            return False
    return _OF_THE_SYSTEM.search(path) is not None or names_secret(path)


def _may_be_credential(path: bytes) -> bool:
    """Return whether a path with wildcards, or below a home directory, may be a credential file."""
    if not path.startswith((b"~", b"$HOME", b"${HOME", b"/")):
        return False
    tail = path.rpartition(b"/../")[2]
    if _is_credential(path) or (tail != path and _is_credential(b"/" + tail)):
        return True
    pieces = path.split(b"/")
    for at, piece in enumerate(pieces):
        if _BY_WILDCARD.search(piece):
            names = hidden_names() if piece.startswith(b".") else _SYSTEM_NAMES if pieces[:at] == [b"", b"etc"] else ()
            if any(_matches(name, piece) for name in names):
                return True
    return False


def _matches(name: bytes, pattern: bytes) -> bool:
    """Return whether a shell pattern may match the name. A bracket matches any character."""
    if pattern.count(b"*") > _MOST_STARS:
        return True
    if not pattern or not name:
        return not name and not pattern.strip(b"*")
    if pattern.startswith(b"*"):
        return any(_matches(name[at:], pattern[1:]) for at in range(len(name) + 1))
    end = pattern.find(b"]", 2) if pattern.startswith(b"[") else -1
    fits = end > 0 or pattern[:1] in (b"?", name[:1])
    return fits and _matches(name[1:], pattern[max(end, 0) + 1 :])


def alternatives(text: bytes) -> Sequence[bytes]:
    """Return the words that bash makes from braces with commas; the text itself if there are too many."""
    finished: list[bytes] = []
    todo = [text]
    while todo:
        if len(finished) + len(todo) > _MOST_ALTERNATIVES:
            return (text,)
        current = todo.pop()
        match = _BRACES.search(current)
        if match is None:
            finished.append(current)
        else:
            todo += [current[: match.start()] + one + current[match.end() :] for one in match[1].split(b",")]
    return finished


def after_equals(word: Word) -> Word:
    """Return the path in ``--output=PATH`` or ``of=PATH``, and any other word unchanged."""
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
