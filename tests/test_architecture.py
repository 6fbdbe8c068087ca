"""The rules of the house, kept by a machine: the table in ``house.py`` against every import, deferred and typing
imports included, and the sum of the code."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections import Counter

import pytest

from house import (
    MOST_CODE,
    MOST_DEEP,
    MOST_MODULES,
    OWNERS,
    ROOMS,
    ROOT,
    UNFINISHED,
    Class,
    Structure,
    budget,
    by_name,
    circles,
    depth,
    is_exception,
    is_of_kernel,
    own,
    picture,
    read,
    room_of,
    rows_of_owners,
    shelf_of,
    without_owner,
)
from mudroom.cli.main import VERBS
from mudroom.core.registry import NEEDS, ROWS
from satellites import whole
from tiers import each

pytestmark = pytest.mark.limit(300)  # the first of them reads all code: two seconds, or a hundred on a busy machine


@functools.cache
def house() -> Structure:
    """Not at the import: every process of a run imports this file, and one runs its tests."""
    return read()


PURE = {
    "sandbox.linux.plan", "sandbox.linux.bare_plan", "sandbox.linux.seccomp", "sandbox.linux.syscall",
    "sandbox.linux.metadata", "sandbox.linux.netlink",
    "ext.containers.engine.image_plan", "ext.containers.engine.plain_plan",
    "ext.containers.engine.profile", "ext.macos.seatbelt", "ext.windows.sandbox.plan",
}  # fmt: skip
"""Beside all of ``core`` and ``net/protocol`` but its ``wire``."""
NOT_PURE = ("core.system.", "core.text.table", "net.protocol.wire")
PURE_LIBRARY = {
    "__future__", "_blake2", "_sha1", "binascii", "bisect", "collections", "collections.abc", "difflib", "functools",
    "hashlib", "itertools", "_json", "json", "math", "re", "struct", "tomllib", "types", "typing", "unicodedata",
}  # fmt: skip
LIBRARY_OF = {
    "ext.order.core.dull": {"ast", "builtins", "io", "sys", "tokenize", "warnings"},
    "ext.order.core.syntax": {"tree_sitter"},
    "ext.order.core.weakened": {"ast"},
    "core.registry": {"sys"},
    "core.text.sha256": {"_sha2", "_sha256", "sys"},  # the module of the interpreter, whose name depends on the version
    "core.network.loopback": {"publicsuffixlist"},
    "core.tree.pattern": {"pathspec.patterns.gitignore.spec", "warnings"},
    "ext.remarks.core.value": {"msgspec"},
    "core.command.shell.grammar": {"importlib.machinery", "importlib.util", "tree_sitter", "tree_sitter_bash"},
}
EDGES = ("cli", "ext.completion", "ext.keeper.command", "policy.config")
"""Modules that may look at the environment, the home directory and the current directory."""


def is_edge(name: str) -> bool:
    return name.startswith(EDGES) or (not is_of_kernel(name) and ".cli" in name)


FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}


# --- rooms and shelves ---


@whole
def test_every_room_is_in_the_table() -> None:
    assert {room_of(name) for name in house().modules if name} == set(ROOMS)


def test_a_room_imports_only_rooms_below_it() -> None:
    wrong = {}
    for name in filter(None, house().modules):  # the package itself offers what is above
        room = room_of(name)
        others = {room_of(target) for target in house().imports[name]} - {room}
        wrong[name] = others - set(ROOMS[room].may_import) - UNFINISHED.get(room, frozenset())
    assert {name: rooms for name, rooms in wrong.items() if rooms} == {}, "imports of rooms that are not below"


def test_a_room_of_the_kernel_lists_no_satellite() -> None:
    listed = {name: {room for room in ROOMS[name].may_import if not is_of_kernel(room)} for name in ROOMS}
    assert {name: rooms for name, rooms in listed.items() if rooms and is_of_kernel(name)} == {}


def test_what_is_unfinished_is_still_so() -> None:
    found = {(room_of(name), room_of(target)) for name, targets in house().imports.items() for target in targets}
    gone = {room: [each for each in sorted(others) if (room, each) not in found] for room, others in UNFINISHED.items()}
    assert {room: others for room, others in gone.items() if others} == {}, "take the row from UNFINISHED"


@whole
def test_every_row_of_the_registry_names_a_module() -> None:
    named = {f"ext.{module}" for rows in ROWS.values() for module in rows.values()}
    assert named - set(house().modules) == set()


@whole
def test_the_registry_knows_which_satellites_need_others() -> None:
    """By imports at the top of a module; what a platform adds is loaded on that platform alone."""
    found = {
        (room_of(name).removeprefix("ext."), room_of(target).removeprefix("ext."))
        for name, facts in house().facts.items()
        for target in filter(None, map(own, facts.top))
        if not is_of_kernel(name) and not is_of_kernel(target) and room_of(target) not in (room_of(name), "ext")
    }
    listed = {(satellite, other) for satellite, others in NEEDS.items() for other in others}
    assert {pair for pair in found if pair[1] not in ("macos", "windows")} == listed


def test_every_verb_without_a_folder_is_in_the_registry() -> None:
    assert {verb for verb, row in VERBS.items() if not row.folder} == set(ROWS["verb"])


def test_the_table_of_rooms_has_no_circle() -> None:
    assert circles((name, target) for name, room in ROOMS.items() for target in room.may_import) == []


@each("room", [name for name in ROOMS if ROOMS[name].shelves])
def test_a_shelf_imports_only_shelves_below_it(room: str) -> None:
    row_of = {shelf: number for number, row in enumerate(ROOMS[room].shelves) for shelf in row}
    structure = house()
    inside = [name for name in structure.filled if room_of(name) == room]
    assert {shelf_of(name, structure) for name in inside} == set(row_of)
    for name in inside:
        shelf = shelf_of(name, structure)
        for target in structure.imports[name]:
            if room_of(target) == room and shelf_of(target, structure) != shelf:
                assert row_of[shelf_of(target, structure)] < row_of[shelf], f"{name} imports {target}"


def test_no_module_is_in_an_import_circle() -> None:
    edges = ((name, target) for name, targets in house().imports.items() for target in targets)
    assert circles(edges) == []


def test_a_folder_holds_what_can_be_taken_in_at_a_glance() -> None:
    per_folder = Counter(house().modules[name].parent for name in house().filled)
    assert {str(folder): count for folder, count in per_folder.items() if count > MOST_MODULES} == {}


def test_the_picture_in_the_documents_is_that_of_the_table() -> None:
    assert picture() in (ROOT / "docs/DESIGN.md").read_text(), "python tests/house.py prints the picture"


# --- objects ---


def test_public_class_names_are_unique() -> None:
    top = Counter(name for facts in house().facts.values() for name in facts.public)
    assert {name: count for name, count in top.items() if count > 1} == {}


def test_objects_are_composed() -> None:
    """The depth of exceptions is not limited: their tree says which party is at fault (``errors.py``), and a caller
    catches a branch of it. An exception inherits a kind, not behaviour."""
    named = by_name(house())
    for found in house().classes:
        where = f"{found.module}.{found.name}"
        assert depth(found, named) <= MOST_DEEP or is_exception(found, named), where


@whole
def test_the_sum_of_code_only_falls() -> None:
    counts = budget(house())
    for part, count in counts.items():
        assert count <= MOST_CODE[part], f"the {part}: remove as many lines as you add; the commit says which"
        assert count > MOST_CODE[part] - 200, f"lower MOST_CODE of the {part} in tests/house.py to {count}"


def rebound() -> list[Class]:
    return [found for found in house().classes if found.rebound]


def test_an_attribute_that_changes_has_a_lock_or_an_owner() -> None:
    wrong = {f"{found.module}.{found.name}": without_owner(found) for found in rebound()}
    assert {name: attributes for name, attributes in wrong.items() if attributes} == {}


@whole
def test_every_row_of_owners_covers_a_class() -> None:
    assert set(OWNERS) == {row for found in rebound() for row in rows_of_owners(found)}


# --- purity ---


def _is_pure(name: str) -> bool:
    is_below = name.startswith(("core.", "net.protocol.")) or ".core." in name
    return name in PURE or (is_below and not name.startswith(NOT_PURE))


def test_pure_modules_are_pure() -> None:
    for name in (name for name in house().filled if _is_pure(name)):
        allowed = PURE_LIBRARY | LIBRARY_OF.get(name, set())
        for imported, typing_only in house().facts[name].imports:
            assert typing_only or own(imported) is not None or imported in allowed, f"{name} imports {imported}"
        assert not {"open", "print", "input", "exec", "eval"} & house().facts[name].calls, name


@whole
def test_pure_modules_exist() -> None:
    assert set(house().modules) >= PURE | set(LIBRARY_OF)


def test_only_the_edges_look_at_the_environment() -> None:
    used = {name: house().facts[name].environment for name in house().filled if not is_edge(name)}
    assert {name: attributes for name, attributes in used.items() if attributes} == {}


# --- files ---


def test_files_are_named_for_what_they_are() -> None:
    assert not FORBIDDEN_NAMES & {path.stem for path in house().modules.values()}


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
    ("statement", "permitted"),
    [
        ("import mudroom", set()),
        ("import mudroom.cli.main", set()),
        ("import mudroom.cli.command.run", {"argparse", "enum", "re"}),
        ("import mudroom.session", set()),
    ],
)
def test_the_fast_path_loads_nothing_heavy(statement: str, permitted: set[str]) -> None:
    before = loaded_by("pass")
    assert HEAVY & (loaded_by(statement) - before) == permitted


def takes_typing_itself(name: str) -> bool:
    """Return whether a module may import ``typing``: it is loaded there anyway, and msgspec reads its annotations."""
    return (
        name == "typing"
        or (name.startswith(("ext.web.", "ext.tui.")) and not is_edge(name))
        or "msgspec" in house().facts[name].top
    )


def test_names_of_typing_come_from_mudroom_typing() -> None:
    names = {name: house().facts[name].from_typing for name in house().filled if not takes_typing_itself(name)}
    assert {name: taken for name, taken in names.items() if taken} == {}


def test_a_module_whose_annotations_are_read_takes_typing_itself() -> None:
    reading = [name for name in house().filled if takes_typing_itself(name) and name != "typing"]
    assert [name for name in reading if "typing" in house().imports[name]] == []


LINUX_ONLY_CALLS = (
    "ext/containers/engine/box.py",
    "ext/keeper/caller.py",
    "ext/keeper/command.py",
    "ext/keeper/server.py",
    "ext/keeper/start.py",
)
"""Files that pass ``dir_fd`` themselves: they run on Linux alone, and import no other room that could do it for them.
The list may only become shorter."""


@whole
def test_files_are_called_by_one_module() -> None:
    source = ROOT / "src" / "mudroom"
    found = [
        str(path.relative_to(source))
        for path in sorted(source.rglob("*.py"))
        if path.name != "disk.py" and re.search(r"\b(?:src_|dst_)?dir_fd=", path.read_text())
    ]
    assert found == sorted(LINUX_ONLY_CALLS), "call mudroom.stage.disk, which Windows has in another form"


@whole
def test_a_file_that_a_docstring_names_exists() -> None:
    """``room/module.py``, with ``:Name`` something defined in it; what has been moved is named where it is now."""
    files = {path.relative_to(ROOT).as_posix(): path for path in house().modules.values()}
    named = re.compile(r"``(\w[\w/]*/\w+\.py)(?::(\w+))?``")
    wrong = []
    for place, path in files.items():
        for name, definition in named.findall(path.read_text()):
            found = [file for file in files if file.endswith(f"/{name}")]
            is_there = bool(found) or (ROOT / name).exists()
            line = re.compile(rf"^\s*(?:class |def )?{definition}\b", re.MULTILINE)
            if not is_there or (definition and not any(line.search(files[file].read_text()) for file in found)):
                wrong.append(f"{place}: {name}{':' if definition else ''}{definition}")
    assert wrong == []
