"""Ways to decide a conflict: one side, both, place by place, in an editor, by a merge driver.

The editor and the merge driver are the user's own programs. They run on the host, on copies of the three sides. They
get no file name chosen by the fork, and no secret. The user's text becomes the decision, or is kept in a file whose
path is printed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from mudroom.cli.terminal.command_signals import TYPED, Terminated
from mudroom.cli.terminal.foreground_program import GRACE, ForegroundRunner
from mudroom.core.merge.marker import Labels, has_markers, marker_size, resolve, why_not_mergeable, with_markers
from mudroom.core.registry import part
from mudroom.core.system.closing import Descriptor
from mudroom.core.system.search_path import find_program, require_program
from mudroom.core.tree.path import show_path
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import disk
from mudroom.stage.layers.layer import remove_at
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.terminal.context import Context
    from mudroom.core.merge.diff3 import MergedText
    from mudroom.core.merge.resolution_words import Either
    from mudroom.session import ForkConflict, Session

KEPT = "kept"
"""Name, without suffix, of a kept file: a text that did not become the decision."""
DRIVERS = {"mergiraf": "mergiraf merge --git %O %A %B -s project -x original -y fork -p %P"}
"""Merge drivers that ``--tool`` knows by name."""


def decide_whole(session: Session, fork: str, conflict: ForkConflict, side: Either) -> None:
    if side != "both":
        session.changes.decide(fork, conflict, side)
        return
    sides = {side.entry.kind if side.entry is not None else None for side in (conflict.ours, conflict.theirs)}
    if conflict.merged is None and sides == {"file"}:
        session.changes.keep_both(fork, conflict)
        return
    merged = _merged_text(conflict)
    _decide_merged(session, fork, conflict, merged, dict.fromkeys(range(merged.conflicts), side))


def decide_by_rule(session: Session, fork: str, conflict: ForkConflict, context: Context) -> None:
    """Decide for the text that a rule makes, or make a lock file again. The caller has looked that one does."""
    if (rule := conflict.by_rule) is not None:
        session.changes.decide(fork, conflict, "content", rule.content, how=rule.how)
        return
    try:
        part("merging", "locks", "a lock file made again").make_again(session, fork, conflict, context.terminal.say)
    except MudroomError as error:  # the conflict stays, as the list says; the others are decided
        context.terminal.note(str(error))


def decide_by_hunk(session: Session, fork: str, conflict: ForkConflict, hunks: Mapping[int, Either]) -> None:
    merged = _merged_text(conflict)
    for number in hunks:
        if not 1 <= number <= merged.conflicts:
            raise UsageError(f"{show_path(conflict.path)} has no conflict {number}", f"it has {merged.conflicts}")
    undecided = set(range(1, merged.conflicts + 1)) - set(hunks)
    if undecided:
        raise UsageError(
            f"{show_path(conflict.path)}: conflict {min(undecided)} is not decided",
            "say --hunk N --mine for each, or --edit",
        )
    _decide_merged(session, fork, conflict, merged, {number - 1: side for number, side in hunks.items()})


def decide_in_editor(session: Session, fork: str, conflict: ForkConflict, context: Context) -> None:
    """Open an editor on the text with conflict markers, or on the result if the conflict is already decided."""
    _require_shown(session, conflict)
    editor = _split(os.fsdecode(context.environ.get(b"VISUAL") or context.environ.get(b"EDITOR") or b"vi"))
    merged = _merged_text(conflict)
    initial = conflict.result
    with_conflicts = initial is None or bool(why_not_mergeable(initial))
    if initial is None or with_conflicts:
        initial = with_markers(merged, Labels(b"project", b"original", fork.encode()))
    else:
        context.terminal.say(f"{show_path(conflict.path)} is decided: this is the result; --undecide for the markers")
    with ForegroundRunner() as runner, _program_directory() as directory:
        edited = _Edited(directory / ("conflict" + _suffix(conflict.path)), initial, context.terminal.say)
        with edited:
            _run(runner, [*editor, str(edited.place)], directory, "the editor", context, is_typed_in=True)
            content = edited.read("the editor")
            if has_markers(content, marker_size(merged)):
                raise UsageError(
                    f"{show_path(conflict.path)} still has conflict markers", "nothing was decided; edit it again"
                )
            session.changes.decide(fork, conflict, "content", content, edited=not with_conflicts)


def decide_by_driver(session: Session, fork: str, conflict: ForkConflict, tool: str, context: Context) -> None:
    """Run a merge driver with git's placeholders (gitattributes(5)): %O base, %A ours and the result, %B theirs, %P
    the path."""
    _require_shown(session, conflict)
    words = _split(DRIVERS.get(tool, tool))
    if not words or find_program(words[0], context.environ) is None:
        raise UsageError(f"there is no merge driver {words[0] if words else 'named'}", "install it, or give its path")
    if not {"%A", "%B"} <= set(" ".join(words).split()):
        raise UsageError(f"the merge driver {tool!r} is not told the files", "a command with %O %A %B")
    sides = (conflict.base, conflict.ours, conflict.theirs)
    with ForegroundRunner() as runner, _program_directory() as directory:
        names = {"%P": "merged" + _suffix(conflict.path)}  # not the real path, which the fork may have chosen
        for sign, name, side in zip(("%O", "%A", "%B"), ("base", "ours", "theirs"), sides, strict=True):
            if side.content is None and (sign != "%O" or side.entry is not None):
                raise UsageError(
                    f"{show_path(conflict.path)}: a merge driver needs a file on both sides",
                    "--mine or --theirs decides it",
                )
            place = directory / (name + _suffix(conflict.path))
            place.write_bytes(side.content or b"")
            names[sign] = str(place)
        edited = _Edited(Path(names["%A"]), conflict.ours.content or b"", context.terminal.say)
        with edited:
            _run(runner, [names.get(word, word) for word in words], directory, words[0], context, is_typed_in=False)
            content = edited.read(words[0])
            if has_markers(content) and not any(has_markers(side.content or b"") for side in sides):
                raise UsageError(
                    f"{words[0]} left conflict markers in {show_path(conflict.path)}", "nothing was decided"
                )
            session.changes.decide(fork, conflict, "content", content)


def _split(line: str) -> list[str]:
    """Split a command line into words. Raise UsageError if a quote is not closed."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line}: {error}", "close the quote") from None


def _require_shown(session: Session, conflict: ForkConflict) -> None:

    if session.forks.secrets.hides_conflict(conflict):
        raise UsageError(
            f"{show_path(conflict.path)} is a secret: no program is given it",
            "--mine or --theirs, or --show PATH beside it",
        )


@contextmanager
def _program_directory() -> Iterator[Path]:
    """Yield a temporary directory for a program. It is removed afterwards unless it holds a kept file."""
    directory = Path(tempfile.mkdtemp(prefix="mudroom-"))
    try:
        yield directory
    except BaseException:
        if not any(directory.glob(KEPT + "*")):
            shutil.rmtree(directory)
        raise
    shutil.rmtree(directory)


class _Edited:
    """A file that the user edits. If it does not become the decision, the file is kept and its path printed."""

    def __init__(self, place: Path, initial: bytes, say: Callable[[str], None]) -> None:
        self.place, self.initial, self.say = place, initial, say
        place.write_bytes(initial)
        self.names_before = set(os.listdir(place.parent))

    def read(self, what: str) -> bytes:
        try:
            return self.place.read_bytes()
        except OSError as error:
            raise MudroomError(f"{what} left no file: {error.strerror}", "nothing was decided") from error

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or not self.place.is_file():
            return
        rescued = self._rescued() if isinstance(error, Terminated) and error.number not in TYPED else set()
        if self.place.read_bytes() == self.initial and not rescued:
            return
        kept = self.place.with_name(KEPT + self.place.suffix)
        self.place.rename(kept)
        _remove_others(self.place.parent, {kept.name, *rescued})  # copies of the sides, and the editor's own files
        if not isinstance(error, MudroomError):  # Ctrl-C or a full disk: the path is not in a message yet
            self.say(f"what was written is kept: {kept}")
        else:
            error.hint = f"{error.hint}; what was written is kept: {kept}" if error.hint else f"it is kept: {kept}"

    def _rescued(self) -> set[str]:
        """Return the recovery files that the editor wrote after SIGTERM: vim a .swp, nano a .save, emacs a #file#."""
        since = time.time() - 2 * GRACE
        names = set()
        for entry in self.place.parent.iterdir():
            with suppress(FileNotFoundError):
                if (
                    entry.name not in self.names_before
                    and stat.S_ISREG(entry.lstat().st_mode)
                    and entry.lstat().st_mtime >= since
                ):
                    names.add(entry.name)
        return names


def _remove_others(directory: Path, kept: set[str]) -> None:
    """Remove all other entries. Links are not followed. Entries that cannot be removed stay."""
    own = disk.open_path(directory, os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    with Descriptor(own):
        for name in set(os.listdir(own)) - kept:
            with suppress(OSError):
                remove_at(own, os.fsencode(name))


def undecide(session: Session, fork: str, conflict: ForkConflict) -> None:
    if not session.changes.forget_decision(fork, conflict.path, conflict.decision):
        raise UsageError(
            f"nothing is decided about {show_path(conflict.path)}", f"mudroom resolve {fork} lists the conflicts"
        )


def _decide_merged(
    session: Session, fork: str, conflict: ForkConflict, merged: MergedText, choices: Mapping[int, Either]
) -> None:
    session.changes.decide(fork, conflict, "content", resolve(merged, choices).content())


def _merged_text(conflict: ForkConflict) -> MergedText:
    merged = conflict.merged
    if merged is None:
        raise UsageError(
            f"{show_path(conflict.path)} cannot be merged in parts: {conflict.reason}", "--mine or --theirs, as a whole"
        )
    return merged


def _suffix(path: bytes) -> str:
    """Return a file name's suffix if it is plain: editors and merge drivers infer the language from it."""
    suffix = os.path.splitext(path)[1]
    return suffix.decode() if suffix[1:].isalnum() and len(suffix) < 12 and suffix.isascii() else ""


def _run(
    runner: ForegroundRunner, words: list[str], directory: Path, what: str, context: Context, *, is_typed_in: bool
) -> None:
    """Run a program in a directory. Its path is made absolute first, so that it names the same program there."""
    try:
        program = os.path.abspath(os.fsdecode(require_program(os.fsencode(words[0]), context.environ)))
        code = runner.run([program, *words[1:]], directory, is_typed_in=is_typed_in)
    except OSError as error:
        raise UsageError(f"{words[0]} cannot be run: {error.strerror}", "set VISUAL or EDITOR") from error
    if code < 0:
        ended = MudroomError(f"{what} was ended by {signal.Signals(-code).name}", "nothing was decided")
        if -code in TYPED:
            ended.exit_code = 128 - code
        raise ended
    if code:
        raise MudroomError(f"{what} exited with {code}", "nothing was decided")
