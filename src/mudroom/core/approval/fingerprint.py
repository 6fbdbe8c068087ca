"""The fingerprint that ties an approval to a command: its words and directory, its verdict, the terms on which it runs,
and the files that it names.

An approval of ``bash build.sh`` must not hold for another content of ``build.sh``. Two kinds of files are covered:

* Files that are *run* (``core/command/program/script.py``): a project's program, also one that PATH finds, an
  interpreter's script, files that a build tool reads by default. Each is covered, or there is no fingerprint
  (``Uncovered``) because the file is unknown before the command runs, is too large, or lies outside the project where
  commands may write.
* Other files that a word names, up to limits on number and size.

Files that such a file reads in turn (modules, included files, hooks) are not covered. The sandbox is the boundary, not
the fingerprint.
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Callable, Iterable, Iterator, Sequence

from mudroom.core.approval.approval import CommandQuestion
from mudroom.core.command.program.script import (
    IMPLIED,
    Uncovered,
    executed_files,
    join,
    require_known,
    working_directories,
)
from mudroom.core.command.verdict import CommandPart, Verdict
from mudroom.core.tree.path import show

__all__ = ["IMPLIED", "Uncovered", "digests", "fingerprint", "still_applies"]

Read = Callable[[bytes, int], bytes | None]
"""Return a regular file's content. The path is absolute in the view and resolved as open(2) does. Return None if there
is no such file. For a file larger than the second argument (bytes), return at least one byte more than that.
``stage/views/lookup.py`` has an implementation."""
Strays = Callable[[bytes], bool]
"""Return whether an absolute path leads out of the project to a place where commands may write; ``read`` finds no file
there."""
LARGEST = 64 << 20
"""Most bytes in a file that is run."""
LARGEST_NAMED = 4 << 20
"""Most bytes in any other file."""
MOST_RUN, MOST_NAMED = 1024, 256
"""Most paths that are examined."""


def nowhere(_path: bytes) -> bool:
    return False


def digests(
    parts: Sequence[CommandPart],
    words: Sequence[bytes],
    cwd: bytes,
    read: Read,
    strays: Strays = nowhere,
    programs: Sequence[bytes] = (),
) -> tuple[tuple[bytes, str], ...]:
    """Return path and digest for each file in the view that the command runs or names, sorted by path. ``words``: the
    command's own words; ``parts``: the parts found in it; ``programs``: the directories of PATH where commands may
    write, absolute or relative. Raise Uncovered, and what ``read`` raises."""
    require_known(parts)
    skip = bool(parts) and parts[0].words[1:] == tuple(words[1:])
    lines = [tuple(words), *(part.words for part in parts[skip:])]
    bases = working_directories(lines, cwd)
    digests_by_path: dict[bytes, str] = {}
    names: dict[bytes, bool] = {}
    for name, sure in executed_files(lines):
        names[name] = names.get(name, False) or sure
    for directory in programs:
        found = (directory + b"/" + line[0] for line in lines if line and line[0] and b"/" not in line[0])
        names |= dict.fromkeys(found, False)
    run = _limited(_paths(bases, names), MOST_RUN)
    if len(run) > MOST_RUN:
        raise Uncovered(f"it runs more than {MOST_RUN} files")
    surely = set(_paths(bases, (name for name, sure in names.items() if sure)))
    for path in run:
        content = read(path, LARGEST)
        if content is None and path in surely and strays(path):
            raise Uncovered(f"{show(path)} would be run, and lies outside the project, where commands may write")
        if content is not None and len(content) > LARGEST:
            raise Uncovered(f"{show(path)} is larger than {LARGEST >> 20} MiB")
        if content is not None:
            digests_by_path[path] = _digest(content)
    named = _paths(bases, (name for line in lines for name in _named(line)))
    for path in _limited((path for path in named if path not in digests_by_path), MOST_NAMED)[:MOST_NAMED]:
        content = read(path, LARGEST_NAMED)
        if content is not None:
            digests_by_path[path] = _digest(content) if len(content) <= LARGEST_NAMED else "large"
    return tuple(sorted(digests_by_path.items()))


def fingerprint(
    command: Sequence[bytes],
    cwd: bytes,
    fork: str,
    agent: str,
    verdict: Verdict,
    level: int,
    files: Iterable[tuple[bytes, str]],
    terms: Sequence[str] = (),
    variables: Iterable[bytes] = (),
) -> str:
    """Return a BLAKE2b digest over all arguments. Each field has its length, so that different questions have different
    inputs. ``variables``: NAME=VALUE for the variables that decide which program runs; ``terms`` show only their names.
    """
    hasher = blake2b(digest_size=16)

    def add(*fields: bytes) -> None:
        hasher.update(b"%d;" % len(fields) + b"".join(b"%d:" % len(field) + field for field in fields))

    add(*command)
    add(cwd, _bytes(fork), _bytes(agent), b"%d" % level)
    add(_bytes(verdict.action), _bytes(verdict.rule))
    add(*map(_bytes, verdict.classes))
    add(*map(_bytes, terms))
    add(*variables)
    for path, digest in files:
        add(path, _bytes(digest))
    return hasher.hexdigest()


def still_applies(question: CommandQuestion, now: str) -> bool:
    """Return whether an answer to ``question`` applies to the fingerprint ``now``. Check it after the answer has
    arrived, when no other process can change the fork any more."""
    return bool(now) and question.fingerprint == now


def _named(line: Sequence[bytes]) -> Iterator[bytes]:
    for word in line:
        yield word
        _option, equals, value = word.partition(b"=")
        if equals:
            yield value


def _paths(bases: Sequence[bytes], names: Iterable[bytes]) -> Iterator[bytes]:
    for name in names:
        if name and len(name) < 4096 and b"\0" not in name and b"\n" not in name:
            for base in bases:
                yield join(base, name)


def _limited(paths: Iterable[bytes], most: int) -> list[bytes]:
    """Return each path once, and at most ``most`` + 1 paths."""
    unique: dict[bytes, None] = {}
    for path in paths:
        unique[path] = None
        if len(unique) > most:
            break
    return list(unique)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
