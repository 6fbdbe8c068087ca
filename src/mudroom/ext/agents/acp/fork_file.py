"""The agent's file calls, answered from the fork: ``fs/read_text_file`` and ``fs/write_text_file``.

Only the fork is read. The editor is never asked, so its unsaved text is not seen; saved text is seen unless the fork
has its own version of the file.

A path is absolute. It is resolved as by open(2), through the fork's links; a path that leads out of the project is
refused. For a missing file the answer has the SDKs' words (``RequestError.resourceNotFound``): agents look for these
words, and take any other error for a failure.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.acp.message import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, CallError
from mudroom.stage.buffer.files import Files
from mudroom.stage.views.lookup import resolve
from mudroom.typing import Any, BinaryIO

MOST_TEXT = 16 << 20
"""Bytes in an answer. The SDKs end a connection at a message of 32 MiB (npm). A file in the fork may have any size at
no cost to the agent: holes take no space."""
_HEAD = 8192
"""Bytes in which a NUL marks a file as binary, as in git."""
_PIECE = 1 << 16


class ForkFileCalls:
    """A fork's files for an agent's calls. Thread-safe, because its attributes are."""

    def __init__(self, files: Files, project: bytes, fork: str, flush: Callable[[], object]) -> None:
        """``flush``: puts writes on disk, where other processes see them and they survive SIGKILL."""
        self._files, self._project, self._fork, self._flush = files, project, fork, flush

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a call's result. Raise CallError if it fails."""
        named = params.get("path")
        if not isinstance(named, str) or not named.startswith("/"):
            raise CallError(INVALID_PARAMS, "path has to be an absolute path")
        try:
            if method == "fs/read_text_file":
                return {"content": self._read(named, params)}
            self._write(named, params)
        except UsageError as error:
            raise CallError(INVALID_PARAMS, str(error)) from error
        except MudroomError as error:
            raise CallError(INTERNAL_ERROR, str(error)) from error
        except FileNotFoundError as error:
            raise CallError(
                NOT_FOUND, f"Resource not found: {named} (in the fork {self._fork})", {"uri": named}
            ) from error
        except OSError as error:
            code = INTERNAL_ERROR if error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT) else INVALID_PARAMS
            raise CallError(code, f"{named}: {error.strerror or error}") from error
        return {}

    def _read(self, named: str, params: dict[str, Any]) -> str:
        line, limit = _count(params, "line"), _count(params, "limit")
        with self._files.open(self._place(named)) as stream:
            data = _lines(stream, named, max(line or 1, 1), limit)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise CallError(INVALID_PARAMS, f"{named} is not UTF-8: a command can read its bytes") from None

    def _write(self, named: str, params: dict[str, Any]) -> None:
        content = params.get("content")
        if not isinstance(content, str):
            raise CallError(INVALID_PARAMS, "content has to be text")
        try:
            data = content.encode("utf-8")
        except UnicodeEncodeError:
            raise CallError(INVALID_PARAMS, "content holds half of a surrogate pair, which is no character") from None
        self._files.write(self._place(named), data)
        self._flush()

    def _place(self, named: str) -> bytes:
        """Return the path in the project that an absolute path leads to; its end need not exist."""
        if "\0" in named:
            raise CallError(INVALID_PARAMS, "path holds a NUL")
        try:
            path = named.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise CallError(INVALID_PARAMS, "path holds half of a surrogate pair, which is no character") from None
        tree, missing = self._files.tree(), list[bytes]()
        while True:
            inside, outside = resolve(tree, self._project, path)
            if outside or inside == b"":
                raise CallError(INVALID_PARAMS, self._refusal(named, outside))
            if inside is not None:
                return b"/".join([inside, *reversed(missing)])
            path, _slash, name = path.rstrip(b"/").rpartition(b"/")
            if name == b".." or not path:
                raise CallError(INVALID_PARAMS, self._refusal(named, b""))
            if name not in (b"", b"."):
                missing.append(name)
            if path.rstrip(b"/") == self._project:
                return b"/".join(reversed(missing))

    def _refusal(self, named: str, outside: bytes) -> str:
        leads = f" leads to {show(outside)}, which" if outside and os.fsencode(named) != outside else ""
        place = show(self._project)
        return f"{named}{leads} is outside the project: file calls reach the files of {place} in the fork {self._fork}"


def _lines(stream: BinaryIO, named: str, first: int, limit: int | None) -> bytes:
    """Return ``limit`` lines from ``first`` (counted from 1) with their ends. Raise CallError for a binary file, and
    for more than ``MOST_TEXT`` bytes."""
    if b"\0" in stream.read(_HEAD):
        raise CallError(INVALID_PARAMS, f"{named} is binary: a command can read its bytes")
    stream.seek(0)
    pieces, size, number = list[bytes](), 0, 1
    while (limit is None or number < first + limit) and (piece := stream.readline(_PIECE)):
        if number >= first:
            size += len(piece)
            pieces.append(piece)
        if size > MOST_TEXT:
            text = (
                f"{named}: more than {MOST_TEXT >> 20} MiB of text; read it in parts by line and limit, or by a command"
            )
            raise CallError(INVALID_PARAMS, text)
        number += piece.endswith(b"\n")
    return b"".join(pieces)


def _count(params: dict[str, Any], name: str) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CallError(INVALID_PARAMS, f"{name} has to be a count")
    return value
