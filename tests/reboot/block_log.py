"""A disk whose writes and flushes are logged in their order, as ``dm-log-writes`` does it, for kernels without that
module: a file in a file system of FUSE, for a loop device to stand on. No test is here.

    python block_log.py DESCRIPTOR IMAGE LOG        serve the mount that DESCRIPTOR, an open /dev/fuse, belongs to

A flush of the loop device is an fsync(2) of the file, and FUA is a write and a flush (block/blk-flush.c). A write is
in the log before it is answered. Protocol: include/uapi/linux/fuse.h; only what a loop device asks for.
"""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NAME = b"image"
PAGE = 4096
_HEADER = struct.Struct("<IIQQIIII")
_ANSWER = struct.Struct("<IiQ")
_ENTRY = struct.Struct("<cQI")
_WRITE = struct.Struct("<QQIIQII")
_ATTRIBUTES = struct.Struct("<6Q10I")
_LARGEST = 1 << 20
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_UNANSWERED = (2, 36, 42)
"""FORGET, INTERRUPT, BATCH_FORGET."""


class Write(NamedTuple):
    offset: int
    data: bytes


class Log:
    """What ``serve`` has written, for the process that mounts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def end(self) -> int:
        """Return the place behind the last entry."""
        return self._path.stat().st_size

    def entries(self, start: int, end: int) -> list[tuple[int, Write | None]]:
        """Return the writes, and None for a flush, each with the place behind it."""
        return list(self._read(start, end))

    def _read(self, start: int, end: int) -> Iterator[tuple[int, Write | None]]:
        with self._path.open("rb") as file:
            file.seek(start)
            while file.tell() < end:
                kind, offset, length = _ENTRY.unpack(file.read(_ENTRY.size))
                data = file.read(length)
                yield file.tell(), Write(offset, data) if kind == b"W" else None

    def crash(self, before: Path, image: Path, start: int, cut: int, draw: random.Random | None) -> None:
        """Make ``image``: the disk as it may be found if power fails at ``cut``. ``before``: as it was at ``start``.
        ``draw``: of the pages that were written since the last flush, each is kept or lost; None: all are kept."""
        subprocess.run(["cp", "--sparse=always", before, image], check=True)
        entries = [entry for _end, entry in self._read(start, cut)]
        certain = max((number for number, entry in enumerate(entries) if entry is None), default=-1)
        with image.open("r+b", buffering=0) as file:
            for number, entry in enumerate(entries):
                for at in range(0, len(entry.data), PAGE) if entry is not None else ():
                    assert entry is not None
                    if number < certain or draw is None or draw.random() < 0.5:
                        os.pwrite(file.fileno(), entry.data[at : at + PAGE], entry.offset + at)


class _Server:
    def __init__(self, image: str, log: int) -> None:
        self._image, self._log = image, log

    def answer(self, opcode: int, node: int, body: memoryview) -> bytes | int:
        """Return the answer, or an errno."""
        match opcode:
            case 26:  # INIT
                flags = _BIG_WRITES | _MAX_PAGES
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, flags, 16, 12, _LARGEST, 1, _LARGEST // PAGE, 0, 0)
            case 1:  # LOOKUP
                if bytes(body).rstrip(b"\0") != NAME:
                    return errno.ENOENT
                return struct.pack("<QQQQII", 2, 0, 0, 0, 0, 0) + self._attributes(2)
            case 3 | 4:  # GETATTR, SETATTR
                return bytes(16) + self._attributes(node)
            case 14:  # OPEN: the image may be another file each time
                return struct.pack("<QII", os.open(self._image, os.O_RDWR), 0, 0)
            case 15:  # READ
                handle, offset, size = struct.unpack_from("<QQI", body)
                return os.pread(handle, size, offset)
            case 16:  # WRITE
                handle, offset, size, *_rest = _WRITE.unpack_from(body)
                data = body[_WRITE.size : _WRITE.size + size]
                os.writev(self._log, [_ENTRY.pack(b"W", offset, size), data])
                return struct.pack("<II", os.pwrite(handle, data, offset), 0)
            case 20:  # FSYNC
                os.write(self._log, _ENTRY.pack(b"F", 0, 0))
                return b""
            case 18:  # RELEASE
                os.close(struct.unpack_from("<Q", body)[0])
                return b""
            case 17:  # STATFS
                return bytes(80)
            case 38:  # DESTROY
                return b""
            case _:
                return errno.ENOSYS

    def _attributes(self, node: int) -> bytes:
        size = os.stat(self._image).st_size if node == 2 else 0
        mode = 0o100600 if node == 2 else 0o40700
        return _ATTRIBUTES.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


def serve(device: int, image: str, log: int) -> None:
    """Answer until the file system is unmounted."""
    server, buffer = _Server(image, log), bytearray(_LARGEST + PAGE)
    while True:
        try:
            length = os.readv(device, [buffer])
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            if error.errno in (errno.ENOENT, errno.EINTR):  # the request was interrupted
                continue
            raise
        _length, opcode, unique, node, *_rest = _HEADER.unpack_from(buffer)
        if opcode in _UNANSWERED:
            continue
        try:
            found = server.answer(opcode, node, memoryview(buffer)[_HEADER.size : length])
        except OSError as error:
            found = error.errno or errno.EIO
        failure, data = (-found, b"") if isinstance(found, int) else (0, found)
        os.writev(device, [_ANSWER.pack(_ANSWER.size + len(data), failure, unique), data])


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
