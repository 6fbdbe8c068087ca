"""Why a command did not run: errors from the launcher's reports."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from mudroom.core.command.pattern_text import as_words, quote_words
from mudroom.core.confinement.plan import Step, describe
from mudroom.core.tree.path import show
from mudroom.errors import CommandNotStarted, MudroomError, UsageError
from mudroom.sandbox.client.report import StepFailed
from mudroom.typing import Any

ENOENT, E2BIG, ENOTDIR, ELOOP = 2, 7, 20, 40


def failure_of(record: tuple[Any, ...], steps: Sequence[Step], program: bytes) -> MudroomError:
    _failed, index, op, number, detail = record
    if op == "exec":
        return _not_started(program, number)
    if op == "beneath" and number == ELOOP:
        place = show(b"/" + steps[index][1])
        message = f"cannot set up the sandbox: the image has a symbolic link on the way to {place}"
        return StepFailed(op, number, message)
    if op == "program":
        message = "cannot set up the sandbox: a command could change the program that starts it: it is not sealed"
        return StepFailed(op, number, message, "mudroom doctor tries the sandbox")
    if op == "cwd" and index >= 0:
        wrong = no_directory(steps[index][1], number)
        return StepFailed(op, number, wrong.message, wrong.hint)
    step = describe(steps[index]) if index >= 0 else op
    why = os.strerror(number)
    message = f"cannot set up the sandbox: {step}: {why}" + (f" {detail}" if detail not in ("", why) else "")
    hint = "permit more open files: ulimit -n 1024" if number in _OPEN_FILES else _TOO_LITTLE.get((op, number), "")
    return StepFailed(op, number, message, hint)


def no_directory(path: bytes, number: int) -> UsageError:
    return UsageError(
        f"the command cannot work in {show(path)}: {os.strerror(number)}", "mkdir -p makes it in the fork"
    )


_OPEN_FILES = (errno.EMFILE, errno.ETOOMANYREFS)
"""This process's own, and all the user's that are in transit through sockets (unix(7))."""
_TOO_LITTLE = {
    ("clone", errno.EAGAIN): "permit more processes: ulimit -u",
    ("clone", errno.ENOMEM): "permit more memory: ulimit -v",
}
"""Hints for a user's limit that is too small, by operation and errno (clone(2))."""


_OF_SHELLS = ("cd", "export", "source", ".", "alias", "set", "unset", "ulimit", "umask", "eval", "exec")
"""Words that a shell performs itself: there is no program for them."""


def _not_started(program: bytes, number: int) -> CommandNotStarted:
    name = os.fsdecode(program)
    if not program:
        return CommandNotStarted(
            "'': command not found", 127, "the first word is empty: is a variable of the shell unset?"
        )
    if number in (ENOENT, ENOTDIR) and " " in name and not name.startswith(("/", ".")):
        return CommandNotStarted(f"{name}: command not found", 127, _apart(name))
    if number in (ENOENT, ENOTDIR) and name in _OF_SHELLS:
        line = f"mudroom run -- sh -c '{name} … && COMMAND'"
        return CommandNotStarted(f"{name}: command not found", 127, f"a word of the shell itself: {line}")
    if number in (ENOENT, ENOTDIR):
        return CommandNotStarted(f"{name}: command not found", 127, "the sandbox sees the PATH of this shell")
    hint = "is it an executable file?"
    if number == E2BIG:  # execve(2), MAX_ARG_STRLEN
        hint = "one argument has at most 128 KiB, all together a quarter of the stack's limit: put it into a file"
    if number == errno.EAGAIN:  # from clone(2), or from ``is_of_the_sandbox`` in ``src/native/launcher/command.c``
        hint = "no process is left (ulimit -u, --processes), or another program has a lease on the file"
    if number == errno.EBUSY:  # seccomp(2): SECCOMP_FILTER_FLAG_NEW_LISTENER, once in a tree of filters
        return CommandNotStarted(
            f"{name}: a sandbox that watches system calls is around this one already", 126, "run it without mudroom"
        )
    return CommandNotStarted(f"{name}: {os.strerror(number).lower()}", 126, hint)


def _apart(name: str) -> str:
    """Return the line to type instead of a command given as one word. The user's own shell interprets nothing in it."""
    words = as_words(name)
    line = quote_words(words) or "sh -c LINE"
    return f"{'a line of a shell' if words[0] == b'sh' else 'its words stand apart'}: mudroom run -- {line}"
