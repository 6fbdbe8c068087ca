"""Modules that a Windows Python cannot import, each with its reason: ``modules.toml``. Run by ``dev/wine``."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

import mudroom

SOURCE = Path(mudroom.__file__).parent
TABLE = tomllib.loads((Path(__file__).parent / "modules.toml").read_text(encoding="utf-8"))
OPTIONAL = {"textual", "rich", "h2", "cryptography", "fsspec", "keyring", "ray", "pydantic_ai", "langchain_core"}
"""Libraries of extras that ``dev/wine`` does not fetch."""


def modules() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("mudroom", *path.relative_to(SOURCE).with_suffix("").parts)
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in found if not name.endswith("__main__")]


def obstacle(error: BaseException) -> str | None:
    """Return the file of ``src/mudroom`` whose import failed, or None if the reason is another one's."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in OPTIONAL:
        return None
    if isinstance(error, ImportError) and str(error).startswith("cannot import name"):
        return None  # a package whose names are loaded when they are asked for: the reason is told for their own module
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    if any("site-packages" in path.parts for path in frames):
        return None  # a library of this machine, which is not for Windows
    own = [path for path in frames if SOURCE in path.parents]
    return own[-1].relative_to(SOURCE).as_posix()


def test_each_module_imports_or_stands_above_a_file_with_a_reason() -> None:
    stopped: dict[str, list[str]] = {}
    count = 0
    for name in modules():
        try:
            importlib.import_module(name)
        except (ImportError, AttributeError, OSError, TypeError) as error:
            file = obstacle(error)
            if file is not None:
                stopped.setdefault(file, []).append(name)
                continue
        count += 1
    if os.environ.get("MUDROOM_SHOW_MODULES"):
        print(count, *(f"{len(names)} {file}" for file, names in stopped.items()), sep="\n")  # noqa: T201
    known = {*TABLE["open"], *TABLE["elsewhere"]}
    assert not {file: names[:3] for file, names in stopped.items() if file not in known}
    assert sorted(set(TABLE["elsewhere"]) - set(stopped)) == [], "these import by now: take their rows out"
