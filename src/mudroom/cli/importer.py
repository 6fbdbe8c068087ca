"""An import finder for mudroom's own modules: it knows where they lie, and reads each file once.

The interpreter's finder lists each directory, and stats and reads a module's files with twice as many system calls.
That costs a cold command 2.5 to 3 ms, half an interpreter's start.

Rules of this file:
1. Byte code is used under the interpreter's own conditions: magic number, and the source's mtime and size. Otherwise,
   and for anything unusual, the interpreter's loader does the work: it compiles and writes the cache.
2. A module that is not where its name says is left to the other finders.
3. A module gets the attributes that the interpreter's finder gives it; tests/cli/test_importer.py compares them.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

_OURS = "mudroom."
_TAG = f".{sys.implementation.cache_tag}.pyc"
_HEADER = 16
"""Bytes: magic number, flags, the source's mtime and size (PEP 552)."""


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, cached: str, source: os.stat_result) -> None:
        super().__init__(name, path)
        self._cached, self._source = cached, source

    def get_code(self, fullname: str) -> CodeType | None:
        code = _read_code(self._cached, self._source)
        if code is None:
            return super().get_code(fullname)
        _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
        return code


def _read_code(path: str, source: os.stat_result) -> CodeType | None:
    """Return the code in a cache file, or None if it does not match the source or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        if data[:_HEADER] != _header(source):
            return None
        code: CodeType = marshal.loads(memoryview(data)[_HEADER:])
        return code
    except (OSError, EOFError, ValueError, TypeError):
        return None


def _header(source: os.stat_result) -> bytes:
    """Return the expected header of a cache file, with flags 0: checked by mtime and size."""
    time, size = int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF
    return MAGIC_NUMBER + bytes(4) + time.to_bytes(4, "little") + size.to_bytes(4, "little")


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if not name.startswith(_OURS) or path is None:
            return None
        directory, stem = path[0], name.rpartition(".")[2]
        file = f"{directory}/{stem}.py"
        try:
            source, is_package = os.stat(file), False
        except OSError:
            directory, stem = f"{directory}/{stem}", "__init__"
            file = f"{directory}/__init__.py"
            try:
                source, is_package = os.stat(file), True
            except OSError:
                return None
        cached = f"{directory}/__pycache__/{stem}{_TAG}"
        spec = ModuleSpec(name, _Loader(name, file, cached, source), origin=file, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [directory]
        spec.has_location, spec.cached = True, cached
        return spec


def install() -> None:
    """Use this finder for mudroom's modules from now on, unless byte code is optimised or stored elsewhere."""
    if sys.implementation.cache_tag and not sys.pycache_prefix and not sys.flags.optimize:
        sys.meta_path.insert(0, _Finder)
