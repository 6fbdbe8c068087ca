"""Packages that a lock file or a list of dependencies names: added, removed, raised, or taken from elsewhere. Pure.

The text is hostile: a list that cannot be read is None, never an empty one. A reader for each format returns the
packages by name, each with its version, its source ("" if the format's own registry) and the digests of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from mudroom.core.text.regex import regex
from mudroom.core.text.table import read_table
from mudroom.core.tree.path import name
from mudroom.typing import NamedTuple

LIMIT = 8 << 20
"""Bytes. A larger list is not read."""
_DEEP = 200
"""Most packages in packages of the first npm format."""


class Package(NamedTuple):
    version: str
    source: str = ""
    digests: frozenset[str] = frozenset()


Packages = Mapping[str, frozenset[Package]]


class PackageChanges(NamedTuple):
    added: tuple[str, ...]
    removed: tuple[str, ...]
    raised: tuple[tuple[str, str, str], ...]
    """Name, old and new versions."""
    moved: tuple[str, ...]
    """Packages whose source differs."""
    altered: tuple[str, ...] = ()
    """Packages of which a version lost a digest that it had: other files have its name."""


def is_lock(last: bytes) -> bool:
    """Return whether a file of this name is a lock file, which a tool writes."""
    return last in _LOCKS


def is_list(path: bytes) -> bool:
    """Return whether the packages of such a file can be read."""
    return _reader(name(path)) is not None


def packages_of(path: bytes, text: bytes) -> Packages | None:
    """Return the packages that a file names, or None if it cannot be read."""
    read = _reader(name(path))
    if read is None or len(text) > LIMIT:
        return None
    if not text.strip():
        return {}
    packages: dict[str, dict[tuple[str, str], set[str]]] = {}
    try:
        for package, version, source, *digests in read(text.decode()):
            packages.setdefault(package, {}).setdefault((version, source), set()).update(filter(None, digests))
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None  # not of this format, or damaged
    return {
        package: frozenset(Package(*row, frozenset(digests)) for row, digests in rows.items())
        for package, rows in packages.items()
    }


def compare_packages(old: Packages, new: Packages) -> PackageChanges:
    both = sorted(old.keys() & new.keys())
    versions = {package: [_versions(side[package]) for side in (old, new)] for package in both}
    sources = {package: [{row.source for row in side[package]} for side in (old, new)] for package in both}
    return PackageChanges(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        tuple(
            (package, versions[package][0], versions[package][1])
            for package in both
            if versions[package][0] != versions[package][1]
        ),
        tuple(package for package in both if sources[package][1] - sources[package][0]),
        tuple(package for package in both if _is_altered(old[package], new[package])),
    )


def _is_altered(old: frozenset[Package], new: frozenset[Package]) -> bool:
    sides = [{row.version: _digests(side, row.version) for row in side} for side in (old, new)]
    return any(digests - sides[1].get(version, digests) for version, digests in sides[0].items())


def _digests(rows: frozenset[Package], version: str) -> frozenset[str]:
    return frozenset().union(*(row.digests for row in rows if row.version == version))


def _versions(rows: frozenset[Package]) -> str:
    return ", ".join(sorted({row.version for row in rows}))


@cache
def popular_packages() -> frozenset[str]:
    """Return well-known names, which others imitate."""
    return frozenset(name for row in read_table("popular_packages") for name in row.split(" | ")[1].split())


class AlikeNames:
    """Names of packages, to find those that a reader could take for another: a letter more, fewer, changed or swapped,
    or other separators. Names of fewer than four letters are like too many."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, list[str]] = {}
        for word in sorted(names):
            for part in _shortened(_plain(word)):
                self._names.setdefault(part, []).append(word)

    def of(self, package: str) -> str:
        """Return the first name that is like this one, and another; "" if there is none."""
        plain = _plain(package)
        near = {name for part in _shortened(plain) for name in self._names.get(part, ()) if name != package}
        return min((name for name in near if _is_near(plain, _plain(name))), default="")


def _shortened(plain: str) -> set[str]:
    """Return a name with at most one letter left out: names that are near share one of these."""
    return {plain, *(plain[:at] + plain[at + 1 :] for at in range(len(plain)))} if 4 <= len(plain) < 100 else set()


def _plain(package: str) -> str:
    return package.lower().rpartition("/")[2].replace("-", "").replace("_", "").replace(".", "")


def _is_near(one: str, other: str) -> bool:
    """Return whether two names differ by at most one edit: Damerau-Levenshtein distance 0 or 1."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, other_rest = one[start:], other[start:]
    if rest[:2] == other_rest[1::-1] and len(rest) > 1 and rest[2:] == other_rest[2:]:
        return True
    return rest[1:] == other_rest[1:] or rest[1:] == other_rest or rest == other_rest[1:]


# --- formats ---

_Row = tuple[str, ...]
"""Name, version, source, then any number of digests."""
_Read = Callable[[str], Iterator[_Row]]
_REGISTRIES = (
    "https://registry.npmjs.org/",
    "https://registry.yarnpkg.com/",
    "https://pypi.org/simple",
    "https://files.pythonhosted.org/",
    "registry+https://github.com/rust-lang/crates.io-index",
    "https://rubygems.org/",
)


def _foreign(source: object) -> str:
    """Return a source without what names the package and its version; "" for a format's own registry."""
    text = str(source or "")
    if text.startswith(_REGISTRIES):
        return ""
    scheme, mark, rest = text.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if mark else text


def _npm_lock(text: str) -> Iterator[_Row]:
    import json

    value = json.loads(text)
    for path, row in value.get("packages", {}).items():
        if path and not row.get("link"):
            package = path.rpartition("node_modules/")[2]
            yield package, str(row.get("version", "")), _foreign(row.get("resolved")), str(row.get("integrity", ""))
    pending = [(value.get("dependencies", {}), 0)] if "packages" not in value else []
    while pending:
        rows, depth = pending.pop()
        for package, row in rows.items():
            yield package, str(row.get("version", "")), _foreign(row.get("resolved")), str(row.get("integrity", ""))
            if "dependencies" in row and depth < _DEEP:
                pending.append((row["dependencies"], depth + 1))


def _npm_manifest(text: str) -> Iterator[_Row]:
    import json

    value = json.loads(text)
    for group in ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies"):
        for package, version in value.get(group, {}).items():
            is_version = regex(r"[\d^~<>=*x|. -]*[\w.+-]*").fullmatch(str(version))
            yield package, str(version), "" if is_version else str(version)


def _toml_lock(text: str) -> Iterator[_Row]:
    import tomllib

    for row in tomllib.loads(text)["package"]:
        source = row.get("source", "")
        if isinstance(source, dict):  # uv, poetry
            source = next(
                (str(source[key]) for key in ("registry", "url", "git", "path", "editable") if key in source), ""
            )
        files = (*row.get("files", ()), *row.get("wheels", ()), row.get("sdist", {}))
        digests = (str(row.get("checksum", "")), *(str(file.get("hash", "")) for file in files))
        yield row["name"], str(row.get("version", "")), _foreign(source), *digests


_NAME = regex(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(.*)")


def _requirement(line: str) -> tuple[str, str, str] | None:
    match = _NAME.fullmatch(line.partition(" #")[0].partition(" --hash")[0].rstrip("\\ "))
    if match is None:
        return None
    version = match[2].partition(";")[0].strip()
    package = match[1].lower().replace("_", "-").replace(".", "-")
    return package, version, version[1:].strip() if version.startswith("@") else ""


def _requirements(text: str) -> Iterator[_Row]:
    for line in text.splitlines():
        if line[:1] not in ("", "#", " ", "\t", "-") and (row := _requirement(line)) is not None:
            yield row
        elif line.startswith("-") and not line.startswith(("-r", "-c", "--hash")):
            yield line.split()[0], "", line


def _pyproject(text: str) -> Iterator[_Row]:
    import tomllib

    value = tomllib.loads(text)
    project, tool = value.get("project", {}), value.get("tool", {})
    lists = [project.get("dependencies", []), value.get("build-system", {}).get("requires", [])]
    lists += [*project.get("optional-dependencies", {}).values(), *value.get("dependency-groups", {}).values()]
    for line in (line for rows in lists for line in rows if isinstance(line, str)):
        if (row := _requirement(line)) is not None:
            yield row
    poetry = tool.get("poetry", {})
    groups = [poetry.get("dependencies", {}), *(group["dependencies"] for group in poetry.get("group", {}).values())]
    for package, row in ((package, row) for group in groups for package, row in group.items()):
        source = (
            next((str(row[key]) for key in ("git", "url", "path", "source") if key in row), "")
            if isinstance(row, dict)
            else ""
        )
        yield package.lower(), str(row.get("version", "")) if isinstance(row, dict) else str(row), source


def _cargo(text: str) -> Iterator[_Row]:
    import tomllib

    value = tomllib.loads(text)
    tables = [value, value.get("workspace", {}), *value.get("target", {}).values()]
    for table in tables:
        for group in ("dependencies", "dev-dependencies", "build-dependencies"):
            for package, row in table.get(group, {}).items():
                is_table = isinstance(row, dict)
                source = (
                    next((str(row[key]) for key in ("git", "path", "registry") if key in row), "") if is_table else ""
                )
                yield package, str(row.get("version", "")) if is_table else str(row), source


_GO_SUM = regex(r"(\S+) (v\S+?)((?:/go\.mod)? h1:\S+)")
_GO_MOD = regex(r"\s*(?:require\s+)?([\w.-]+\.[\w.-]+/\S+|[\w.-]+\.[\w.-]+)\s+(v\S+)(?:\s*//.*)?")
_GO_REPLACE = regex(r"\s*(?:replace\s+)?(\S+)(?:\s+v\S+)?\s+=>\s+(\S+)(?:\s+(v\S+))?\s*")


def _go(text: str) -> Iterator[_Row]:
    for line in text.splitlines():
        if (match := _GO_SUM.fullmatch(line)) is not None:
            yield match[1], match[2], "", match[3]
        elif (match := _GO_MOD.fullmatch(line)) is not None:
            yield match[1], match[2], ""
        elif (match := _GO_REPLACE.fullmatch(line)) is not None:
            yield match[1], match[3] or "", match[2]


_YARN_HEAD = regex(r'"?((?:@[^/@"]+/)?[^@"]+)@[^:]*.*:')


def _yarn(text: str) -> Iterator[_Row]:
    package = version = source = digest = ""
    for line in [*text.splitlines(), "end:"]:
        if line[:1] not in ("", " ", "#"):
            if package and version:
                yield package, version, source, digest
            match = _YARN_HEAD.fullmatch(line)
            package, version, source, digest = (match[1] if match is not None else ""), "", "", ""
        elif line.startswith(("  version ", "  version:")):
            version = line.split()[-1].strip('"')
        elif line.startswith("  resolved "):
            source = _foreign(line.split()[-1].strip('"'))
        elif line.startswith(("  integrity ", "  checksum:")):
            digest = line.split()[-1]


_PNPM_FILE = regex(r"(?:integrity: ([^ ,}]+)|tarball:)")
_PNPM = regex(r"  '?/?((?:@[^/@]+/)?[^@('/]+)[@/]([^('/:]+).*:")


def _pnpm(text: str) -> Iterator[_Row]:
    section = package = version = ""
    for line in text.splitlines():
        if line[:1] not in ("", " ", "#"):
            section = line.rstrip(":")
        elif section == "packages" and (match := _PNPM.fullmatch(line)) is not None:
            package, version = match[1], match[2]
            yield package, version, ""
        elif section == "packages" and package and (match := _PNPM_FILE.search(line)) is not None:
            yield package, version, _foreign(line.partition("tarball:")[2].strip(" }'\"")), match[1] or ""


_GEM = regex(r"    ([\w.-]+) \(([^)]*)\)")


def _gems(text: str) -> Iterator[_Row]:
    remote = ""
    for line in text.splitlines():
        if line.startswith("  remote: "):
            remote = _foreign(line[10:].strip())
        elif (match := _GEM.fullmatch(line)) is not None:
            yield match[1], match[2], remote


def _composer(text: str) -> Iterator[_Row]:
    import json

    value = json.loads(text)
    for row in (*value["packages"], *value.get("packages-dev", ())):
        source, files = row.get("source") or {}, row.get("dist") or {}
        yield row["name"], str(row.get("version", "")), _foreign(source.get("url")), str(files.get("shasum", ""))


def _pipfile_lock(text: str) -> Iterator[_Row]:
    import json

    value = json.loads(text)
    for group in ("default", "develop"):
        for package, row in value.get(group, {}).items():
            source = str(row.get("git") or row.get("path") or "")
            yield package, str(row.get("version", "")), source, *map(str, row.get("hashes", ()))


_LOCKS: Mapping[bytes, _Read] = {
    b"package-lock.json": _npm_lock,
    b"npm-shrinkwrap.json": _npm_lock,
    b"yarn.lock": _yarn,
    b"pnpm-lock.yaml": _pnpm,
    b"poetry.lock": _toml_lock,
    b"uv.lock": _toml_lock,
    b"pdm.lock": _toml_lock,
    b"Cargo.lock": _toml_lock,
    b"go.sum": _go,
    b"Gemfile.lock": _gems,
    b"composer.lock": _composer,
    b"Pipfile.lock": _pipfile_lock,
}
_LISTS: Mapping[bytes, _Read] = {
    b"package.json": _npm_manifest,
    b"pyproject.toml": _pyproject,
    b"Cargo.toml": _cargo,
    b"go.mod": _go,
}


def _reader(last: bytes) -> _Read | None:
    is_requirements = b"requirements" in last and last.endswith((b".txt", b".in"))
    return _LOCKS.get(last) or _LISTS.get(last) or (_requirements if is_requirements else None)
