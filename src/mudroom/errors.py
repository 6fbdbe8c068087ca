"""What can go wrong, by whose fault it is.

    MudroomError            mudroom could not do its job                               exit 125
    ├── UsageError          the caller asked for something that cannot be              exit 125
    │   └── Refused         the policy does not let it run here                        exit 126
    ├── Unsupported         a protection was asked for that this machine cannot give   exit 125
    ├── ForkMoved           the fork is not what was reviewed; nothing was applied     exit 4
    │   └── SideMoved       a side of a conflict is not what was looked at             exit 4
    │       └── DecidedMeanwhile  nor is what somebody has decided about it
    ├── ContainerEnded      a command's container was ended before it              exit 125
    └── CommandNotStarted   the command was not found, or may not be executed          exit 127 or 126

A denial, a conflict or a command that fails is not here: those are values (``core/result.py``,
``core/merge/merge.py``). ``message`` says what and why in one line; ``hint`` says what to do about it.
"""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of an OSError: there is no room. Not a failure of what was looked at."""


class MudroomError(Exception):
    exit_code = 125

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(MudroomError):
    pass


class Refused(UsageError):
    exit_code = 126


class Unsupported(MudroomError):
    """``protection`` was asked for; ``needs`` it does; ``found`` is what this machine has instead."""

    def __init__(self, protection: str, needs: str, found: str, hint: str = "") -> None:
        super().__init__(f"{protection} needs {needs}; found: {found}", hint)
        self.protection = protection
        self.needs = needs
        self.found = found


class ForkMoved(MudroomError):
    """``path`` is the first that differs from what was reviewed. ``what`` was not done."""

    exit_code = 4

    def __init__(self, path: bytes, shown: str, what: str = "applied") -> None:
        super().__init__(
            f"{shown} in the fork is not what was reviewed; nothing was {what}", "look again: mudroom diff"
        )
        self.path = path


class SideMoved(ForkMoved):
    """``path``: one side of its conflict is another one than whoever decides has looked at."""

    def __init__(self, path: bytes, shown: str) -> None:
        MudroomError.__init__(
            self, f"one side of {shown} has changed since you looked; nothing was decided", "look at it again"
        )
        self.path = path


class DecidedMeanwhile(SideMoved):
    """``path``: somebody else has decided about its conflict, or taken a decision back, since it was looked at."""

    def __init__(self, path: bytes, shown: str) -> None:
        MudroomError.__init__(
            self, f"somebody else has decided about {shown} meanwhile; that was left as it is", "look at it again"
        )
        self.path = path


class CommandNotStarted(MudroomError):
    def __init__(self, message: str, exit_code: int, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


class ContainerEnded(MudroomError):
    """Not by us, and not by the command. ``why`` is what its engine says."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the command was ended with its container: {why}",
            "what it had changed is in its fork; run it again there: nothing was applied",
        )
        self.why = why
