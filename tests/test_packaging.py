"""What is made for a release: the description, the tree of several wheels, the zipapp and the Debian package."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from satellites import whole

ROOT = Path(__file__).resolve().parents[1]
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", ROOT / f"packaging/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tree: Any = _load("tree")
metadata: Any = _load("metadata")


def test_the_description_has_no_link_without_an_address() -> None:
    text = metadata.described((ROOT / "README.md").read_text())
    outside_blocks = "".join(text.split("```")[::2])
    assert "](docs/" not in outside_blocks and "![" not in outside_blocks
    assert metadata.described("[a](docs/A.md) [b](https://b.example) ![p](p.png)\n") == "a [b](https://b.example) "
    assert metadata.described("```\n[a](b)\n```") == "```\n[a](b)\n```"


@whole
def test_the_licence_covers_what_is_vendored() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {"Apache License": "Apache-2.0", "BSD 3-Clause": "BSD-3-Clause", "The MIT License": "MIT"}
    licences = [path for pattern in project["license-files"] for path in ROOT.glob(pattern)]
    assert {path.name for path in licences} > {"LICENSE", "preact.LICENSE", "musl.LICENSE"}
    texts = [path.read_text() for path in licences]
    assert set(project["license"].split(" AND ")) == {
        known[name] for name in known for text in texts if name in text[:300]
    }
    assert "urls" not in project  # the project has no public address yet


def _wheel(place: Path, name: str, files: dict[str, str]) -> None:
    with zipfile.ZipFile(place / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    place = tmp_path / "wheels"
    place.mkdir()
    main = "import os, sys\ndef main():\n    print('ran', *sys.argv[1:], os.path.dirname(sys.executable))\n"
    own = {"mudroom/__init__.py": "", "mudroom/cli.py": main, "mudroom-1.dist-info/RECORD": ""}
    _wheel(place, "mudroom-1-py3-none-any.whl", own)
    for version in ("311", "313"):
        files = {"fast/__init__.py": "same", f"fast/_c.cpython-{version}.so": version}
        _wheel(place, f"fast-1-cp{version}-cp{version}-linux.whl", files)
    return place


def _build(wheels: Path, target: Path) -> Path:
    tree.build(wheels, target, [VERSION])
    return target


def test_extension_modules_of_several_versions_lie_beside_each_other(wheels: Path, tmp_path: Path) -> None:
    site = _build(wheels, tmp_path / "tree") / tree.SITE
    assert sorted(path.name for path in (site / "fast").iterdir()) == [
        "__init__.py", "_c.cpython-311.so", "_c.cpython-313.so",
    ]  # fmt: skip


def test_wheels_that_differ_in_a_common_file_stop_the_build(wheels: Path, tmp_path: Path) -> None:
    _wheel(wheels, "fast-1-cp312-cp312-linux.whl", {"fast/__init__.py": "other"})
    with pytest.raises(SystemExit, match=r"fast/__init__\.py is not the same in two wheels"):
        _build(wheels, tmp_path / "tree")


def test_the_same_wheels_make_the_same_bytes(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = []
    for name, mask in (("a", 0o022), ("b", 0o077)):
        before = os.umask(mask)
        try:
            target = _build(wheels, tmp_path / name)
            tree.zipapp(target, tmp_path / f"{name}.pyz")
            tree.deb(target, tmp_path / f"{name}.deb")
        finally:
            os.umask(before)
        made.append([(tmp_path / f"{name}{end}").read_bytes() for end in (".pyz", ".deb")])
    assert made[0] == made[1]


def test_the_debian_package_is_whole_and_owned_by_root(wheels: Path, tmp_path: Path) -> None:
    tree.deb(_build(wheels, tmp_path / "tree"), tmp_path / "m.deb")
    subprocess.run(["ar", "x", "m.deb"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "data.tar.xz") as archive:
        members = {item.name: item for item in archive.getmembers()}
    assert members["./usr/bin/mudroom"].mode == 0o755
    assert members["./usr/lib/mudroom/bin/python3"].linkname == "/usr/bin/python3"
    assert {(item.uid, item.gid, item.mode & 0o022) for item in members.values() if not item.issym()} == {(0, 0, 0)}


@pytest.fixture
def native_wheels(wheels: Path) -> Path:
    """The native client in mudroom's wheel: here a script that starts the one beside it, as the client does."""
    client = '#!/bin/sh\nexec "${0%/*}/mudroom-python" by-client "$@"\n'
    with zipfile.ZipFile(wheels / "mudroom-1-py3-none-any.whl", "a") as archive:
        archive.writestr("mudroom-1.data/scripts/mudroom", client)
        launcher = zipfile.ZipInfo("mudroom/sandbox/client/mudroom-launcher-2")
        launcher.external_attr = 0o755 << 16
        archive.writestr(launcher, "launcher")
    (wheels / "mudroom-1-py3-none-any.whl").rename(wheels / "mudroom-1-py3-none-manylinux_2_17_x86_64.whl")
    return wheels


def test_the_debian_package_has_the_native_client(native_wheels: Path, tmp_path: Path) -> None:
    tree.deb(_build(native_wheels, tmp_path / "tree"), tmp_path / "m.deb")
    subprocess.run(["ar", "x", "m.deb"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "data.tar.xz") as archive:
        modes = {
            item.name: item.mode for item in archive.getmembers() if "/bin/" in item.name or "launcher" in item.name
        }
        script = archive.extractfile("./usr/bin/mudroom-python")
        assert script is not None and script.read().startswith(b"#!/usr/lib/mudroom/bin/python3\n")
        client = archive.extractfile("./usr/bin/mudroom")
        assert client is not None and b"by-client" in client.read()
    assert modes["./usr/bin/mudroom"] == modes["./usr/bin/mudroom-python"] == 0o755
    assert modes[f"./usr/lib/mudroom/{tree.SITE}/mudroom/sandbox/client/mudroom-launcher-2"] == 0o755
    assert [name for name in modes if name.startswith("./usr/lib/mudroom/bin/m")] == []


def test_the_zipapp_has_the_native_client(native_wheels: Path, tmp_path: Path) -> None:
    tree.zipapp(_build(native_wheels, tmp_path / "tree"), tmp_path / "m.pyz")
    (tmp_path / "project").mkdir()
    with tempfile.TemporaryDirectory() as cache:  # the first line of a script has room for 127 bytes
        first = _start(tmp_path / "m.pyz", "a b", XDG_CACHE_HOME=cache)
        [place] = Path(cache, "mudroom/zipapp").iterdir()
        assert (first.stdout, first.stderr) == (f"ran by-client a b {place}/bin\n", "")
        for damage in ((place / "bin/mudroom-python").unlink, lambda: (place / "bin/mudroom").write_text("")):
            damage()
            again = _start(tmp_path / "m.pyz", "again", XDG_CACHE_HOME=cache)
            assert again.stdout == f"ran by-client again {place}/bin\n"
        (place / "bin/mudroom").chmod(0o644)  # as a program that this machine cannot execute
        assert _start(tmp_path / "m.pyz", "again", XDG_CACHE_HOME=cache).stdout == f"ran again {place}/bin\n"
    spaced = _start(tmp_path / "m.pyz", XDG_CACHE_HOME=str(tmp_path / "a cache"))
    assert (spaced.stderr, spaced.stdout.startswith(f"ran {tmp_path}/a cache/mudroom")) == ("", True)


@pytest.fixture
def archive(wheels: Path, tmp_path: Path) -> Path:
    tree.zipapp(_build(wheels, tmp_path / "tree"), tmp_path / "m.pyz")
    (tmp_path / "project").mkdir()
    return tmp_path / "m.pyz"


def _start(archive: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.defpath, "HOME": str(archive.parent), "XDG_CACHE_HOME": str(archive.parent / "cache")} | more
    python = getattr(sys, "_base_executable", sys.executable)
    return subprocess.run(
        [python, archive, *words],
        cwd=archive.parent / "project", env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_zipapp_unpacks_once_and_runs_what_lies_there(archive: Path) -> None:
    (archive.parent / "project/mudroom.py").write_text("raise SystemExit('the project runs')")
    first = _start(archive, "a b", "--x")
    [place] = (archive.parent / "cache/mudroom/zipapp").iterdir()
    assert (first.stdout, first.stderr) == (f"ran a b --x {place}/bin\n", "")
    stamp = place.stat().st_ino
    assert _start(archive).returncode == 0
    assert place.stat().st_ino == stamp
    (place / tree.SITE / "mudroom/cli.py").unlink()
    assert _start(archive, "again").stdout.startswith("ran again")


def test_a_damaged_zipapp_runs_nothing(archive: Path) -> None:
    with zipfile.ZipFile(archive) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    entries[f"tree/{tree.SITE}/mudroom/cli.py"] = b"def main(): print('other')"
    with zipfile.ZipFile(archive, "w") as new:
        for name, data in entries.items():
            new.writestr(name, data)
    done = _start(archive)
    assert (done.returncode, done.stdout) == (125, "")
    assert "is damaged at lib/python3/site-packages/mudroom/cli.py" in done.stderr
    assert list((archive.parent / "cache/mudroom/zipapp").iterdir()) == []


def test_a_cache_that_others_may_write_to_is_refused(archive: Path) -> None:
    place = archive.parent / "cache/mudroom/zipapp"
    place.mkdir(parents=True)
    place.chmod(0o777)
    done = _start(archive)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith("is not a directory of yours alone (chmod go-w it, or set XDG_CACHE_HOME)\n")


@pytest.mark.both_users
@pytest.mark.root
def test_a_cache_that_others_may_rename_is_refused(archive: Path) -> None:
    parent = archive.parent / "cache/mudroom"
    parent.mkdir(parents=True)
    parent.chmod(0o777)
    done = _start(archive)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.endswith(f"they may write to {parent} (set XDG_CACHE_HOME)\n")
    parent.chmod(0o1777)
    assert _start(archive).returncode == 0
    if os.geteuid() == 0:
        os.chown(parent, 65534, 65534)
        assert _start(archive).returncode == 125


def test_the_cache_is_never_in_the_current_directory(archive: Path) -> None:
    for home in (".", "sub"):
        done = _start(archive, HOME=home, XDG_CACHE_HOME="")
        assert (done.returncode, done.stdout) == (125, ""), home
        assert done.stderr == "mudroom: there is no home directory (set XDG_CACHE_HOME to a directory of your own)\n"
    assert list((archive.parent / "project").iterdir()) == []


def test_a_place_that_another_start_made_whole_meanwhile_stays(archive: Path) -> None:
    """The other start may run from it already."""
    assert _start(archive).returncode == 0
    [place] = (archive.parent / "cache/mudroom/zipapp").iterdir()
    (place.parent / "new-cut-off").mkdir()
    stamp = place.stat().st_ino
    source = (ROOT / "packaging/zipapp/__main__.py").read_text().removesuffix("main()\n")
    start: dict[str, Any] = {}
    exec(source, start)
    with zipfile.ZipFile(archive) as opened:
        manifest = json.loads(opened.read("manifest.json"))
        manifest.pop("pyvenv.cfg", None)
        start["unpack"](opened, manifest, str(place), VERSION)
        assert place.stat().st_ino == stamp
        (place / tree.SITE / "mudroom/cli.py").unlink()
        start["unpack"](opened, manifest, str(place), VERSION)
    assert [path.name for path in place.parent.iterdir()] == [place.name], "what a killed start left is removed"


def test_completions_of_the_wheel_lie_where_a_debian_looks(wheels: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels / "mudroom-1-py3-none-any.whl", "a") as archive:
        for source in tree._SHARED:
            archive.writestr(f"mudroom-1.data/data/share/{source}", "text")
    tree.deb(_build(wheels, tmp_path / "tree"), tmp_path / "m.deb")
    subprocess.run(["ar", "x", "m.deb"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "data.tar.xz") as archive:
        names = archive.getnames()
    for place in tree._SHARED.values():
        assert f"./usr/share/{place}" + (".gz" if place.startswith("man/") else "") in names
    assert not [name for name in names if name.startswith("./usr/lib/mudroom/share")]


def test_apt_finds_the_package_in_a_repository_of_files(wheels: Path, tmp_path: Path) -> None:
    place = tmp_path / "apt"
    place.mkdir()
    tree.deb(_build(wheels, tmp_path / "tree"), place / "mudroom_1_amd64.deb")
    tree.apt(place)
    packages = (place / "Packages").read_bytes()
    told = dict(line.split(": ", 1) for line in packages.decode().splitlines() if ": " in line)
    content = (place / "mudroom_1_amd64.deb").read_bytes()
    assert told["Package"] == "mudroom" and told["Filename"] == "./mudroom_1_amd64.deb"
    assert (told["Size"], told["SHA256"]) == (str(len(content)), hashlib.sha256(content).hexdigest())
    assert f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n" in (place / "Release").read_text()


def test_the_parts_list_names_each_wheel_and_what_is_vendored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, version, more in (("mudroom", "1", "License-Expression: MIT"), ("Fast_Thing", "2", "License: other")):
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{more}\n"
        _wheel(tmp_path, f"{name}-{version}-py3-none-any.whl", {f"{name}-{version}.dist-info/METADATA": metadata})
    texts = []
    for number in (1, 2):
        tree.sbom(tmp_path, tmp_path / f"{number}.json")
        texts.append((tmp_path / f"{number}.json").read_text())
    assert texts[0] == texts[1]
    made = json.loads(texts[0])
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/mudroom@1"
    assert made["metadata"]["component"]["licenses"] == [{"expression": "MIT"}]
    names = {part["name"]: part for part in made["components"]}
    assert set(names) == {"Fast_Thing", "preact", "htm", "@highlightjs/cdn-assets"}
    content = (tmp_path / "Fast_Thing-2-py3-none-any.whl").read_bytes()
    assert names["Fast_Thing"]["externalReferences"][0]["hashes"][0]["content"] == hashlib.sha256(content).hexdigest()
    assert made["dependencies"][0]["dependsOn"] == sorted(part["purl"] for part in names.values())
