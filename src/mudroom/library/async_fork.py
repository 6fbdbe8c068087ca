"""``ForkHandle`` for asyncio, with the same names."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from mudroom.library import async_command
from mudroom.library.async_background import AsyncBackgroundHandle
from mudroom.library.async_output import AsyncOutputStream
from mudroom.library.command import requested
from mudroom.library.fork_handle import ForkHandle
from mudroom.library.worker import in_thread
from mudroom.typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from mudroom.library.argument import CommandLine, StrPath, Word
    from mudroom.library.output import OnOutput
    from mudroom.library.value import Applied, ChangeList, FileInfo, RunResult
    from mudroom.stage.buffer.files import SearchMatch

    Names: TypeAlias = list[str]  # in the class below, ``list`` is a method
    FileInfos: TypeAlias = list[FileInfo]
    Matches: TypeAlias = list[SearchMatch]


class AsyncForkHandle:
    """``ForkHandle`` for asyncio."""

    def __init__(self, fork: ForkHandle) -> None:
        self._fork, self._life, self.name = fork, fork._life, fork.name

    def __repr__(self) -> str:
        return repr(self._fork)

    async def read(self, path: StrPath) -> str:
        return await in_thread(functools.partial(self._fork.read, path))

    async def read_bytes(self, path: StrPath) -> bytes:
        return await in_thread(functools.partial(self._fork.read_bytes, path))

    async def write(self, path: StrPath, content: str | bytes, *, mode: int | None = None) -> None:
        await in_thread(functools.partial(self._fork.write, path, content, mode=mode))

    async def edit(self, path: StrPath, old: str, new: str, *, all: bool = False) -> int:  # noqa: A002
        return await in_thread(functools.partial(self._fork.edit, path, old, new, all=all))

    async def delete(self, path: StrPath, *, recursive: bool = False) -> None:
        await in_thread(functools.partial(self._fork.delete, path, recursive=recursive))

    async def move(self, old: StrPath, new: StrPath) -> None:
        await in_thread(functools.partial(self._fork.move, old, new))

    async def list(self, path: StrPath = "") -> FileInfos:
        return await in_thread(functools.partial(self._fork.list, path))

    async def exists(self, path: StrPath) -> bool:
        return await in_thread(functools.partial(self._fork.exists, path))

    async def glob(self, pattern: str) -> Names:
        return await in_thread(functools.partial(self._fork.glob, pattern))

    async def search(self, regex: str, glob: str = "**", *, limit: int = 1000) -> Matches:
        return await in_thread(functools.partial(self._fork.search, regex, glob, limit=limit))

    async def flush(self) -> None:
        await in_thread(self._fork.flush)

    @asynccontextmanager
    async def mount(self, place: StrPath | None = None, *, writable: bool = True) -> AsyncIterator[Path]:
        mounted = self._fork.mount(place, writable=writable)
        path = await in_thread(mounted.__enter__)
        try:
            yield path
        finally:
            await in_thread(functools.partial(mounted.__exit__, None, None, None))

    async def run(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        check: bool = False,
    ) -> RunResult:
        request = requested(self._life, command, self.name, cwd, timeout, input, env)
        return await async_command.run(self._life, request, on_output, check=check)

    def stream(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
    ) -> AsyncOutputStream:
        return AsyncOutputStream(self._fork.stream(command, cwd=cwd, timeout=timeout, input=input, env=env))

    async def start(
        self,
        command: CommandLine,
        *,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncBackgroundHandle:
        call = functools.partial(self._fork.start, command, cwd=cwd, timeout=timeout, env=env)
        return AsyncBackgroundHandle(await in_thread(call))

    async def changes(self) -> ChangeList:
        return await in_thread(self._fork.changes)

    async def diff(self, paths: Word | Sequence[Word] = ()) -> str:
        return await in_thread(functools.partial(self._fork.diff, paths))

    async def fingerprint(self) -> str:
        return await in_thread(self._fork.fingerprint)

    async def in_use(self) -> str:
        return await in_thread(self._fork.in_use)

    async def apply(
        self,
        paths: Word | Sequence[Word] = (),
        *,
        verify: CommandLine | None = None,
        reviewed: str | None = None,
        git: bool = False,
    ) -> Applied:
        call = functools.partial(self._fork.apply, paths, verify=verify, reviewed=reviewed, git=git)
        return await in_thread(call)

    async def checkpoint(self, name: str) -> None:
        await in_thread(functools.partial(self._fork.checkpoint, name))

    async def checkpoints(self) -> Names:
        return await in_thread(self._fork.checkpoints)

    async def rollback(self, checkpoint: str | None = None) -> str | None:
        return await in_thread(functools.partial(self._fork.rollback, checkpoint))

    async def discard(self) -> None:
        await in_thread(self._fork.discard)
