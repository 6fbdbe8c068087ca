"""The table in a layer's directory on Windows: the whiteouts and marks that are devices and attributes elsewhere.

Rules of this file:
1. Only below a directory that ``open_layer`` has opened is there a table. Its handle has the right FILE_DELETE_CHILD,
   which no other code here asks for, and a directory that is opened relative to such a handle gets it, too. A project,
   a command's copy and an apply's slots are opened without: a file with the table's name is an ordinary file there,
   whatever it says.
2. The table's name is invalid here, in any case (``why_unnamed``): a file that has it is reported and not staged, so it
   becomes no table. A directory that comes into a layer whole is searched for the name first.
3. A name is white-out as it is spelled. A layer may have the file ``README`` and a whiteout for ``readme``: the file's
   name has changed its case.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import errno
import json
import msvcrt
import os
from contextlib import suppress

from mudroom.ext.windows.stage.nt_call import (
    DELETE,
    DELETE_CHILD,
    GENERIC_READ,
    GENERIC_WRITE,
    IS_DIRECTORY,
    IS_FILE,
    LIST,
    OPEN,
    OVERWRITE_IF,
    READ_ATTRIBUTES,
    TABLE,
    WRITE_ATTRIBUTES,
    close,
    create,
    delete,
    granted,
    is_table,
    kinds,
    naming,
    refuse_link,
    rename_open,
    repeat,
)
from mudroom.typing import Any

_LARGEST = 1 << 24
"""The largest table, in bytes: 100,000 names with 160 letters."""
_REMOVAL = DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES


def is_layer(handle: int) -> bool:
    """Return whether a directory was opened as a layer's."""
    return bool(granted(handle) & DELETE_CHILD)


def read_table(root: int) -> Any:
    """Return an open directory's table; an empty table outside a layer. Raise OSError (EIO) if it is invalid: a layer
    is not guessed at."""
    empty: dict[str, list[str] | dict[str, str]] = {"gone": [], "marks": {}}
    if not is_layer(root):
        return empty
    try:
        handle = create(root, TABLE, GENERIC_READ, options=IS_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return empty
    with os.fdopen(_descriptor(handle, os.O_RDONLY), "rb") as stream:
        data = stream.read() if os.fstat(stream.fileno()).st_size <= _LARGEST else b""
    with suppress(ValueError, KeyError, TypeError):
        table = json.loads(data)
        if all(isinstance(table[key], type(value)) for key, value in empty.items()):
            return table
    raise OSError(errno.EIO, "the table of this layer is damaged", TABLE)


def write_table(root: int, table: Any) -> None:
    """Replace the table whole; remove it if it is empty. Raise OSError (ENOTSUP) outside a layer."""
    if not is_layer(root):
        raise OSError(errno.ENOTSUP, "only a layer has whiteouts and marks here")
    new = TABLE + ".new"
    handle = create(root, new, GENERIC_WRITE, OVERWRITE_IF, IS_FILE)
    with os.fdopen(_descriptor(handle, os.O_WRONLY), "wb") as stream:
        stream.write(json.dumps(table).encode())
    if not any(table.values()):
        drop_table(root)
        return
    handle = create(root, new, _REMOVAL)
    try:
        repeat(lambda: rename_open(handle, naming(3, root, TABLE), naming(1, root, TABLE)), root, TABLE, TABLE)
    finally:
        close(handle)


def drop_table(root: int) -> None:
    """Remove a directory's table, if it has one: from a layer's directory that is about to leave the layer."""
    for name in (TABLE, TABLE + ".new"):  # the second is left where a process was ended
        with suppress(FileNotFoundError):
            delete(create(root, name, _REMOVAL, options=IS_FILE), name)


def drop_whiteout(root: int, name: str) -> bool:
    table = read_table(root)
    if name not in table["gone"]:
        return False
    write_table(root, {**table, "gone": [other for other in table["gone"] if other != name]})
    return True


def is_gone(root: int, name: str) -> bool:
    return name in read_table(root)["gone"]


def refuse_tables(root: int, name: str) -> None:
    """Raise OSError (EINVAL) if a directory that is to come into a layer holds a file with the table's name."""
    pending = [create(root, name, LIST, OPEN, IS_DIRECTORY)]
    try:
        while pending:
            handle = pending.pop()
            try:
                refuse_link(handle, name)
                for below, is_directory in kinds(handle):
                    if is_table(below):
                        raise OSError(errno.EINVAL, "it holds a file that looks like a table of a layer", below)
                    if is_directory:
                        pending.append(create(handle, below, LIST, OPEN, IS_DIRECTORY))
            finally:
                close(handle)
    finally:
        for handle in pending:
            close(handle)


def _descriptor(handle: int, flags: int) -> int:
    try:
        refuse_link(handle, TABLE)
        return msvcrt.open_osfhandle(handle, flags | os.O_NOINHERIT)
    except BaseException:
        close(handle)
        raise
