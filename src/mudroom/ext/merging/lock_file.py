"""Lock files in conflict, made again by the package manager that writes them.

A row of ``LOCK_FILES`` says which command writes a lock file, from which manifests, and from which text it starts. The
command runs in a sandbox, in a fork of its own: the project with the fork's changes and decisions, as an apply would
leave it. Only the lock file is taken from that fork. The other files that the command changed are told, and dropped
with it.

The conflict stays as it is if the command fails, changes a manifest, or leaves a text that its own format refuses. The
decision names the command, and holds while the lock file and its manifests are the same on both sides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from mudroom.core.merge.diff3 import MergedText
from mudroom.core.merge.marker import Labels, has_markers, with_markers
from mudroom.core.result import Result
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import name, parent, show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, SideMoved
from mudroom.ext.merging.rule import read_json, read_toml
from mudroom.session.session import Session
from mudroom.typing import Any, Literal, NamedTuple
from mudroom.vault.apply.conflict import ForkConflict
from mudroom.vault.apply.landing import (
    LandingPlan,
    LandingRequest,
    prepare,
    read_record,
    reconciling,
    reviewed_contents,
)
from mudroom.vault.apply.rehearsal import rehearse
from mudroom.vault.conflict.reconciliation import LIMIT
from mudroom.vault.conflict.resolution import load_resolutions, version_of

LONGEST = 600.0
"""Seconds that a command may take."""
_SIDES = "base", "ours", "theirs"
_ABSENT = object()
_MOST_NAMED = 3
_LONGEST_SAID = 240
"""Bytes of a command's message that are shown."""

Start = Literal["keys", "sections", "markers", "ours"]
"""A package manager keeps the versions in the text that it starts from, as far as the manifests allow. ``keys``: each
key of a JSON object as the side has it that changed it, the project's if both did. ``sections``: the
same for the packages of a TOML text. ``ours``: the project's version, as also where a side is not in its format.
``markers``: both sides with conflict markers, which the command resolves itself."""


class LockFile(NamedTuple):
    name: bytes
    command: tuple[bytes, ...]
    manifests: tuple[bytes, ...]
    """Names of the files beside it, or below, from which it is made."""
    start: Start
    read: Callable[[bytes], Any] | None = None
    """Raise ValueError if a text is not in its format. None: only the command knows the format."""
    holds: bytes = b""
    """Text that tells the version of a format."""


def _words(command: bytes) -> tuple[bytes, ...]:
    return tuple(command.split())


_NODE = (b"package.json",)
_NPM = _words(b"npm install --package-lock-only --ignore-scripts --no-audit --no-fund")
_PYTHON = (b"pyproject.toml",)
LOCK_FILES = (
    LockFile(b"package-lock.json", _NPM, _NODE, "keys", read_json),
    LockFile(b"npm-shrinkwrap.json", _NPM, _NODE, "keys", read_json),
    LockFile(
        b"pnpm-lock.yaml",
        _words(b"pnpm install --lockfile-only --ignore-scripts --no-frozen-lockfile"),
        (*_NODE, b"pnpm-workspace.yaml"),
        "markers",
    ),
    LockFile(
        b"yarn.lock",
        _words(b"yarn install --ignore-scripts --non-interactive"),
        _NODE,
        "markers",
        holds=b"# yarn lockfile v1\n",
    ),
    LockFile(b"yarn.lock", _words(b"yarn install --mode=update-lockfile"), _NODE, "ours", holds=b"\n__metadata:\n"),
    LockFile(b"uv.lock", _words(b"uv lock"), _PYTHON, "sections", read_toml),
    LockFile(b"poetry.lock", _words(b"poetry lock --no-interaction"), _PYTHON, "sections", read_toml),
    LockFile(b"Cargo.lock", _words(b"cargo update --workspace"), (b"Cargo.toml",), "sections", read_toml),
)


def lock_file(path: bytes, ours: bytes | None, theirs: bytes | None) -> LockFile | None:
    """Return the row for a lock file that is a text on both sides, or None."""
    return next(
        (
            row
            for row in LOCK_FILES
            if row.name == name(path)
            and all(side is not None and row.holds in side and len(side) <= LIMIT for side in (ours, theirs))
        ),
        None,
    )


def command_of(path: bytes, ours: bytes | None, theirs: bytes | None) -> str:
    """As ``ForkConflict.remade_by``."""
    row = lock_file(path, ours, theirs)
    return show_words(row.command) if row is not None else ""


class _NotMade(MudroomError):
    def __init__(self, fork: str, path: bytes, why: str, hint: str = "") -> None:
        by_hand = f"mudroom resolve {fork} {show_words([path])} --mine, or --theirs, decides it"
        super().__init__(f"{show(path)} is not made again: {why}", f"{hint}; {by_hand}" if hint else by_hand)


def make_again(session: Session, fork: str, conflict: ForkConflict, tell: Callable[[str], None]) -> None:
    """Make a lock file again, and decide its conflict for the result. ``tell``: called with a line about each step.
    Raise MudroomError if that cannot be done: the conflict stays."""
    path, row = conflict.path, lock_file(conflict.path, conflict.ours.content, conflict.theirs.content)
    assert row is not None
    if conflict.ours.path != path:
        raise _NotMade(fork, path, f"the project has moved it to {show(conflict.ours.path)}")
    words = show_words(row.command)
    tell(f"making {show(path)} again in a sandbox: {words}")
    target = session.forks.new(f"lock-{session.forks.new_id()}", named=False).name
    try:
        made_from = _stage(session, fork, target, conflict, row)
        before = _files(session.changes.of(target).changes)
        content, others = _run(session, fork, target, path, row, before)
    finally:
        session.forks.discard(target)
    manifests = [other for other in others if name(other) in row.manifests and not _is_installed(other)]
    if manifests:
        raise _NotMade(fork, path, f"{words} changed {show(manifests[0])}, which was not reviewed so")
    if others:
        more = ", …" * (len(others) > _MOST_NAMED)
        named = ", ".join(map(show, others[:_MOST_NAMED])) + more
        tell(f"{words} also changed {counted(len(others), 'file')}, dropped: {named}")
    session.changes.decide(fork, conflict, "content", content, how=f"made again by {words}", made_from=made_from)


def make_all_again(session: Session, fork: str, tell: Callable[[str], None]) -> None:
    """Make a fork's lock files in conflict again, where nothing is decided about them. A failure is told."""
    names = {row.name for row in LOCK_FILES}
    paths = [change.path for change in session.changes.of(fork).changes if name(change.path) in names]
    for conflict in session.changes.conflicts(fork, paths) if paths else ():
        if not conflict.decided and conflict.remade_by:
            try:
                make_again(session, fork, conflict, tell)
            except MudroomError as error:
                tell(str(error))


def _stage(
    session: Session, fork: str, target: str, conflict: ForkConflict, row: LockFile
) -> tuple[tuple[bytes, bytes], ...]:
    """Put into ``target`` what an apply of the fork would leave, and the text that the command starts from. Return the
    manifests with their versions. Raise MudroomError if one of them is in conflict."""
    settings = session.actor.settings
    mask, _notes = session.forks.secrets.look(settings)
    request = LandingRequest(rules=session.actor.policy.merge_rules == "apply")
    tree = session.forks.tools.tree(target, session.vault.masked(mask))
    with session.forks.at_rest(fork) as held:
        record, resolutions = read_record(held), load_resolutions(held)
        with (
            reconciling(session.vault, held, request, record) as reconciler,
            reviewed_contents(held, record) as staged,
        ):
            plan = prepare(held, request, reconciler, record)
            paths = _manifests(conflict.path, row, plan)

            def versions() -> tuple[tuple[bytes, bytes], ...]:
                return tuple((path, version_of(path, reconciler, staged, resolutions)) for path in paths)

            made_from = versions()
            for each in plan.landing.conflicts:
                if each.path in paths:
                    hint = f"mudroom resolve {fork} {show_words([each.path])}"
                    raise _NotMade(fork, conflict.path, f"{show(each.path)} is in conflict, too", hint)
            rehearse(tree, plan.landing, staged, reconciler.merged, mask.paths)
            if versions() != made_from:  # the user has edited one meanwhile
                raise SideMoved(conflict.path, show(conflict.path))
    tree.write(conflict.path, start_of(row, conflict.merged, conflict.ours.content or b""))
    session.forks.flush(target)
    return made_from


def _manifests(path: bytes, row: LockFile, plan: LandingPlan) -> list[bytes]:
    """Return the manifests beside a lock file, and those that the fork has changed below it."""
    above = parent(path)
    beside = [above + b"/" * bool(above) + manifest for manifest in row.manifests]
    below = (above + b"/") * bool(above)
    changed = (c.path for c in plan.record.changeset.changes if name(c.path) in row.manifests)
    return sorted({*beside, *(each for each in changed if each.startswith(below))})


def start_of(row: LockFile, merged: MergedText | None, ours: bytes) -> bytes:
    """Return the text that the command starts from."""
    if merged is None or row.start == "ours":
        return ours
    if row.start == "markers":
        return with_markers(merged, Labels(b"project", b"original", b"fork"), "merge")
    texts = [b"".join(line for chunk in merged.chunks for line in getattr(chunk, side)) for side in _SIDES]
    try:
        return _sections(*texts) if row.start == "sections" else _keys(*texts)
    except (ValueError, RecursionError):
        return ours  # a side is not in its format


_SECTION = re.compile(rb"^(?=\[)", re.MULTILINE)
_NAME = re.compile(rb'^name = "([^"\\\n]+)"', re.MULTILINE)


def _sections(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return the project's text with the sections of each package as the side has them that changed them."""
    sides = [_packages(text) for text in (base, ours, theirs)]
    (head, _blocks, tail), packages = sides[1], _merged(*(blocks for _head, blocks, _tail in sides))
    text = b"".join((head, *packages.values(), tail))
    read_toml(text)
    return bytes(text)


def _packages(text: bytes) -> tuple[bytes, dict[str, bytes], bytes]:
    """Return what stands before the first package, each package's sections by name, and the rest."""
    head, *sections = _SECTION.split(text)
    packages: dict[str, bytes] = {}
    rest, name_of = b"", ""
    for section in sections:
        if section.startswith(b"[[package]]"):
            found = _NAME.search(section)
            name_of = found[1].decode() if found is not None else ""
        elif not section.startswith((b"[package.", b"[[package.")):
            rest += section
            continue
        packages[name_of] = packages.get(name_of, b"") + section
    return head, packages, rest


def _keys(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Return a JSON object with each key as the side has it that changed it."""
    sides = [read_json(text) if text else {} for text in (base, ours, theirs)]
    line = next(iter(ours.splitlines()[1:2]), b"")
    indent = line[: len(line) - len(line.lstrip())].decode()
    return json.dumps(_merged(*sides), indent=indent, ensure_ascii=False).encode() + b"\n"


def _merged(base: Any, ours: Any, theirs: Any) -> Any:
    if ours in (base, theirs) or not isinstance(ours, dict) or not isinstance(theirs, dict):
        return theirs if ours == base else ours
    before = base if isinstance(base, dict) else {}
    values = {
        key: _merged(*(side.get(key, _ABSENT) for side in (before, ours, theirs))) for key in sorted({*ours, *theirs})
    }
    return {key: value for key, value in values.items() if value is not _ABSENT}


def _run(
    session: Session, fork: str, target: str, path: bytes, row: LockFile, before: Mapping[bytes, object]
) -> tuple[bytes, list[bytes]]:
    """Run the command. Return the lock file's content, and the other paths that were changed."""
    where = session.project + b"/" * bool(parent(path)) + parent(path)
    try:
        result = session.run(row.command, fork=target, cwd=where, timeout=LONGEST)
    except MudroomError as error:
        raise _NotMade(fork, path, error.message, error.hint) from error
    why, hint = _why_failed(result, show_words(row.command))
    if why:
        raise _NotMade(fork, path, why, hint)
    tree = session.forks.tools.tree(target)
    entry = tree.look(path)
    if entry is None or entry.kind != "file" or entry.size > LIMIT:
        raise _NotMade(fork, path, f"{show_words(row.command)} left no such file")
    content = tree.read(path)
    try:
        if has_markers(content):
            raise ValueError
        if row.read is not None:
            row.read(content)
    except (ValueError, RecursionError) as error:
        raise _NotMade(fork, path, f"{show_words(row.command)} left a text that is no {show(row.name)}") from error
    after = _files(result.changeset.changes)
    others = [each for each in {**before, **after} if before.get(each) != after.get(each) and each != path]
    return content, sorted(others)


def _why_failed(result: Result, words: str) -> tuple[str, str]:
    """Return why the command made nothing, and what to do; two empty texts if it did."""
    if not result.ran:
        return f"{words} was refused: {result.verdict.reason}", ""
    if result.timed_out:
        return f"{words} did not end within {LONGEST / 60:.0f} minutes", ""
    if not result.exit_code:
        return "", ""
    hosts = sorted({show(each.target) for each in result.denials if each.kind == "network"})
    if hosts:
        host = hosts[0].removesuffix(":443")
        return f"{words} may not connect to {host}", f"network: {{allow: [{host}]}} in the policy allows it"
    if result.reached:
        return f"{words} reached a limit: {result.reached[0]}", ""
    lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if b"error" in line.lower()]
    said = ": " * bool(lines) + show(b"; ".join(errors[:2] or lines[-1:])[:_LONGEST_SAID])
    return f"{words} failed with exit code {result.exit_code}{said}", ""


def _is_installed(path: bytes) -> bool:
    """Return whether a manifest is an installed package's, which is no part of the project."""
    return any(part in path.split(b"/") for part in (b"node_modules", b".venv"))


def _files(changes: Sequence[Change]) -> dict[bytes, object]:
    """Return what identifies each changed file's present version."""
    return dict(_versions(changes))


def _versions(changes: Sequence[Change]) -> Iterator[tuple[bytes, object]]:
    for change in changes:
        entry: Entry | None = change.staged
        if entry is None or entry.kind != "directory":
            yield (
                change.path,
                (entry.kind, entry.mode, entry.size, entry.target, entry.mtime) if entry is not None else b"gone",
            )
