"""Programs that mudroom starts for the user outside every sandbox, and where they are looked for.

An empty or relative entry in PATH means the current directory or one below it (execvp(3)). That may be a stranger's
project, or one where an agent's files have landed, with a program of the same name.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping


def absolute_entries(search: str) -> str:
    """Return a search path without its relative and empty entries."""
    return os.pathsep.join(filter(os.path.isabs, search.split(os.pathsep)))


def find_program(word: str, environ: Mapping[bytes, bytes]) -> str | None:
    """Return the path of the program that a word means; None if there is none. A word with a slash is a path."""
    search = os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath)))
    found = shutil.which(word, path=absolute_entries(search))
    # On Windows which() looks in the current directory first: then there is none, rather than that one.
    return found if found is None or os.path.isabs(found) or os.path.dirname(word) else None


def require_program(word: bytes, environ: Mapping[bytes, bytes]) -> bytes:
    """Return the path that ``subprocess.Popen`` has to execute for a word. Raise FileNotFoundError if there is no such
    program."""
    if b"/" in word:
        return word  # the system tells why it cannot be executed
    program = find_program(os.fsdecode(word), environ)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return os.fsencode(program)
