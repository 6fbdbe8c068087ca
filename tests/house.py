"""The table of rooms and shelves, and the structure of a checkout as a value. No test is here.

``test_architecture.py`` holds the source to the table, ``dev/structure`` prints the figures, and the picture in
docs/DESIGN.md is made from it: ``python tests/house.py`` prints it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Room(NamedTuple):
    """A folder or a module directly in ``src/mudroom``."""

    holds: str
    may_import: tuple[str, ...] = ()
    """Other rooms."""
    shelves: tuple[tuple[str, ...], ...] = ()
    """Folders of the room from the lowest to the highest; those of a row do not import each other. ``""`` stands for
    the modules that lie directly in the room."""


_BASE = ("core", "errors", "typing")
_MIDDLE = (*_BASE, "stage", "sandbox", "net", "vault", "policy", "session")
_ALL = (*_MIDDLE, "library", "cli", "api")

ROOMS: Mapping[str, Room] = {
    # the kernel
    "errors": Room("exceptions by the party at fault, with exit codes"),
    "typing": Room("names of typing at run time, without its cost"),
    "core": Room(
        "values and decisions, pure but for system and text.table: no files, clock, randomness, sockets, threads",
        ("errors", "typing"),
        (
            ("text",),
            ("tree",),
            ("confinement", "git", "merge", "network"),
            ("command",),
            ("agent", "command.shell", "journal"),
            ("command.program",),
            ("approval",),
            ("",),
            ("system",),
        ),
    ),
    "stage": Room(
        "the files of a fork: write buffer, layers, views, originals",
        _BASE,
        (("",), ("buffer", "layers"), ("originals", "views")),
    ),
    "sandbox": Room(
        "a spec turned into a confined process", _BASE, (("linux",), ("host", "limits"), ("client",), ("",))
    ),
    "net": Room("the gate: protocols, decisions about hosts", _BASE, (("protocol",), ("gate",), ("listeners",), ("",))),
    "vault": Room(
        "data that survives a command: forks, apply and undo, conflicts, journal, approvals",
        (*_BASE, "stage"),
        (
            ("", "git"),
            ("approvals", "journal"),
            ("store",),
            ("caches", "conflict", "forks"),
            ("apply",),
            ("retention",),
        ),
    ),
    "policy": Room("policy files: read, checked, combined, trusted, cached", (*_BASE, "stage")),
    "session": Room(
        "the way of one command, and the work on forks",
        (*_BASE, "stage", "sandbox", "net", "vault", "policy"),
        (("confinement",), ("shared_sandbox",), ("",)),
    ),
    "library": Room("import mudroom: rooms, forks and results for programs", _MIDDLE),
    "cli": Room(
        "the command line: a folder by subject, a file a verb",
        (*_MIDDLE, "library"),
        (("terminal",), ("", "doctor"), ("net", "policy", "vault"), ("change", "host"), ("command", "fork")),
    ),
    "__main__": Room("python -m mudroom", ("cli",)),
    "api": Room("the names that a satellite may rely on", (*_MIDDLE, "library", "cli")),
    # satellites
    "ext": Room("the folder of satellites"),
    "ext.windows": Room("Windows: its API, job objects, AppContainer; twins of POSIX calls", _ALL),
    "ext.macos": Room("macOS: Seatbelt", _ALL),
    "ext.inspection": Room("inside HTTPS: certificates, credentials that no sandbox has", _ALL),
    "ext.effects": Room(
        "git pushes, publishes, mail and other requests that wait for an apply: held, shown, sent, taken back",
        (*_ALL, "ext.inspection"),
    ),
    "ext.gpu": Room("what a graphics or compute card needs in a sandbox, by the machine's CDI files", _ALL),
    "ext.containers": Room("level 2: images, engines, containers", _ALL),
    "ext.engine": Room("an engine of containers beside a command, in a sandbox of its own", _ALL),
    "ext.certify": Room(
        "what of a platform is open: rows that were tried on this machine", (*_ALL, "ext.macos", "ext.windows")
    ),
    "ext.transfer": Room("a fork carried elsewhere: packed, checked, based anew", _ALL),
    "ext.commits": Room("a fork's commits in the user's repository: listed, brought, made of an apply", _ALL),
    "ext.attempts": Room("a task tried several times side by side, and judged", (*_ALL, "ext.windows")),
    "ext.agents": Room("agents: profiles, hooks, tools, ACP, MCP", (*_ALL, "ext.windows")),
    "ext.upgrade": Room("a command whose mudroom is replaced meanwhile", _ALL),
    "ext.keeper": Room("a warm process that runs commands, and its client", (*_ALL, "ext.upgrade")),
    "ext.fleet": Room(
        "forks that run on other machines: the link, the base, the worker, the origin",
        (*_ALL, "ext.transfer", "ext.inspection"),
    ),
    "ext.review": Room("what the page and the terminal show of a fork: rows with contents, history", _ALL),
    "ext.order": Room(
        "the order of a review: rows and hunks by the cost of a mistake in them, with reasons", (*_ALL, "ext.review")
    ),
    "ext.reasons": Room("the commands and turns that were observed at a hunk; Agent Trace", (*_ALL, "ext.review")),
    "ext.remarks": Room(
        "remarks about a fork: kept with it, carried along with their lines, sent to its agent", (*_ALL, "ext.review")
    ),
    "ext.decisions": Room(
        "the queue of decisions: what waits for the user, in the order in which it costs somebody time",
        (*_ALL, "ext.remarks"),
    ),
    "ext.views": Room(
        "a changed file by its parts: packages, cells, keys, tables, members", (*_ALL, "ext.order", "ext.review")
    ),
    "ext.tui": Room(
        "the review in a terminal",
        (
            *_ALL,
            "ext.attempts",
            "ext.commits",
            "ext.decisions",
            "ext.order",
            "ext.reasons",
            "ext.remarks",
            "ext.review",
            "ext.views",
        ),
    ),
    "ext.web": Room(
        "mudroom serve: the page and its API",
        (
            *_ALL,
            "ext.attempts",
            "ext.agents",
            "ext.commits",
            "ext.decisions",
            "ext.order",
            "ext.reasons",
            "ext.remarks",
            "ext.review",
            "ext.views",
            "ext.windows",
        ),
    ),
    "ext.completion": Room("completion for shells, and the manual page", _ALL),
    "ext.merging": Room("conflicts that are settled by rule, lock files made again", _ALL),
    "ext.learning": Room("what was answered in a project, as a policy file", _ALL),
    "ext.outside": Room("files that a command wrote outside the project: kept for a day, copied out", _ALL),
    "ext.live": Room("a fork of a fork while commands run in it, and the policy's start commands", _ALL),
    "ext.fsspec": Room("a fork as an fsspec file system", _ALL),
    "ext.pytest": Room("a fork for each test of pytest", ("api", "typing")),
    "ext.orchestra": Room(
        "others' frameworks: mudroom as the sandbox behind their interfaces",
        ("api", "errors", "library", "policy", "typing"),
    ),
}

UNFINISHED: Mapping[str, frozenset[str]] = {}
"""Satellites that a room imports and should not. Rows only leave."""

MOST_MODULES = 25
"""Modules that lie in one folder, ``__init__`` not counted."""
MOST_CODE = {"kernel": 59_175, "satellites": 62_679}
"""Lines of code without tables (``code_lines``). The numbers only fall: a commit that adds code removes as much
elsewhere, and says what. A file is as long as its idea, an object as large as its job: neither has a limit."""
MOST_DEEP = 2
"""Classes of the project in a chain of inheritance."""


_ONE_CALL = "the caller: an object lives within one call, in one thread"
_GATE = "the event loop of the gate's process"

OWNERS: Mapping[str, str] = {
    "core": "the caller; an object that several threads reach is guarded by its holder",
    "ext.fleet.wire": "the thread that reads the link",
    "ext.reasons": _ONE_CALL,
    "ext.review.core": _ONE_CALL,
    "net.gate": _GATE,
    "ext.inspection": _GATE,
    "ext.effects": "in gate.py the event loop of the gate's process, else the thread that attends to the command",
    "net.process": _GATE,
    "net.protocol": "the caller: the thread or event loop of the connection that is read",
    "ext.macos.warden": "the warden's only thread",
    "ext.windows.sandbox": "the caller: the thread that runs the command",
    "stage.layers": _ONE_CALL,
    "ext.tui": "the event loop of the review",
    "vault.apply": _ONE_CALL,
    "vault.conflict": _ONE_CALL,
    "ext.commits": _ONE_CALL,
    "vault.retention": _ONE_CALL,
    "ext.transfer.vault": _ONE_CALL,
    "ext.web.server.server": "the event loop of the page's server",
}
"""Who writes attributes of objects outside ``__init__``, by the beginning of a module's name: no other thread does. A
class below none of these names its lock or owner in its docstring, or beside the attribute in ``__init__``."""


class Class(NamedTuple):
    module: str
    name: str
    bases: tuple[str, ...]
    methods: frozenset[str]
    rebound: frozenset[str]
    """Attributes of ``self`` that are written outside ``__init__``."""
    text: str
    """Docstring and source, for what they say of locks and owners."""


class Facts(NamedTuple):
    """Of a module, from one walk over its tree."""

    imports: tuple[tuple[str, bool], ...]
    """The modules that it imports, each with whether only for type checking."""
    own: frozenset[str]
    """Those of ``mudroom``, without the name of the package."""
    top: frozenset[str]
    """Those that its top level imports."""
    from_typing: frozenset[str]
    """The names that it imports from ``typing``."""
    calls: frozenset[str]
    """The plain names that it calls."""
    environment: frozenset[str]
    """The attributes with which it looks at the environment."""
    public: tuple[str, ...]
    """Its public classes."""


class Structure(NamedTuple):
    """A checkout, read and not run."""

    modules: Mapping[str, Path]
    imports: Mapping[str, frozenset[str]]
    """Own modules that each module imports, deferred imports and typing imports included."""
    classes: tuple[Class, ...]
    facts: Mapping[str, Facts]

    @property
    def filled(self) -> list[str]:
        """Modules that hold code: without empty ``__init__`` files."""
        return [name for name, path in self.modules.items() if path.name != "__init__.py"]


def read(root: Path = ROOT) -> Structure:
    """Return the structure of the checkout at ``root``. Each file is parsed once, and its tree let go."""
    source = root / "src" / "mudroom"
    modules = {_name(path, source): path for path in sorted(source.rglob("*.py"))}
    facts: dict[str, Facts] = {}
    classes: list[Class] = []
    for name, path in modules.items():
        text = path.read_text()
        tree = ast.parse(text)
        facts[name] = _facts(tree, modules)
        if name != "typing":  # its classes stand for those of the standard library
            classes += _classes(name, tree, text)
    imports = {name: each.own - {name} for name, each in facts.items()}
    return Structure(modules, imports, tuple(classes), facts)


LOOKS = {"environ", "environb", "getenv", "expanduser", "getcwd"}


def _facts(tree: ast.Module, modules: Mapping[str, Path]) -> Facts:
    typing_only: set[int] = set()
    imports: list[tuple[str, bool]] = []
    from_typing: set[str] = set()
    targets: set[str | None] = set()
    calls: set[str] = set()
    environment: set[str] = set()
    for node in ast.walk(tree):  # from the outside in: an ``if`` comes before its body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typing_only |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
        elif isinstance(node, ast.Import):
            imports += [(alias.name, id(node) in typing_only) for alias in node.names]
            targets |= {own(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.module or "", id(node) in typing_only))
            package = own(node.module or "")
            for alias in node.names if package is not None else ():
                name = f"{package}.{alias.name}".lstrip(".")
                targets.add(name if name in modules else package)
            if node.module == "typing":
                from_typing |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.add(node.func.id)
        elif isinstance(node, ast.Attribute) and node.attr in LOOKS:
            environment.add(node.attr)
    top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    return Facts(
        tuple(imports),
        frozenset(target for target in targets if target),
        frozenset(top | {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}),
        frozenset(from_typing),
        frozenset(calls),
        frozenset(environment),
        tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")),
    )


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def own(name: str) -> str | None:
    """Return the name below ``mudroom``; "" for the package itself, None for a module of somebody else."""
    if name == "mudroom":
        return ""
    return name.removeprefix("mudroom.") if name.startswith("mudroom.") else None


def _classes(module: str, tree: ast.Module, source: str) -> Iterator[Class]:
    lines = source.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        functions = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        rebound = {
            item.attr
            for function in functions
            if function.name not in ("__init__", "__new__")
            for item in ast.walk(function)
            if isinstance(item, ast.Attribute)
            and isinstance(item.ctx, ast.Store)
            and isinstance(item.value, ast.Name)
            and item.value.id == "self"
        }
        yield Class(
            module,
            node.name,
            tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases),
            frozenset(function.name for function in functions),
            frozenset(rebound),
            "\n".join([lines[node.lineno - 1][node.col_offset :], *lines[node.lineno : node.end_lineno]]),
        )


# --- figures ---


def room_of(module: str) -> str:
    """Return the folder directly in ``src/mudroom``, or that of the satellite."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "ext" else parts[0]


def is_of_kernel(module: str) -> bool:
    return module.partition(".")[0] != "ext"


def shelf_of(module: str, structure: Structure) -> str:
    """Return the folder within the room; "" for a module that lies directly in it."""
    parts = module.split(".")[room_of(module).count(".") :]
    return ".".join(parts[1:] if structure.modules[module].name == "__init__.py" else parts[1:-1])


def arrows(structure: Structure) -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second."""
    return {
        (room_of(module), room_of(target))
        for module, targets in structure.imports.items()
        for target in targets
        if room_of(module) != room_of(target)
    }


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of names that reach each other along ``edges`` (Tarjan's strongly connected components)."""
    graph: dict[str, set[str]] = {}
    for source, target in edges:
        graph.setdefault(source, set()).add(target)
        graph.setdefault(target, set())
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return groups


def floors(edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the floor of each room, from 1: above all that it imports; a circle is one floor."""
    pairs = set(edges)
    member = {name: "+".join(group) for group in circles(pairs) for name in group}
    below: dict[str, set[str]] = {}
    for source, target in pairs:
        above, under = member.get(source, source), member.get(target, target)
        below.setdefault(above, set())
        below.setdefault(under, set())
        if above != under:
            below[above].add(under)
    height: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((floor(target) for target in below[name]), default=0)
        return height[name]

    return {name: floor(member.get(name, name)) for pair in pairs for name in pair}


def ancestors(found: Class, by_name: Mapping[str, list[Class]]) -> list[Class]:
    """Return the class and its own bases, each once; a base is the class of that name, in the same module first."""
    chain, waiting = [found], list(found.bases)
    while waiting:
        candidates = by_name.get(waiting.pop(), [])
        for candidate in candidates[:1]:
            if candidate not in chain:
                chain.append(candidate)
                waiting += candidate.bases
    return chain


def is_exception(found: Class, by_name: Mapping[str, list[Class]]) -> bool:
    """Return whether the class derives from ``Exception``, through own bases."""
    return any("Exception" in each.bases for each in ancestors(found, by_name))


def depth(found: Class, by_name: Mapping[str, list[Class]]) -> int:
    """Return how many classes of the project stand in the longest chain above and including ``found``."""
    above = [by_name[base][0] for base in found.bases if base in by_name and by_name[base][0] != found]
    return 1 + max((depth(base, by_name) for base in above), default=0)


def by_name(structure: Structure) -> dict[str, list[Class]]:
    names: dict[str, list[Class]] = {}
    for found in structure.classes:
        names.setdefault(found.name, []).append(found)
    return names


def prose(path: Path) -> str:
    """Return the docstrings and comments of a file."""
    words = []
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            words.append(token.string[1:])
        elif token.type == tokenize.STRING and token.string.lstrip("rRbB").startswith('"""'):
            words.append(token.string)
    return " ".join(words)


def code_lines(path: Path) -> int:
    """Return the number of lines that hold code: blank lines, comments, docstrings and tables do not count.

    A table is a display of values at the top of a module, of more than three lines."""
    source = path.read_text()
    rows = enumerate(source.splitlines(), 1)
    lines = {number for number, row in rows if row.strip() and not row.lstrip().startswith("#")}
    tree = ast.parse(source)
    for top in tree.body:
        if isinstance(top, (ast.Assign, ast.AnnAssign)) and _is_display(top.value):
            rows_of = range(top.lineno + 1, top.end_lineno or top.lineno)
            lines.difference_update(rows_of if len(rows_of) > 1 else ())
    for node in ast.walk(tree):
        # A text that stands alone is a docstring, also one of an attribute.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_display(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):  # frozenset({…}), MappingProxyType({…})
        return len(value.args) == 1 and not value.keywords and _is_display(value.args[0])
    return isinstance(value, (ast.Tuple, ast.List, ast.Set, ast.Dict))


def budget(structure: Structure) -> dict[str, int]:
    """Return the lines of code of the kernel, and those of all satellites."""
    sums = {"kernel": 0, "satellites": 0}
    for name, path in structure.modules.items():
        sums["kernel" if is_of_kernel(name) else "satellites"] += code_lines(path)
    return sums


def per_thousand(text: str, words: Iterable[str]) -> float:
    """Return how many of 1,000 words of ``text`` are in ``words``."""
    every = re.findall(r"[A-Za-z']+", text.lower())
    wanted = set(words)
    return 1000 * sum(word in wanted for word in every) / max(len(every), 1)


# --- owners ---

_OWNER = re.compile(r"(?<![a-z])(?:lock|guards|thread|event loop|owner|caller)", re.IGNORECASE)


def rows_of_owners(found: Class) -> list[str]:
    """Return the rows of ``OWNERS`` that cover a class."""
    return [row for row in OWNERS if f"{found.module}.".startswith(row + ".")]


def without_owner(found: Class) -> list[str]:
    """Return the attributes, written outside ``__init__``, whose lock or owner the class does not name."""
    if rows_of_owners(found):
        return []
    lines = found.text.splitlines()
    top = ast.parse(found.text).body[0]
    assert isinstance(top, ast.ClassDef)
    if _OWNER.search(ast.get_docstring(top) or ""):
        return []
    init = next((item for item in top.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    named = set()
    body = init.body if init is not None else []
    for number, statement in enumerate(body):
        after = body[number + 1] if number + 1 < len(body) else None
        beside = lines[statement.lineno - 1].partition("#")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            beside += str(after.value.value)
        if _OWNER.search(beside):
            named |= {item.attr for item in ast.walk(statement) if isinstance(item, ast.Attribute)}
    return sorted(found.rebound - named)


# --- the picture of docs/DESIGN.md ---


def picture() -> str:
    """Return the map: the rooms of the kernel by floor, the highest first, then the satellites."""
    edges = {(name, target) for name, room in ROOMS.items() for target in room.may_import if is_of_kernel(name)}
    height = floors(edges)
    lines = []
    for floor in range(max(height.values()), 0, -1):
        for name in (name for name in ROOMS if is_of_kernel(name) and height.get(name, 1) == floor):
            lines.append(f"{floor}  {name:<11} {ROOMS[name].holds}")
            rows = [" ".join(shelf or "(room)" for shelf in row) for row in ROOMS[name].shelves]
            if rows:
                lines.append(f"   {'':<11} {' < '.join(rows)}")
    lines.append("")
    for name in (name for name in ROOMS if name.startswith("ext.")):
        others = " ".join(each for each in ROOMS[name].may_import if each.startswith("ext."))
        lines.append(f"{name:<14} {ROOMS[name].holds}{f' (imports {others})' if others else ''}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(picture())  # noqa: T201
