"""A file that another program holds open and shares with nobody: it can be seen, and neither read nor replaced.

On Windows a handle that shares nothing does it. Elsewhere the calls of ``os`` and of the module ``disk`` raise EBUSY
for this file, as open(2) does on a mounted share of such a system (STATUS_SHARING_VIOLATION in
fs/smb/client/smb2maperror.c).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from mudroom.stage import disk


@contextmanager
def held(*paths: Path) -> Iterator[None]:
    with ExitStack() as stack:
        if sys.platform == "win32":
            for path in paths:
                handle = _hold(path)
                stack.callback(os.close, handle)
        else:
            twin = _Twin(paths)
            for name in ("open", "rename", "unlink", "link"):
                stack.enter_context(mock.patch.object(os, name, twin.of_os(getattr(os, name))))
            for name in ("_openat2", "_renameat2"):
                stack.enter_context(mock.patch.object(disk, name, twin.of_disk(name, getattr(disk, name))))
        yield


class _Twin:
    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._held = {(path.stat().st_dev, path.stat().st_ino) for path in paths}

    def _refuse(self, at: int | None, name: Any) -> None:
        try:
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
        except OSError:
            return  # the call itself has the word
        if (found.st_dev, found.st_ino) in self._held:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)

    def of_os(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def tried(path: Any, *words: Any, **named: Any) -> Any:
            if not (call.__name__ == "open" and words[0] & (disk.O_PATH | os.O_CREAT)):
                self._refuse(named.get("dir_fd", named.get("src_dir_fd")), path)
            if call.__name__ == "rename":
                self._refuse(named.get("dst_dir_fd"), words[0])
            return call(path, *words, **named)

        return tried

    def of_disk(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def tried(at: int, path: Any, *words: Any) -> Any:
            if name == "_renameat2":
                self._refuse(at, path)
                self._refuse(words[0], words[1])
            elif not words[0] & disk.O_PATH:
                self._refuse(at, path)
            return call(at, path, *words)

        return tried


def _hold(path: Path) -> int:
    """CreateFileW with a share mode of 0."""
    import ctypes
    import msvcrt

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    kernel.CreateFileW.restype = ctypes.c_void_p
    handle = kernel.CreateFileW(str(path), 0x80000000, 0, None, 3, 0, None)
    assert handle not in (None, ctypes.c_void_p(-1).value), path
    descriptor: int = msvcrt.open_osfhandle(int(handle), os.O_RDONLY)  # type: ignore[attr-defined, unused-ignore]
    return descriptor
