"""What an approval of a command is tied to: its words and place, what was said about it, the
terms on which it runs, and the files that it names.

An approval given for ``bash build.sh`` must not hold for another content of ``build.sh``. Files are told in two ways:

* those that are *run* (``core/command/program/script.py``): a program of the project, the script that an interpreter is
  given, what a
  build tool reads by itself. Each of them is covered, or there is no fingerprint (``Uncovered``): it cannot be told
  before it runs, is too large, or lies outside of the project where commands may write;
* all others that a word names, as far as they are not too many and too large.

What such a file reads in turn is not covered: modules, included files, hooks. The sandbox is the boundary, not this.
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

__all__ = ["IMPLIED", "Uncovered", "digests", "fingerprint", "holds", "question_about"]

Read = Callable[[bytes, int], bytes | None]
"""The content of a regular file at an absolute path of the view, found as open(2) would find it; None if there is none.
If it has more bytes than the second says: at least one more than that many. ``stage/views/lookup.py`` has one."""
Strays = Callable[[bytes], bool]
"""Whether an absolute path leads out of the project to where commands may write; ``read`` finds nothing there."""
LARGEST = 64 << 20
"""Bytes of a file that is run."""
LARGEST_NAMED = 4 << 20
"""Bytes of another one."""
MOST_RUN, MOST_NAMED = 1024, 256
"""Paths that are looked at."""


def question_about(
    command: Sequence[bytes],
    cwd: bytes,
    fork: str,
    agent: str,
    verdict: Verdict,
    parts: Sequence[CommandPart],
    pattern: str,
    level: int,
    read: Read,
    terms: Sequence[str] = (),
) -> CommandQuestion:
    """The question about a command as everything is now. Made a second time before the command runs, it shows by
    ``holds`` whether the answer is about what runs. Raises Uncovered, and what ``read`` raises."""
    files = digests(parts, command, cwd, read)
    mark = fingerprint(command, cwd, fork, agent, verdict, level, files, terms)
    return CommandQuestion(tuple(command), cwd, fork, agent, verdict, pattern, mark, files, tuple(terms))


def nowhere(_path: bytes) -> bool:
    return False


def digests(
    parts: Sequence[CommandPart], words: Sequence[bytes], cwd: bytes, read: Read, strays: Strays = nowhere
) -> tuple[tuple[bytes, str], ...]:
    """Path and digest of each file of the view that the command runs or names, by path. ``words`` are those of the
    command itself, ``parts`` what was found in it. Raises Uncovered, and what ``read`` raises."""
    require_known(parts)
    again = bool(parts) and parts[0].words[1:] == tuple(words[1:])
    lines = [tuple(words), *(part.words for part in parts[again:])]
    bases = working_directories(lines, cwd)
    found: dict[bytes, str] = {}
    names: dict[bytes, bool] = {}
    for name, sure in executed_files(lines):
        names[name] = names.get(name, False) or sure
    run = _some(_paths(bases, names), MOST_RUN)
    if len(run) > MOST_RUN:
        raise Uncovered(f"it runs more than {MOST_RUN} files")
    surely = set(_paths(bases, (name for name, sure in names.items() if sure)))
    for path in run:
        content = read(path, LARGEST)
        if content is None and path in surely and strays(path):
            raise Uncovered(f"{show(path)} would be run, and lies outside of the project, where commands may write")
        if content is not None and len(content) > LARGEST:
            raise Uncovered(f"{show(path)} is larger than {LARGEST >> 20} MiB")
        if content is not None:
            found[path] = _digest(content)
    named = _paths(bases, (name for line in lines for name in _named(line)))
    for path in _some((path for path in named if path not in found), MOST_NAMED)[:MOST_NAMED]:
        content = read(path, LARGEST_NAMED)
        if content is not None:
            found[path] = _digest(content) if len(content) <= LARGEST_NAMED else "large"
    return tuple(sorted(found.items()))


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
    """BLAKE2b over all of it, each field with its length, so that no two questions look the same. ``variables``:
    NAME=VALUE of those that decide what is run; ``terms`` show their names alone."""
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


def holds(question: CommandQuestion, now: str) -> bool:
    """Whether an answer to ``question`` is one to what has this fingerprint now: to be looked at after the answer has
    come, when nobody else can change the fork any more."""
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


def _some(paths: Iterable[bytes], most: int) -> list[bytes]:
    """Each once, and at most one more than so many."""
    found: dict[bytes, None] = {}
    for path in paths:
        found[path] = None
        if len(found) > most:
            break
    return list(found)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
