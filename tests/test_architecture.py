"""The rules of the house, kept by a machine: the table in ``house.py`` against every import, deferred and typing
imports included, and the size of objects."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from house import (
    MOST_DEEP,
    MOST_METHODS,
    MOST_MODULES,
    OWNERS,
    ROOMS,
    ROOT,
    Class,
    ancestors,
    by_name,
    circles,
    depth,
    is_exception,
    own,
    picture,
    read,
    room_of,
    rows_of_owners,
    shelf_of,
    without_owner,
)

HOUSE = read()
FILES = sorted(HOUSE.modules)
LAUNCHER = {name for name in HOUSE.filled if name.startswith("sandbox.launcher.")}
PURE = {
    "sandbox.linux.plan", "sandbox.linux.bare_plan", "sandbox.linux.seccomp", "sandbox.linux.syscall",
    "sandbox.linux.metadata", "sandbox.container.image_plan", "sandbox.container.plain_plan",
    "sandbox.container.profile", "sandbox.macos.seatbelt", "sandbox.macos.service", "sandbox.windows.plan",
}  # fmt: skip
"""Beside all of ``core`` and ``net/protocol`` but its ``wire``."""
NOT_PURE = {"net.protocol.wire"}
PURE_LIBRARY = {
    "__future__", "_blake2", "_sha1", "binascii", "bisect", "collections", "collections.abc", "difflib", "functools",
    "hashlib", "itertools", "_json", "json", "math", "re", "struct", "tomllib", "types", "typing", "unicodedata",
}  # fmt: skip
LIBRARY_OF = {
    "core.command.shell.grammar": {"importlib.machinery", "importlib.util", "tree_sitter", "tree_sitter_bash"},
}
LAUNCHER_LIBRARY = {"__future__", "ctypes", "marshal", "os", "resource", "select", "sys", "time", "_signal", "_socket"}
EDGES = ("cli", "keeper.client", "keeper.command", "policy.config")
"""Modules that may look at the environment, the home directory and the current directory."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}


def imports(name: str) -> Iterator[tuple[str, bool]]:
    """Yield every imported module, and whether the import is only for type checking."""

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

    yield from walk(ast.parse(HOUSE.modules[name].read_text()), False)


# --- rooms and shelves ---


def test_every_room_is_in_the_table() -> None:
    assert {room_of(name) for name in FILES if name} == set(ROOMS)


@pytest.mark.parametrize("name", HOUSE.filled)
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    room = room_of(name)
    others = {room_of(target) for target in HOUSE.imports[name]} - {room}
    assert others <= set(ROOMS[room].may_import), f"{name} imports {others - set(ROOMS[room].may_import)}"


def test_the_table_of_rooms_has_no_circle() -> None:
    assert circles((name, target) for name, room in ROOMS.items() for target in room.may_import) == []


@pytest.mark.parametrize("room", [name for name in ROOMS if ROOMS[name].shelves])
def test_a_shelf_imports_only_shelves_below_it(room: str) -> None:
    row_of = {shelf: number for number, row in enumerate(ROOMS[room].shelves) for shelf in row}
    inside = [name for name in HOUSE.filled if room_of(name) == room]
    assert {shelf_of(name, HOUSE) for name in inside} == set(row_of)
    for name in inside:
        shelf = shelf_of(name, HOUSE)
        for target in HOUSE.imports[name]:
            if room_of(target) == room and shelf_of(target, HOUSE) != shelf:
                assert row_of[shelf_of(target, HOUSE)] < row_of[shelf], f"{name} imports {target}"


def test_no_module_is_in_an_import_circle() -> None:
    edges = ((name, target) for name, targets in HOUSE.imports.items() for target in targets)
    assert circles(edges) == []


def test_a_folder_holds_what_can_be_taken_in_at_a_glance() -> None:
    per_folder = Counter(HOUSE.modules[name].parent for name in HOUSE.filled)
    assert {str(folder): count for folder, count in per_folder.items() if count > MOST_MODULES} == {}


def test_the_picture_in_the_documents_is_that_of_the_table() -> None:
    assert picture() in (ROOT / "docs/DESIGN.md").read_text(), "python tests/house.py prints the picture"


# --- objects ---


NAMED = by_name(HOUSE)


def test_public_class_names_are_unique() -> None:
    top = Counter(
        node.name
        for name in FILES
        for node in ast.parse(HOUSE.modules[name].read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name: count for name, count in top.items() if count > 1} == {}


@pytest.mark.parametrize("found", HOUSE.classes, ids=lambda found: f"{found.module}.{found.name}")
def test_an_object_is_small(found: Class) -> None:
    """The depth of exceptions is not limited: their tree says which party is at fault (``errors.py``), and a caller
    catches a branch of it. An exception inherits a kind, not behaviour."""
    chain = ancestors(found, NAMED)
    methods = {method for each in chain for method in each.methods}
    assert len(methods) <= MOST_METHODS
    assert depth(found, NAMED) <= MOST_DEEP or is_exception(found, NAMED)


REBOUND = [found for found in HOUSE.classes if found.rebound]


@pytest.mark.parametrize("found", REBOUND, ids=lambda found: f"{found.module}.{found.name}")
def test_an_attribute_that_changes_has_a_lock_or_an_owner(found: Class) -> None:
    assert without_owner(found) == []


def test_every_row_of_owners_covers_a_class() -> None:
    assert set(OWNERS) == {row for found in REBOUND for row in rows_of_owners(found)}


# --- purity, and the launcher's budget ---


def _is_pure(name: str) -> bool:
    return name in PURE or (name.startswith(("core.", "net.protocol.")) and name not in NOT_PURE)


@pytest.mark.parametrize("name", [name for name in HOUSE.filled if _is_pure(name)])
def test_pure_modules_are_pure(name: str) -> None:
    allowed = PURE_LIBRARY | LIBRARY_OF.get(name, set())
    for imported, typing_only in imports(name):
        assert typing_only or own(imported) is not None or imported in allowed, imported
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(HOUSE.modules[name].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"open", "print", "input", "exec", "eval"} & set(calls)


def test_pure_modules_exist() -> None:
    assert set(HOUSE.modules) >= PURE | NOT_PURE | set(LIBRARY_OF)


@pytest.mark.parametrize("name", sorted(LAUNCHER))
def test_the_launcher_keeps_to_its_import_budget(name: str) -> None:
    for imported, typing_only in imports(name):
        assert typing_only or imported in LAUNCHER_LIBRARY or own(imported) in LAUNCHER, imported


@pytest.mark.parametrize("name", [name for name in HOUSE.filled if not name.startswith(EDGES)])
def test_only_the_edges_look_at_the_environment(name: str) -> None:
    looks = {"environ", "environb", "getenv", "expanduser", "getcwd"}
    used = {
        node.attr
        for node in ast.walk(ast.parse(HOUSE.modules[name].read_text()))
        if isinstance(node, ast.Attribute) and node.attr in looks
    }
    assert not used


# --- files ---


def test_files_are_small_and_named_for_what_they_are() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in HOUSE.modules.items()}
    assert {name: length for name, length in lengths.items() if length > 550} == {}
    assert sorted(lengths.values())[len(lengths) // 2] < 250
    assert not FORBIDDEN_NAMES & {path.stem for path in HOUSE.modules.values()}


# --- the fast path ---


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {
    "argparse", "ast", "datetime", "enum", "inspect", "json", "re", "signal", "termios", "threading", "typing",
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


def names_from_typing(name: str) -> set[str]:
    """Return the names that a module imports from ``typing``."""
    tree = ast.parse(HOUSE.modules[name].read_text())
    rows = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "typing"]
    return {alias.name for node in rows for alias in node.names}


def takes_typing_itself(name: str) -> bool:
    """Return whether a module may import ``typing``: it is loaded there anyway, and msgspec reads its annotations."""
    return name == "typing" or name.startswith(("web.", "tui.", "sandbox.launcher.")) or imports_msgspec(name)


def imports_msgspec(name: str) -> bool:
    body = ast.parse(HOUSE.modules[name].read_text()).body
    modules = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    return "msgspec" in modules


@pytest.mark.parametrize("name", [name for name in HOUSE.filled if not takes_typing_itself(name)])
def test_names_of_typing_come_from_mudroom_typing(name: str) -> None:
    assert names_from_typing(name) == set()


@pytest.mark.parametrize("name", [name for name in HOUSE.filled if takes_typing_itself(name) and name != "typing"])
def test_a_module_whose_annotations_are_read_takes_typing_itself(name: str) -> None:
    assert "typing" not in HOUSE.imports[name]


def test_the_launcher_loads_nothing_else() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r});"
        "from mudroom.sandbox.launcher import launcher, mediator; print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert not (HEAVY | {"typing", "re", "enum", "collections"}) & set(done.stdout.split())


LINUX_ONLY_CALLS = (
    "keeper/caller.py",
    "keeper/command.py",
    "keeper/server.py",
    "keeper/start.py",
    "sandbox/container/box.py",
    "sandbox/launcher/clearing.py",
    "sandbox/launcher/directory.py",
    "sandbox/launcher/mediator.py",
    "sandbox/launcher/step.py",
)
"""Files that pass ``dir_fd`` themselves: they run on Linux alone, and import no other room that could do it for them.
The list may only become shorter."""


def test_files_are_called_by_one_module() -> None:
    source = ROOT / "src" / "mudroom"
    found = [
        str(path.relative_to(source))
        for path in sorted(source.rglob("*.py"))
        if path.name != "disk.py" and re.search(r"\b(?:src_|dst_)?dir_fd=", path.read_text())
    ]
    assert found == sorted(LINUX_ONLY_CALLS), "call mudroom.stage.disk, which Windows has in another form"
