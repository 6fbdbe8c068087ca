"""Eight judged attempts at one task over a project of 2,000 files: ``mudroom try``, and what people write instead.

Each attempt, in a tree of its own: edit five files, write its number, be judged by a command; then away with all of
them. As many at one time as there are processors, for everybody. sandfs runs no commands: its row is in
``attempts.py``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.measure import Contestant, Finding, Lap, Rival, against, at_most_times, command, interleave, seconds_of
from bench.place import Place, Scale, new_place
from mudroom.ext.attempts.session.attempts import start
from mudroom.ext.attempts.session.discard import discard
from mudroom.ext.attempts.session.request import AttemptRequest, processors
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

_ATTEMPTS = 8
_SIZE, _PER_DIRECTORY = 2_000, 100
"""Bytes of a file; files of a directory."""
_PLAIN, _PLAIN_RUNS = "try without a judge", "eight runs"
_EDIT = b"sed -i s/line/row/ d0000/f00000[0-4].txt && echo {i} > answer"
_JUDGE = b"grep -q row d0000/f000004.txt && grep -q '[0-9]' answer"
_COPY, _TREE, _RUNS = "cp -a, bare commands", "git worktree, bare commands", "eight runs, judged in the same fork"


def judged(base: bytes, scale: Scale) -> Iterator[Finding]:
    files = 2_000 if scale.tree > 1_000 else 500
    with new_place(base, "judged") as place:
        _fill(place.project, files)
        with Session.open(place.project, state=place.state, home=place.home, environ=place.environ) as session:
            session.forks.secrets.look()
            session.run([b"true"])  # its launcher is up
            ways: list[Contestant] = [
                lambda: [("try", seconds_of(lambda: _try(session)))],
                lambda: [(_RUNS, seconds_of(lambda: _runs(session)))],
                lambda: [(_PLAIN, seconds_of(lambda: _try(session, judge=())))],
                lambda: [(_PLAIN_RUNS, seconds_of(lambda: _runs(session, is_judged=False)))],
                Rival(lambda: _copies(place), _COPY),
                Rival(lambda: _worktrees(place), _TREE),
            ]
            found = interleave(ways, scale.attempts)
    budgets = {_COPY: at_most_times(0.2), _RUNS: at_most_times(1.3), _PLAIN_RUNS: at_most_times(1.3)}
    rivals = against(found, [_COPY, _TREE, _RUNS], budgets)
    yield Finding("attempts", f"try -n {_ATTEMPTS} with a judge over {files:,} files", found["try"], None, rivals)
    plain = against(found, [_PLAIN_RUNS], budgets)
    yield Finding("attempts", f"try -n {_ATTEMPTS} without a judge over {files:,} files", found[_PLAIN], None, plain)


def _fill(project: bytes, files: int) -> None:
    for number in range(files):
        path = project + b"/d%04d/f%06d.txt" % (number // _PER_DIRECTORY, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(b"".join(b"line %d of %d\n" % (line, number) for line in range(_SIZE // 14)))
    author = [b"-c", b"user.name=bench", b"-c", b"user.email=bench@example.com"]
    for words in ([b"init", b"-q"], [b"add", b"-A"], [*author, b"commit", b"-qm", b"base"]):
        command([b"git", *words], cwd=project)


def _shell(script: bytes, number: int) -> list[bytes]:
    return [b"sh", b"-c", script.replace(b"{i}", b"%d" % number)]


def _try(session: Session, judge: tuple[bytes, ...] = (b"sh", b"-c", _JUDGE)) -> None:
    request = AttemptRequest(((b"sh", b"-c", _EDIT),) * _ATTEMPTS, judge=judge)
    with start(session, request) as running:
        passed = [attempt.state for attempt in running].count("passed")
    _require(passed)
    discard(session, running.record, everything=True)


def _runs(session: Session, *, is_judged: bool = True) -> None:
    def attempt(number: int) -> bool:
        name = f"own-{number}"
        result = session.run(_shell(_EDIT, number), fork=name)
        if is_judged:
            result = session.run(_shell(_JUDGE, number), fork=name)
        session.forks.record(name)  # the look before any review: nobody can change the files any more
        session.forks.discard(name)
        return not result.exit_code

    _require(sum(_side_by_side(attempt)))


def _copies(place: Place) -> Iterable[Lap]:
    def attempt(number: int) -> bool:
        copy = place.root + b"/copy-%d" % number
        command([b"cp", b"-a", place.project, copy])
        return _judged_in(copy, number)

    def clear(number: int) -> None:
        remove_tree(place.root + b"/copy-%d" % number)

    return [(_COPY, seconds_of(lambda: _with_bare_commands(attempt, clear)))]


def _worktrees(place: Place) -> Iterable[Lap]:
    def attempt(number: int) -> bool:
        tree = place.root + b"/tree-%d" % number
        command([b"git", b"worktree", b"add", b"--detach", tree], cwd=place.project)
        return _judged_in(tree, number)

    def clear(number: int) -> None:
        tree = place.root + b"/tree-%d" % number
        command([b"git", b"worktree", b"remove", b"--force", tree], cwd=place.project)

    return [(_TREE, seconds_of(lambda: _with_bare_commands(attempt, clear)))]


def _judged_in(tree: bytes, number: int) -> bool:
    command(_shell(_EDIT, number), cwd=tree)
    return subprocess.run(_shell(_JUDGE, number), cwd=tree, check=False).returncode == 0


def _with_bare_commands(attempt: Callable[[int], bool], clear: Callable[[int], None]) -> None:
    _require(sum(_side_by_side(attempt)))
    for number in range(_ATTEMPTS):
        clear(number)


def _side_by_side(attempt: Callable[[int], bool]) -> list[bool]:
    with ThreadPoolExecutor(processors()) as pool:
        return list(pool.map(attempt, range(_ATTEMPTS)))


def _require(passed: int) -> None:
    if passed != _ATTEMPTS:
        raise RuntimeError(f"{passed} of {_ATTEMPTS} attempts have passed")
