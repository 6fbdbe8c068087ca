"""Packages of lock files and lists: added, removed, raised, from elsewhere, and names that look like others."""

from __future__ import annotations

import json

from mudroom.ext.order.core.package_list import AlikeNames, Package, compare_packages, packages_of
from tiers import each

NPM = {"packages": {"": {}, "node_modules/a": {"version": "1.0.0", "resolved": "https://registry.npmjs.org/a/-/a.tgz"}}}


def names(path: str, text: str) -> dict[str, tuple[str, str]] | None:
    found = packages_of(path.encode(), text.encode())
    return None if found is None else {package: (row.version, row.source) for package, (row,) in found.items()}


@each(
    ("path", "text", "packages"),
    [
        ("package-lock.json", json.dumps(NPM), {"a": ("1.0.0", "")}),
        (
            "package-lock.json",
            '{"dependencies": {"a": {"version": "1", "resolved": "https://x.example/a.tgz"}}}',
            {"a": ("1", "https://x.example")},
        ),
        (
            "package.json",
            '{"dependencies": {"a": "^1.0"}, "devDependencies": {"b": "git+https://x.example/b"}}',
            {"a": ("^1.0", ""), "b": ("git+https://x.example/b", "git+https://x.example/b")},
        ),
        (
            "yarn.lock",
            '# yarn\n\n"@s/a@^1.0", "@s/a@^1.1":\n  version "1.2.3"\n  resolved "https://registry.yarnpkg.com/a#b"\n',
            {"@s/a": ("1.2.3", "")},
        ),
        (
            "pnpm-lock.yaml",
            "lockfileVersion: 9\n\npackages:\n\n  a@1.2.3:\n    engines: {}\n\n  '@s/b@2.0.0':\n    engines: {}\n",
            {"a": ("1.2.3", ""), "@s/b": ("2.0.0", "")},
        ),
        ("poetry.lock", '[[package]]\nname = "a"\nversion = "1"\n', {"a": ("1", "")}),
        (
            "uv.lock",
            '[[package]]\nname = "a"\nversion = "1"\nsource = { registry = "https://pypi.org/simple" }\n',
            {"a": ("1", "")},
        ),
        (
            "uv.lock",
            '[[package]]\nname = "a"\nversion = "1"\nsource = { git = "https://x.example/a" }\n',
            {"a": ("1", "https://x.example")},
        ),
        ("Cargo.lock", '[[package]]\nname = "a"\nversion = "1"\n', {"a": ("1", "")}),
        (
            "Cargo.toml",
            '[dependencies]\na = "1"\nb = { git = "https://x.example/b" }\n',
            {"a": ("1", ""), "b": ("", "https://x.example/b")},
        ),
        (
            "go.sum",
            "example.com/a v1.0.0 h1:abc=\nexample.com/a v1.0.0/go.mod h1:abc=\n",
            {"example.com/a": ("v1.0.0", "")},
        ),
        (
            "go.mod",
            "module m\n\nrequire (\n\texample.com/a v1.0.0\n)\n\nreplace example.com/b => example.org/c v1.0.0\n",
            {"example.com/a": ("v1.0.0", ""), "example.com/b": ("v1.0.0", "example.org/c")},
        ),
        (
            "Gemfile.lock",
            "GEM\n  remote: https://rubygems.org/\n  specs:\n    a (1.0)\n      b (>= 1)\n",
            {"a": ("1.0", "")},
        ),
        ("composer.lock", '{"packages": [{"name": "a/b", "version": "1"}]}', {"a/b": ("1", "")}),
        ("Pipfile.lock", '{"default": {"a": {"version": "==1"}}}', {"a": ("==1", "")}),
        (
            "requirements.txt",
            "# one\nA_b==1.0 --hash=sha256:x\nc[d]>=2; python_version < '3'\n",
            {"a-b": ("==1.0", ""), "c": (">=2", "")},
        ),
        (
            "requirements-dev.txt",
            "--index-url https://x.example\na @ https://x.example/a.whl\n",
            {
                "--index-url": ("", "--index-url https://x.example"),
                "a": ("@ https://x.example/a.whl", "https://x.example/a.whl"),
            },
        ),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a>=1"]\n[dependency-groups]\nd = ["b"]\n',
            {"a": (">=1", ""), "b": ("", "")},
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\na = "^1"\nb = { git = "https://x.example/b" }\n',
            {"a": ("^1", ""), "b": ("", "https://x.example/b")},
        ),
        ("package.json", "", {}),
    ],
)
def test_packages(path: str, text: str, packages: dict[str, tuple[str, str]]) -> None:
    assert names(path, text) == packages


@each(
    ("path", "text"),
    [
        ("package-lock.json", "{"),
        ("package-lock.json", "[]"),
        ("package.json", '{"dependencies": 1}'),
        ("package-lock.json", '{"packages": {"node_modules/a": 1}}'),
        ("poetry.lock", "a = 1\n"),
        ("poetry.lock", "="),
        ("Cargo.toml", "dependencies = 1\n"),
        ("package-lock.json", "[" * 100_000),
        ("a.py", "a = 1\n"),
        ("pyproject.toml", "project = 1\n"),
    ],
)
def test_a_list_that_cannot_be_read_is_none(path: str, text: str) -> None:
    assert names(path, text) is None


def test_changes() -> None:
    old = {"a": frozenset({Package("1")}), "b": frozenset({Package("1")}), "c": frozenset({Package("1")})}
    new = {"a": frozenset({Package("2")}), "c": frozenset({Package("1", "git+x")}), "d": frozenset({Package("1")})}
    assert compare_packages(old, new) == (("d",), ("b",), (("a", "1", "2"),), ("c",), ())


@each(
    ("path", "text", "digest"),
    [
        (
            "package-lock.json",
            '{"packages": {"node_modules/a": {"version": "1", "integrity": "sha512-%s"}}}',
            "sha512-x",
        ),
        ("package-lock.json", '{"dependencies": {"a": {"version": "1", "integrity": "%s"}}}', "x"),
        ("yarn.lock", 'a@1:\n  version "1"\n  integrity %s\n', "x"),
        ("yarn.lock", '"a@npm:1":\n  version: 1\n  checksum: %s\n', "x"),
        ("pnpm-lock.yaml", "packages:\n  a@1:\n    resolution: {integrity: %s}\n", "x"),
        ("Cargo.lock", '[[package]]\nname = "a"\nversion = "1"\nchecksum = "%s"\n', "x"),
        ("poetry.lock", '[[package]]\nname = "a"\nversion = "1"\nfiles = [{file = "a.whl", hash = "%s"}]\n', "x"),
        ("uv.lock", '[[package]]\nname = "a"\nversion = "1"\nwheels = [{url = "u", hash = "%s"}]\n', "x"),
        ("uv.lock", '[[package]]\nname = "a"\nversion = "1"\nsdist = {url = "u", hash = "%s"}\n', "x"),
        ("go.sum", "x.example/a v1 h1:%s\n", " h1:x"),
        ("composer.lock", '{"packages": [{"name": "a", "version": "1", "dist": {"shasum": "%s"}}]}', "x"),
        ("Pipfile.lock", '{"default": {"a": {"version": "1", "hashes": ["%s"]}}}', "x"),
    ],
)
def test_other_files_under_the_same_version(path: str, text: str, digest: str) -> None:
    old, same, new, none = (
        packages_of(path.encode(), (text % value).encode() if value else b"") for value in ("x", "x", "y", "")
    )
    assert old is not None and same is not None and new is not None and none is not None
    assert {row.digests for rows in old.values() for row in rows} == {frozenset({digest})}
    (name,) = old
    assert compare_packages(old, new).altered == (name,)
    assert compare_packages(old, same).altered == compare_packages(none, new).altered == ()


@each(
    ("package", "other"),
    [
        ("requets", "requests"),
        ("requestss", "requests"),
        ("reqeusts", "requests"),
        ("requestz", "requests"),
        ("re-quests", "requests"),
        ("requests", ""),
        ("rquet", ""),
        ("abc", ""),
        ("quests", ""),
    ],
)
def test_a_name_like_another(package: str, other: str) -> None:
    assert AlikeNames({"requests", "abd"}).of(package) == other
