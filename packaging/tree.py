#!/usr/bin/env python3
"""A tree of mudroom with all of its dependencies, for several versions of Python at once.

    tree.py fetch WHEELS PYTHON…      download the dependencies of the wheel in WHEELS, for each version (3.11 3.13)
    tree.py build WHEELS TREE PYTHON… unpack everything into TREE; needs no network
    tree.py zipapp TREE FILE          a zipapp of the tree
    tree.py deb TREE FILE             a Debian package of the tree
    tree.py apt PLACE                 the index of a repository over the Debian packages in PLACE (apt reads file: too)
    tree.py sbom WHEELS FILE          the parts list of mudroom's wheel and its dependencies: CycloneDX 1.6

Rules of this file:
1. The tree is a virtual environment: pyvenv.cfg, bin/python3 as a link, lib/python3 with one site-packages; with the
   native client as bin/mudroom, if mudroom's wheel has it, and bin/mudroom-python beside it. All
   versions of Python share it, since extension modules are named after their version (PEP 3149). A file of two wheels
   that is not the same in both stops the build.
2. The bytes depend on the wheels and SOURCE_DATE_EPOCH alone.
3. Only the standard library is needed.
"""

from __future__ import annotations

import email
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EXTRAS = ("tui", "inspect")
"""What is worth its weight where nothing can be added afterwards."""
SITE = "lib/python3/site-packages"
MACHINE = os.uname().machine
CLIENT, SCRIPT = "scripts/mudroom", "mudroom-python"
"""The native client in mudroom's wheel, and the script that it starts where no keeper runs: ``SCRIPT`` of its
``client.py``."""
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_5", "manylinux1", "manylinux_2_34")
_TEMPORARY = (".dist-info/RECORD", ".dist-info/WHEEL", ".dist-info/INSTALLER")


def epoch() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))


def fetch(wheels: Path, pythons: list[str]) -> None:
    [own] = wheels.glob("mudroom-*.whl")
    for python in pythons:
        words = [sys.executable, "-m", "pip", "--quiet", "download", "--dest", str(wheels), "--only-binary", ":all:"]
        words += ["--python-version", python, "--implementation", "cp"]
        words += [word for name in _PLATFORMS for word in ("--platform", f"{name}_{MACHINE}")]
        subprocess.run([*words, f"{own}[{','.join(EXTRAS)}]"], check=True)


def build(wheels: Path, tree: Path, pythons: list[str]) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    site = tree / SITE
    site.mkdir(parents=True)
    for wheel in sorted(wheels.glob("*.whl")):
        _unpack(wheel, site, tree)
    for version in pythons:
        (tree / f"lib/python{version}").symlink_to("python3")
    (tree / "bin").mkdir(exist_ok=True)
    (tree / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (tree / "bin/python3").symlink_to("/usr/bin/python3")
    shutil.copy(HERE / "debian/mudroom", tree / "bin" / (SCRIPT if (tree / "bin/mudroom").exists() else "mudroom"))
    for program in tree.glob("bin/mudroom*"):
        program.chmod(0o755)
    (tree / "versions").write_text("".join(f"{version}\n" for version in pythons))
    for path in [*sorted(tree.rglob("*"), reverse=True), tree]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)


def _unpack(wheel: Path, site: Path, tree: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            if item.is_dir() or item.filename.endswith(_TEMPORARY):
                continue
            head, _slash, rest = item.filename.partition("/")
            if head.endswith(".data"):
                kind, _slash, rest = rest.partition("/")
                if kind == "scripts" and not (head.startswith("mudroom-") and f"{kind}/{rest}" == CLIENT):
                    continue  # for the directory of an environment's programs: bin/ has the interpreter and mudroom
                place = tree / "bin" / rest if kind == "scripts" else (tree if kind == "data" else site) / rest
            else:
                place = site / item.filename
            data = archive.read(item)
            if place.exists() and place.read_bytes() != data and not _is_metadata(place):
                sys.exit(f"tree.py: {place.relative_to(tree)} is not the same in two wheels; the last is {wheel.name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            if item.external_attr >> 16 & 0o111:
                place.chmod(0o755)


def _is_metadata(place: Path) -> bool:
    return place.parent.name.endswith(".dist-info")


def zipapp(tree: Path, file: Path) -> None:
    """A zipapp whose start unpacks the tree into a private directory. manifest.json: the digest of each file."""
    names = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    manifest = {
        str(path.relative_to(tree)): [hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size, _mode(path)]
        for path in names
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    entries = {"__main__.py": (HERE / "zipapp/__main__.py").read_bytes(), "manifest.json": text}
    entries["digest"] = hashlib.sha256(text).hexdigest().encode()
    with open(file, "wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in entries.items():
                archive.writestr(_entry(name), data)
            for path in names:
                archive.writestr(_entry("tree/" + str(path.relative_to(tree))), path.read_bytes())
    file.chmod(0o755)


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _entry(name: str) -> zipfile.ZipInfo:
    item = zipfile.ZipInfo(name, time.gmtime(max(epoch(), 315532800))[:6])  # a zip has no time before 1980
    item.compress_type, item.create_system, item.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
    return item


def deb(tree: Path, file: Path) -> None:
    """A binary package (deb-control(5)), owned by root without being root."""
    version = _version()
    pythons = (tree / "versions").read_text().split()
    last = pythons[-1].split(".")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "root"
        home = root / "usr/lib/mudroom"
        shutil.copytree(tree, home, symlinks=True)
        _completions(home / "share", root / "usr/share")
        shutil.rmtree(home / "share", ignore_errors=True)
        _documents(root, version, home)
        programs = root / "usr/bin"
        programs.mkdir(parents=True)
        for found in home.glob("bin/mudroom*"):
            shutil.move(found, programs)
        fields = {
            "VERSION": version,
            "ARCHITECTURE": {"x86_64": "amd64", "aarch64": "arm64"}.get(MACHINE, MACHINE),
            "SIZE": str(sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024),
            "FIRST": pythons[0],
            "NEXT": f"{last[0]}.{int(last[1]) + 1}",
        }
        control = root / "DEBIAN"
        control.mkdir()
        for name in ("control", "postinst", "prerm"):
            text = (HERE / "debian" / name).read_text()
            (control / name).write_text(re.sub(r"@([A-Z]+)@", lambda match: fields[match[1]], text))
            (control / name).chmod(0o644 if name == "control" else 0o755)
        update = root / "usr/share/python3/runtime.d/mudroom.rtupdate"
        update.parent.mkdir(parents=True)
        shutil.copy(HERE / "debian/mudroom.rtupdate", update)
        sums = [
            f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_symlink() and control not in path.parents
        ]
        (control / "md5sums").write_text("".join(sums))
        for path in [*root.rglob("*"), root]:
            if not path.is_symlink():
                executable = path == update or ({home, programs} & {*path.parents} and os.access(path, os.X_OK))
                executable = executable or (path.parent == control and path.name in ("postinst", "prerm"))
                path.chmod(0o755 if path.is_dir() or executable else 0o644)
        _write_deb(root, control, file)


_SHARED = {
    "bash-completion/completions/mudroom": "bash-completion/completions/mudroom",
    "zsh/site-functions/_mudroom": "zsh/vendor-completions/_mudroom",
    "fish/vendor_completions.d/mudroom.fish": "fish/vendor_completions.d/mudroom.fish",
    "man/man1/mudroom.1": "man/man1/mudroom.1",
}
"""Completions and the manual page in the wheel, and their places in a Debian."""


def _completions(share: Path, target: Path) -> None:
    for source, place in _SHARED.items():
        if (share / source).exists():
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(share / source, target / place)
            if place.startswith("man/"):
                _compress(target / place)


def apt(place: Path) -> None:
    """Write Packages and Release of a flat repository (Debian wiki, "Repository format")."""
    entries = []
    for file in sorted(place.glob("*.deb")):
        content = file.read_bytes()
        at = content.index(b"control.tar.xz")
        size = int(content[at + 48 : at + 58])
        with tarfile.open(fileobj=io.BytesIO(content[at + 60 : at + 60 + size])) as archive:
            member = archive.extractfile("./control")
            assert member is not None
            control = member.read().decode().strip()
        sums = f"Size: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}"
        entries.append(f"{control}\nFilename: ./{file.name}\n{sums}\n")
    packages = "\n".join(entries).encode()
    (place / "Packages").write_bytes(packages)
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(epoch()))
    told = f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
    (place / "Release").write_text(f"Origin: mudroom\nSuite: ./\nDate: {date}\nSHA256:\n{told}")


def sbom(wheels: Path, file: Path) -> None:
    """Write the bill of materials of a directory of wheels. Programs in C and scripts of the page are in it, too."""
    found: dict[str, dict[str, Any]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = email.message_from_bytes(archive.read(name))
        part, version = metadata["Name"], metadata["Version"]
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', part).lower()}@{version}"
        one = found.setdefault(
            purl, {"type": "library", "bom-ref": purl, "name": part, "version": version, "purl": purl}
        )
        if licence := metadata["License-Expression"]:
            one["licenses"] = [{"expression": licence}]
        digest = {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
        one.setdefault("externalReferences", []).append(
            {"type": "distribution", "url": f"file:{wheel.name}", "hashes": [digest]}
        )
    vendored = json.loads((ROOT / "dev/page/package.json").read_text())["devDependencies"]
    for part in ("preact", "htm", "@highlightjs/cdn-assets"):
        purl = f"pkg:npm/{part.replace('@', '%40')}@{vendored[part]}"
        found[purl] = {"type": "library", "bom-ref": purl, "name": part, "version": vendored[part], "purl": purl}
    own = next(purl for purl in found if purl.startswith("pkg:pypi/mudroom@"))
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))}",
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch())),
            "component": {**found.pop(own), "type": "application"},
        },
        "components": [found[purl] for purl in sorted(found)],
        "dependencies": [{"ref": own, "dependsOn": sorted(found)}],
    }  # fmt: skip
    file.write_text(json.dumps(document, indent=1) + "\n")


def _write_deb(root: Path, control: Path, file: Path) -> None:
    """Write an archive by deb(5). dpkg-deb is not asked: its bytes depend on its version and on that of tar."""
    own = sorted(control.iterdir())
    data = [path for path in sorted(root.rglob("*")) if path != control and control not in path.parents]
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _tar([(path.name, path) for path in own]),
        "data.tar.xz": _tar([(str(path.relative_to(root)), path) for path in data]),
    }
    with open(file, "wb") as stream:
        stream.write(b"!<arch>\n")
        for name, content in members.items():
            stream.write(f"{name:<16}{epoch():<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
            stream.write(content + b"\n" * (len(content) % 2))


def _tar(rows: list[tuple[str, Path]]) -> bytes:
    def normal(item: tarfile.TarInfo) -> tarfile.TarInfo:
        item.uid = item.gid = 0
        item.uname = item.gname = "root"
        item.mtime = epoch()
        item.mode = 0o777 if item.issym() else item.mode & 0o755
        return item

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        top = tarfile.TarInfo("./")
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(normal(top))
        for name, path in rows:
            archive.add(path, "./" + name, recursive=False, filter=normal)
    return lzma.compress(buffer.getvalue(), preset=2)


def _version() -> str:
    found = re.search(r'^__version__ = "(.*)"$', (ROOT / "src/mudroom/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _compress(path: Path) -> None:
    import gzip

    with open(path.with_suffix(path.suffix + ".gz"), "wb") as stream, gzip.GzipFile("", "wb", 9, stream, 0) as packed:
        packed.write(path.read_bytes())
    path.unlink()


def _documents(root: Path, version: str, home: Path) -> None:
    place = root / "usr/share/doc/mudroom"
    place.mkdir(parents=True)
    text = (HERE / "debian/copyright").read_text()
    for licence in sorted(home.glob(f"{SITE}/*.dist-info")):
        files = [file for file in sorted(licence.rglob("*")) if re.match(r"(?i)licen[cs]e|copying|notice", file.name)]
        text += "".join(
            f"\n--- {licence.name}, {file.name} ---\n\n{file.read_text()}" for file in files if file.is_file()
        )
    (place / "copyright").write_text(text)
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch()))
    maintainer = re.search(r"^Maintainer: (.*)$", (HERE / "debian/control").read_text(), re.MULTILINE)
    assert maintainer is not None
    lines = f"mudroom ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n"
    (place / "changelog").write_text(f"{lines} -- {maintainer[1]}  {date}\n")
    _compress(place / "changelog")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fetch", place, *versions] if versions:
            fetch(Path(place), versions)
        case ["build", place, target, *versions] if versions:
            build(Path(place), Path(target), versions)
        case ["zipapp", place, target]:
            zipapp(Path(place), Path(target))
        case ["deb", place, target]:
            deb(Path(place), Path(target))
        case ["apt", place]:
            apt(Path(place))
        case ["sbom", place, target]:
            sbom(Path(place), Path(target))
        case _:
            sys.exit(__doc__)
