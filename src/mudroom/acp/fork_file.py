"""File calls of the agent, answered from the fork: ``fs/read_text_file`` and ``fs/write_text_file``.

The fork is the truth. The editor is never asked, so text that it has not saved is not seen; what it saves is seen
unless the fork has its own version of the file.

A path is absolute. It is resolved as open(2) does, through the links of the fork; a path that leads out of the project
is refused. A file that is missing is answered in the words of the SDKs (``RequestError.resourceNotFound``): agents
look for these words, and take any other error for a failure.
"""

from __future__ import annotations

import errno
import os

from mudroom.acp.message import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, CallError
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.buffer.files import Files
from mudroom.stage.views.lookup import resolve
from mudroom.typing import Any


class ForkFileCalls:
    """The files of a fork for calls of an agent. Thread-safe: its attributes are."""

    def __init__(self, files: Files, project: bytes, fork: str) -> None:
        self._files, self._project, self._fork = files, project, fork

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a call. Raise CallError."""
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
        text = self._files.read_text(self._place(named), max(line or 1, 1), limit)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise CallError(INVALID_PARAMS, f"{named} is not UTF-8: a command can read its bytes") from None
        return text

    def _write(self, named: str, params: dict[str, Any]) -> None:
        content = params.get("content")
        if not isinstance(content, str):
            raise CallError(INVALID_PARAMS, "content has to be text")
        try:
            data = content.encode("utf-8")
        except UnicodeEncodeError:
            raise CallError(INVALID_PARAMS, "content holds half of a surrogate pair, which is no character") from None
        self._files.write(self._place(named), data)

    def _place(self, named: str) -> bytes:
        """Return the path in the project that an absolute path leads to; its end need not exist."""
        path = named.encode("utf-8", "surrogateescape")
        if b"\0" in path:
            raise CallError(INVALID_PARAMS, "path holds a NUL")
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


def _count(params: dict[str, Any], name: str) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CallError(INVALID_PARAMS, f"{name} has to be a count")
    return value
