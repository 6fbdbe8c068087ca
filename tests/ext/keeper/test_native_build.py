"""The build of the native client into a wheel: with a compiler, without one, and for an editable installation."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.system.launcher import LAUNCHER

ROOT = Path(__file__).parents[3]


class Interface:
    """What hatchling gives a hook; it is not installed here."""

    def __init__(self) -> None:
        self.root = str(ROOT)
        self.said: list[str] = []
        self.app = types.SimpleNamespace(display_info=self.said.append)
        self.metadata = types.SimpleNamespace(core=types.SimpleNamespace(scripts={"mudroom": "mudroom.cli:main"}))


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    name = "hatchling.builders.hooks.plugin.interface"
    interface = types.ModuleType(name)
    interface.BuildHookInterface = Interface  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, interface)
    monkeypatch.delenv("CC", raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "src/native/hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def initialized(build: Any, version: str = "standard") -> tuple[Any, dict[str, Any]]:
    hook, data = build.NativeBuildHook(), {"shared_scripts": {}, "force_include": {}, "pure_python": True}
    hook.initialize(version, data)
    return hook, data


def test_with_a_compiler(build: Any) -> None:
    if not any(shutil.which(name) for name in build.COMPILERS):
        pytest.skip("no C compiler")
    hook, data = initialized(build)
    ((program, name),) = data["shared_scripts"].items()
    assert (name, data["pure_python"]) == ("mudroom", False)
    assert hook.metadata.core.scripts == {"mudroom-python": "mudroom.cli:main"}
    assert data["tag"].startswith("py3-none-") and data["tag"].endswith(os.uname().machine)
    assert ("manylinux" in data["tag"]) != build.is_dynamic(Path(program).read_bytes())
    ((launcher, place),) = data["force_include"].items()
    assert os.fsencode(f"/{place}") == LAUNCHER[-len(place) - 1 :]
    assert os.access(program, os.X_OK) and os.access(launcher, os.X_OK)
    hook.finalize("standard", data, "")
    assert not os.path.exists(program)
    assert hook.metadata.core.scripts == {"mudroom": "mudroom.cli:main"}  # for an editable one, built next


@pytest.mark.parametrize(
    "compiler", ["/nowhere/cc", "false", "true", "echo", "sh -c 'for last; do :; done; echo > $last' sh"]
)
@pytest.mark.parametrize("version", ["standard", "editable"])
def test_without_one_nothing_is_installed(
    build: Any, monkeypatch: pytest.MonkeyPatch, version: str, compiler: str
) -> None:
    """No sandbox works without the launcher: it is not found out later."""
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(SystemExit, match=r"mudroom on Linux needs programs in C, which cannot be built: "):
        initialized(build, version)


@pytest.mark.parametrize(
    ("found", "machine", "variables", "needs"),
    [
        ("", "x86_64", {}, ["ziglang"]),
        ("", "aarch64", {}, ["ziglang"]),
        ("cc", "x86_64", {}, []),
        ("", "riscv64", {}, []),  # the index has none for each of these
        ("", "x86_64", {"CC": "tcc"}, []),
    ],
)
def test_a_machine_without_a_compiler_gets_one_for_the_build(
    build: Any, monkeypatch: pytest.MonkeyPatch, found: str, machine: str, variables: dict[str, str], needs: list[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == found else None)
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine=machine))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build.NativeBuildHook().dependencies() == needs


@pytest.mark.deep
def test_an_editable_installation(build: Any, tmp_path: Path) -> None:
    """It has the launcher in its tree."""
    tree = tmp_path / "tree"
    (tree / "src/mudroom/sandbox/client").mkdir(parents=True)
    shutil.copytree(ROOT / "src/native", tree / "src/native")
    editable = build.NativeBuildHook()
    editable.root = str(tree)
    data: dict[str, Any] = {"shared_scripts": {}, "force_include": {}, "pure_python": True}
    editable.initialize("editable", data)
    assert list(data["shared_scripts"].values()) == ["mudroom"] and data["force_include"] == {}
    assert os.access(tree / "src" / build.LAUNCHER_PLACE, os.X_OK)
    editable.finalize("editable", data, "")


def test_a_wheel_for_other_systems_is_none_for_linux(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installer there takes the archive of the source, and builds it."""
    monkeypatch.setenv("MUDROOM_WHEEL", "elsewhere")
    hook, data = initialized(build)
    assert (data["shared_scripts"], data["force_include"], data["pure_python"]) == ({}, {}, True)
    assert {part.partition("_")[0] for part in data["tag"].removeprefix("py3-none-").split(".")} == {"macosx", "win"}
    hook.finalize("standard", data, "")


def test_on_another_system(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert initialized(build)[1]["shared_scripts"] == {}


def elf(machine: int, *kinds: int) -> bytes:
    """A 64-bit little-endian header with program headers of these kinds (elf(5))."""
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    header[18:20] = machine.to_bytes(2, "little")
    header[32:40] = (64).to_bytes(8, "little")
    header[54:56], header[56:58] = (56).to_bytes(2, "little"), len(kinds).to_bytes(2, "little")
    return bytes(header) + b"".join(kind.to_bytes(4, "little").ljust(56, b"\0") for kind in kinds)


def test_tags(build: Any) -> None:
    assert build.tag_of(elf(0x3E, 1, 2)) == "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64"
    assert build.tag_of(elf(0x3E, 1, 3, 2)) == "py3-none-linux_x86_64"
    assert build.tag_of(elf(0xB7)) == "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64"


def test_the_archive_of_the_source_has_it() -> None:
    """It lies outside the package, so a wheel has no source of it."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'path = "src/native/hatch_build.py"' in text
    assert (ROOT / "src/native/mudroom.c").is_file() and not (ROOT / "src/mudroom/native").exists()
