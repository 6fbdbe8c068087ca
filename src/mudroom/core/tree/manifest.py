"""Files that a project's manifest or settings file names, and that therefore run with it.

A manifest is read as data. Only JSON and TOML are parsed, because their keys tell which names are run and which are
only listed. A manifest that cannot be parsed, or has another format, names each word in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import ancestors
from mudroom.typing import Any

LIMIT = 1 << 20
"""Bytes. A larger manifest is not read: it may name any file."""
_LONGEST = 1024
"""Longest word, in bytes, whose directories count: a hostile manifest can be a single word with half a million
directories."""

MANIFESTS: dict[bytes, str] = {
    b"package.json": "npm",
    b"deno.json": "deno",
    b"deno.jsonc": "deno",
    b"composer.json": "composer",
    b"pyproject.toml": "python tools",
    b"setup.cfg": "python tools",
    b"tox.ini": "tox",
    b"pytest.ini": "pytest",
    b"mypy.ini": "mypy",
    b".pylintrc": "pylint",
    b"Makefile": "make",
    b"GNUmakefile": "make",
    b"makefile": "make",
    b"justfile": "just",
    b"Taskfile.yml": "task",
    b"mise.toml": "mise",
    b".mise.toml": "mise",
    b".pre-commit-config.yaml": "pre-commit",
    b".pre-commit-hooks.yaml": "pre-commit",
    b"lefthook.yml": "lefthook",
    b".gitlab-ci.yml": "GitLab CI",
    b"action.yml": "GitHub Actions",
    b"Dockerfile": "docker",
    b"Procfile": "the process manager",
    b".envrc": "direnv",
    b"Cargo.toml": "cargo",
    b".yarnrc.yml": "yarn",
    b".mcp.json": "an agent",
    b"opencode.json": "an agent",
}
"""Manifest names, with the program that runs the files named in them."""
SUBDIRECTORIES: dict[bytes, str] = {
    b".cargo/config.toml": "cargo",
    b".claude/settings.json": "an agent",
    b".claude/settings.local.json": "an agent",
    b".gemini/settings.json": "an agent",
    b".vscode/tasks.json": "an editor",
    b".vscode/settings.json": "an editor",
    b".devcontainer/devcontainer.json": "the container",
    b".devcontainer.json": "the container",
    b".cursor/mcp.json": "an agent",
}
"""Manifests whose words are paths from the directory above theirs."""

_LISTED_JSON = frozenset(
    b"""files keywords description name license author contributors readme repository homepage bugs types typings
    typesVersions man dependencies devDependencies peerDependencies optionalDependencies version""".decode().split()
)
"""Keys in a package.json whose values are listed and not run."""
_LISTED_TOML = frozenset(
    b"""name version description readme license authors maintainers keywords classifiers dependencies packages
    include exclude extend-exclude force-exclude omit source files testpaths paths per-file-ignores overrides
    package-data known-first-party src module only-include norecursedirs urls""".decode().split()
)
_WORD = regex(rb"[A-Za-z0-9_@+~%\x80-\xff.][A-Za-z0-9_@+~%\x80-\xff./-]*")
_MODULE = regex(rb"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")
_COMPLETED = (b"", b".js", b".mjs", b".cjs", b".ts", b".json", b"/index.js", b"/index.ts", b".sh", b".py")


def named_paths(manifest: bytes, data: bytes, wanted: Collection[bytes]) -> set[bytes]:
    """Return the paths in ``wanted`` that a manifest names; both are relative to the directory from which the
    manifest's paths start."""
    found = _named(_WORD.findall(data), wanted)
    if not found:
        return found
    if manifest.endswith(b".json") and manifest.rpartition(b"/")[2] == b"package.json":
        return _named(_words(_json(data), _LISTED_JSON, data), wanted)
    if manifest == b"pyproject.toml":
        return _named(_words(_toml(data), _LISTED_TOML, data), wanted)
    return found


def _named(words: Collection[bytes], wanted: Collection[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for word in dict.fromkeys(words):
        found.update(path for path in _candidates(word) if path in wanted)
    return found


def _candidates(word: bytes) -> Iterator[bytes]:
    plain = b"/".join(part for part in word.split(b"/") if part not in (b"", b"."))
    for end in _COMPLETED:
        yield plain + end
    if len(plain) <= _LONGEST:
        yield from ancestors(plain)  # a changed directory here is a link, or a file has taken the directory's place
    if _MODULE.fullmatch(plain) and b"." in plain:  # a module, or an attribute in one
        names = plain.split(b".")
        for length in range(len(names), 0, -1):
            module = b"/".join(names[:length])
            for top in (b"", b"src/", b"lib/"):
                yield top + module + b".py"
                yield top + module
                if length == len(names):
                    yield top + module + b"/__init__.py"
    elif _MODULE.fullmatch(plain):
        yield b"src/" + plain + b".py"


def _words(tree: Any, listed: Collection[str], data: bytes) -> list[bytes]:
    """Return the words in all values but those under keys in ``listed``; the whole text's words if it was not
    parsed."""
    if tree is None:
        return _WORD.findall(data)
    words: list[bytes] = []
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [inner for key, inner in value.items() if key not in listed]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            words += _WORD.findall(value.encode("utf-8", "surrogateescape"))
    return words


def _json(data: bytes) -> Any:
    import json

    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _toml(data: bytes) -> Any:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return None
