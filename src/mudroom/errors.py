"""Exceptions, by cause.

    MudroomError            mudroom could not do its job                               exit 125
    ├── UsageError          the caller's request is not valid                          exit 125
    │   ├── Refused         the policy does not allow the command here                 exit 126
    │   ├── ForkExists      another fork has this name                                 exit 125
    │   ├── ForkGone        the fork was discarded or renamed while it was waited for  exit 125
    │   └── MaskedRights    the umask takes the user's own rights to new files         exit 125
    ├── Unsupported         this machine cannot provide a requested protection         exit 125
    ├── ForkMoved           the fork has changed since its review; nothing was applied exit 4
    │   ├── ForkChanged     its set of changes differs from the review                 exit 4
    │   ├── NotReviewed     the fork was in use when its changes were shown            exit 4
    │   └── SideMoved       a side of a conflict has changed since it was shown        exit 4
    │       └── DecidedMeanwhile  the decision about the conflict has changed since    exit 4
    ├── SecretsUnknown      the policy, which names secrets, cannot be read            exit 125
    ├── ProjectClosed       a directory of the project is closed to the user           exit 125
    ├── Interrupted         Ctrl-C at a question; nothing was applied                  exit 130
    ├── SandboxAlive        processes of a command that has ended are still alive      exit 125
    ├── FileError           a fork's file cannot be read or changed; also an OSError    exit 125
    ├── RunUnwritten        a command has run; its output or record was not written    exit 125
    ├── ApplyUnwritten      an apply has landed; its record was not written            exit 125
    ├── ContainerEnded      a command's container ended before the command             exit 125
    └── CommandNotStarted   the command was not found, or may not be executed          exit 127 or 126

Denials, conflicts and failing commands are not exceptions but values (``core/result.py``, ``core/merge/merge.py``).
``message`` says in one line what happened and why; ``hint`` says what to do about it.
"""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT)
"""OSError errno values for a full disk or quota. They say nothing about the accessed path."""


READ_AGAIN = "try again; dmesg may say what is wrong with the disk"
"""The hint for a read that has failed once (EIO): the file may be whole."""
UPGRADE = "upgrade mudroom"
"""The hint for what a newer mudroom has written."""
OUTDATED = "it is of a mudroom before the first release, which alone reads it: move it aside"


class MudroomError(Exception):
    exit_code = 125

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Restore without ``__init__``, because ``args`` are not its arguments in most subclasses."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[MudroomError], arguments: tuple[object, ...], state: dict[str, object]) -> MudroomError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(MudroomError):
    pass


class Refused(UsageError):
    exit_code = 126


class ForkExists(UsageError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is a fork named {name} already", "choose another name, or discard it")


class ForkGone(UsageError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no fork named {name} any more", "mudroom ls shows the forks of this project")


class Unsupported(MudroomError):
    """``protection`` was requested and needs ``needs``; this machine has ``found`` instead."""

    def __init__(self, protection: str, needs: str, found: str, hint: str = "") -> None:
        super().__init__(f"{protection} needs {needs}; found: {found}", hint)
        self.protection = protection
        self.needs = needs
        self.found = found


class Interrupted(MudroomError):
    """The user pressed Ctrl-C at a question."""

    exit_code = 130


class SandboxAlive(MudroomError):
    """A fork's command has ended or was cut off, and a process in its sandbox is still alive."""


class SecretsUnknown(MudroomError):
    """The policy, which names secrets, cannot be read."""


class ProjectClosed(MudroomError):
    """A project directory is closed to the user: a fork's changes cannot be collected until it is opened."""


class FileError(MudroomError, OSError):
    """A fork's file cannot be read or changed as requested. ``file_error`` adds Python's own class for the ``errno``,
    such as FileNotFoundError."""

    def __init__(self, number: int | None, why: str, path: object) -> None:
        OSError.__init__(self, number, why, path)
        self.message, self.hint = f"{path}: {why}", ""

    def __reduce__(self) -> tuple[object, ...]:
        return file_error, (OSError(self.errno, self.strerror, self.filename),)


def file_error(error: OSError) -> FileError:
    """Return the error as one that is a MudroomError, too."""
    kind = type(error)
    if kind is not OSError and kind.__name__ not in _FILE_ERRORS:
        _FILE_ERRORS[kind.__name__] = type(kind.__name__, (FileError, kind), {})
    both = _FILE_ERRORS.get(kind.__name__, FileError)
    return both(error.errno, error.strerror or str(error), error.filename)


_FILE_ERRORS: dict[str, type[FileError]] = {}


class ForkMoved(MudroomError):
    """``path`` is the first path that differs from the review. ``what`` is the operation that was not performed,
    ``why`` the difference if it is known."""

    exit_code = 4

    def __init__(self, path: bytes, shown: str, what: str = "applied", why: str = "") -> None:
        because = f" ({why})" if why else ""
        super().__init__(
            f"{shown} in the fork is not what was reviewed{because}; nothing was {what}", "look again: mudroom diff"
        )
        self.path = path


class ForkChanged(ForkMoved):
    """The fork's changes are not the reviewed ones: others, more or fewer."""

    def __init__(self, fork: str, what: str = "applied") -> None:
        MudroomError.__init__(
            self,
            f"{fork} has changed since it was shown; nothing was {what}",
            f"mudroom diff {fork} shows it as it is now",
        )
        self.path = b""


class ForkReplaced(ForkMoved):
    """At rest, the fork's file at ``path`` is another one than the last command left."""

    def __init__(self, path: bytes, shown: str, fork: str) -> None:
        MudroomError.__init__(
            self,
            f"{shown} in {fork} is not the file that its last command left: a part of mudroom's state was restored from"
            " a backup, or another program has changed it",
            f"mudroom exec --fork {fork} -- true records the files as they are now",
        )
        self.path = path


class NotReviewed(ForkMoved):
    """The fork was in use when its changes were shown, so they were not reviewed. ``mounted``: it is still mounted."""

    def __init__(self, fork: str, *, mounted: bool = False) -> None:
        again = f"mudroom unmount {fork}, then mudroom diff {fork}" if mounted else f"mudroom diff {fork}"
        MudroomError.__init__(
            self,
            f"{fork} was in use when it was shown: that was a look, not a review; nothing was applied",
            f"{again} shows it as it is now",
        )
        self.path = b""


class SideMoved(ForkMoved):
    """One side of the conflict at ``path`` has changed since it was shown."""

    def __init__(self, path: bytes, shown: str) -> None:
        MudroomError.__init__(
            self, f"one side of {shown} has changed since you looked; nothing was decided", "look at it again"
        )
        self.path = path


class DecidedMeanwhile(SideMoved):
    """Another process has recorded or withdrawn a decision about the conflict at ``path`` since it was shown."""

    def __init__(self, path: bytes, shown: str) -> None:
        MudroomError.__init__(
            self, f"somebody else has decided about {shown} meanwhile; that was left as it is", "look at it again"
        )
        self.path = path


class MaskedRights(UsageError):
    """``mask`` holds the umask bits that take the user's own rights to new files."""

    def __init__(self, mask: int) -> None:
        super().__init__(f"the umask {mask:04o} takes your own rights to new files", "umask 077 leaves them")


class CommandNotStarted(MudroomError):
    def __init__(self, message: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


class RunUnwritten(MudroomError):
    """A command has run and its changes are collected, but its output or its journal event could not be written.
    ``why`` is the reason. ``fork`` holds the changes if it ``has_changes``."""

    def __init__(
        self, exit_code: int, why: str, hint: str, fork: str, *, has_changes: bool, is_gone: bool = False
    ) -> None:
        where = "are thrown away" if is_gone else f"are in the fork {fork}"
        changes = f", its changes {where}" if has_changes else " and has changed nothing"
        super().__init__(f"the command has run (exit code {exit_code}){changes}; {why}", hint)
        self.ended_with, self.why, self.fork, self.has_changes = exit_code, why, fork, has_changes

    def without_fork(self) -> RunUnwritten:
        """Return the error as it is once the fork is discarded."""
        return RunUnwritten(self.ended_with, self.why, self.hint, self.fork, has_changes=self.has_changes, is_gone=True)


class ApplyUnwritten(MudroomError):
    """An apply, undo or redo is complete in the project, but a later step failed. ``done`` is "applied", "undone" or
    "redone"; ``why`` is the reason."""

    def __init__(self, name: str, done: str, why: str, hint: str = "") -> None:
        super().__init__(f"{name} has been {done}; after that: {why}", hint)
        self.name, self.why = name, why


class LauncherDied(MudroomError):
    """The launcher has ended, as by the kernel where memory is short, and each of its commands with it."""


class ContainerEnded(MudroomError):
    """The container was ended neither by mudroom nor by the command. ``why`` is the engine's reason."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the command was ended with its container: {why}",
            "what it had changed is in its fork; run it again there: nothing was applied",
        )
        self.why = why
