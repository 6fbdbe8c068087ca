"""The rules of the house (docs/DESIGN.md), kept by a machine: every import node is looked at, deferred ones too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "mudroom"
FILES = sorted(SOURCE.rglob("*.py"))
_FAMILY = (
    "launcher", "init", "holder", "template", "step", "link", "listening", "netlink", "wire", "kernel", "mediator",
    "pause", "refusal",
)  # fmt: skip
LAUNCHER = {"sandbox." + name for name in _FAMILY}
PURE = {
    "sandbox.linux", "sandbox.bare", "sandbox.imaged", "sandbox.inside", "sandbox.seatbelt", "sandbox.service",
    "sandbox.seccomp", "sandbox.syscall", "sandbox.metadata", "sandbox.profile", "sandbox.windows", "net.dns",
    "net.frame", "net.head", "net.hello", "net.pseudo", "net.say", "net.synthetic", "net.target", "net.upstream",
}  # fmt: skip

_POLICY = ("trust", "layering", "policyfile", "rulefile", "schema", "compiled")
# What each room may import of mudroom; a prefix stands for all in it. Imports only point down.
MAY_IMPORT = {
    "core": ("core",),
    "stage": ("core", "errors", "stage"),
    "sandbox": ("core", "errors", "sandbox"),
    "vault": ("core", "errors", "stage", "vault"),
    "net": ("core", "errors", "net"),
    "errors": (),
    "document": ("core", "errors"),
    "amend": ("document",),
    "local": ("core", "errors"),
    "permission": ("core", "errors", "document", "answerfile", "local", "trust"),
    "setting": ("core", "errors"),
    "rulebook": ("core", "errors", "document"),
    "policyfile": ("core", "errors", "document", "rulebook", "setting"),
    "answerfile": ("errors", "amend", "local"),
    "rulefile": ("core", "errors", "document", "local", "answerfile", "policyfile", "rulebook", "setting", "trust"),
    "trust": ("core", "errors", "policyfile"),
    "schema": ("core", "setting"),
    "layering": ("core", "errors", "local", "policyfile", "rulefile", "setting", "trust"),
    "private": (),
    "compiled": ("", "core", "private", "stage"),
    "config": ("core", "errors", "document", "compiled", "layering", "policyfile", "setting", ""),
    "session": ("", "core", "errors", "stage", "vault", "sandbox", "net", "session"),
    "review": ("core", "errors", "session", "stage", "vault", "review"),
    "filesystem": ("core", "errors", "stage", "session", "config"),
    "windowsdoctor": ("core", "errors", "sandbox"),
    "enginedoctor": ("session", "core", "errors", "sandbox"),
    "doctor": ("core", "enginedoctor", "errors", "sandbox", "session"),
    "cli": (
        "",
        "core",
        "errors",
        "config",
        "permission",
        "rulefile",
        "trust",
        *_POLICY,
        "session",
        "doctor",
        "windowsdoctor",
        "review",
        "tui",
        "web",
        "cli",
    ),
    "tui": ("core", "errors", "review", "session", "tui"),
    "web": ("", "core", "errors", "private", "review", "session", "web"),
    "__main__": ("cli",),
    "": (),
}  # fmt: skip
PURE_LIBRARY = {
    "__future__", "_blake2", "binascii", "bisect", "collections", "collections.abc", "difflib", "functools", "hashlib",
    "itertools", "json", "re", "struct", "types", "typing",
}  # fmt: skip
LIBRARY_OF = {
    "core.grammar": {"importlib.machinery", "importlib.util", "tree_sitter", "tree_sitter_bash"},
}
LAUNCHER_LIBRARY = {"__future__", "ctypes", "marshal", "os", "resource", "select", "sys", "_signal", "_socket"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}


def module_name(path: Path) -> str:
    parts = list(path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module, and whether only for type checking."""

    def walk(node: ast.AST, typing_only: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                yield from walk(statement, True)
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", typing_only
        for child in ast.iter_child_nodes(node):
            yield from walk(child, typing_only)

    yield from walk(ast.parse(path.read_text()), False)


def own(name: str) -> str | None:
    return "" if name == "mudroom" else name.removeprefix("mudroom.") if name.startswith("mudroom.") else None


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    name = module_name(path)
    allowed = MAY_IMPORT[name.split(".")[0]]
    for imported, _typing_only in imports(path):
        target = own(imported)
        if target is not None:
            room = target.split(".")[0]
            assert room in allowed, f"{name} imports {imported}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if module_name(p).startswith("core") or module_name(p) in PURE], ids=module_name
)
def test_pure_files_are_pure(path: Path) -> None:
    allowed = PURE_LIBRARY | LIBRARY_OF.get(module_name(path), set())
    for imported, typing_only in imports(path):
        assert typing_only or own(imported) is not None or imported in allowed, imported
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"open", "print", "input", "exec", "eval"} & set(calls)


@pytest.mark.parametrize("name", sorted(LAUNCHER))
def test_the_launcher_keeps_to_its_import_budget(name: str) -> None:
    path = SOURCE / (name.replace(".", "/") + ".py")
    for imported, typing_only in imports(path):
        assert typing_only or imported in LAUNCHER_LIBRARY or own(imported) in LAUNCHER, imported


def test_only_the_edges_look_at_the_environment() -> None:
    for path in FILES:
        if module_name(path).split(".")[0] in ("cli", "config"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            used = isinstance(node, ast.Attribute) and node.attr in (
                "environ",
                "environb",
                "getenv",
                "expanduser",
                "getcwd",
            )
            assert not used, f"{module_name(path)} looks at the environment"


def test_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        targets = {own(imported) for imported, typing_only in imports(path) if not typing_only}
        graph[module_name(path)] = {target for target in targets if target is not None}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name in done or name not in graph:
            return
        for target in graph[name]:
            visit(target, (*above, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_files_are_small_and_named_for_what_they_are() -> None:
    lengths = {module_name(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > 550} == {}
    assert sorted(lengths.values())[len(lengths) // 2] < 250
    assert not FORBIDDEN_NAMES & {path.stem for path in FILES}


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {
    "asyncio", "dataclasses", "email", "hashlib", "http", "importlib.metadata", "logging", "msgspec", "pathlib", "rich",
    "shutil", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "urllib.request", "yaml", "ruamel.yaml",
    "jeepney", "tree_sitter", "mudroom.core.network.preset", "mudroom.policy.host_answers",
    "mudroom.sandbox.limits.cgroup", "mudroom.sandbox.limits.limiter",
}  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    ["import mudroom", "import mudroom.cli.main", "import mudroom.cli.command.run", "import mudroom.session"],
)
def test_the_fast_path_loads_nothing_heavy(statement: str) -> None:
    before = loaded_by("pass")
    assert HEAVY & (loaded_by(statement) - before) == set()


def test_the_launcher_loads_nothing_else() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); from mudroom.sandbox import launcher, mediator;"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert not (HEAVY | {"typing", "re", "enum", "collections"}) & set(done.stdout.split())
