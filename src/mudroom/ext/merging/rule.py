"""Conflicts that people settle by hand in the same way each time, settled by rule. Pure.

A rule is a row of ``RULES``: where it holds, and how it joins the lines of one conflict. A result counts only if

1. every conflict of the file is settled by a rule,
2. the whole result is parsed again by the guard of its language (``GUARDS``), and
3. its parts are the base's, with the changes of both sides and no others: parts, not lines, are counted. Statements
   and elements are parts of Python, values those of JSON and TOML.

A guard fails closed: a text that it cannot read, a name that both sides define, a return beside the other side's
statement leave the conflict as it is. A settled conflict is still one, until the user or the policy takes the result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product

from mudroom.core.merge.diff3 import Chunk, Lines, MergedText
from mudroom.core.merge.marker import resolve
from mudroom.core.tree.path import name
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.conflict.rule_merge import RuleMerge

if TYPE_CHECKING:
    import ast

LIMIT = 1 << 19
"""Bytes. A larger text is not settled: its guard would take seconds."""
MOST_PAIRS = 10_000
"""Pairs of statements in one body, one of each side, that are compared."""

Texts = tuple[bytes, bytes, bytes, bytes]
"""Base, ours, theirs and the result."""


class ConflictContext(NamedTuple):
    """A conflict's place in the text."""

    before: bytes
    """The line before; empty at the beginning of the text, or if it is blank."""
    after: bytes
    columns: int
    """Longest line of the project's text, between ``_COLUMNS``."""


_COLUMNS = 88, 120


class MergeRule(NamedTuple):
    words: str
    languages: tuple[str, ...]
    join: Callable[[Chunk, ConflictContext], Lines | None]
    """Return the joined lines, or None where the rule does not hold."""


_CHECKSUMS = (b"go.sum", b"go.work.sum")
_LOCKS = (b"package-lock.json", b"npm-shrinkwrap.json")
"""Only their package manager can tell whether a text is right (``lock_file.py``)."""


def language_of(path: bytes) -> str:
    """Return a key of ``GUARDS``, or an empty string if no rule holds for such a file."""
    last = name(path)
    if last in _CHECKSUMS or last in _LOCKS:
        return "checksums" if last in _CHECKSUMS else ""
    suffix = last.lower().rpartition(b".")[2]
    return {b"py": "python", b"pyi": "python", b"json": "json", b"toml": "toml"}.get(suffix, "")


def settle(path: bytes, merged: MergedText) -> RuleMerge | None:
    """As ``vault/conflict/rule_merge.py:settle``."""
    language = language_of(path)
    sides = ("base", "ours", "theirs")
    base, ours, theirs = (b"".join(line for chunk in merged.chunks for line in getattr(chunk, side)) for side in sides)
    if not language or merged.clean or max(map(len, (base, ours, theirs))) > LIMIT:
        return None
    for rules in (RULES, RULES[::-1]):  # where two rules hold, the guard decides between them
        settled = _settled(language, merged, rules)
        if settled is not None and GUARDS[language]((base, ours, theirs, settled.content)):
            return settled
    return None


def _settled(language: str, merged: MergedText, rules: Sequence[MergeRule]) -> RuleMerge | None:
    columns = max((len(line) for chunk in merged.chunks for line in chunk.ours), default=0)
    columns = min(max(columns - 1, _COLUMNS[0]), _COLUMNS[1])
    used: dict[str, None] = {}
    joined: dict[int, bytes] = {}
    for place, chunk in enumerate(merged.chunks):
        if chunk.kind != "conflict":
            continue
        around = [merged.chunks[at].outcome if 0 <= at < len(merged.chunks) else () for at in (place - 1, place + 1)]
        ends = b"".join(around[0][-1:]), b"".join(around[1][:1])
        before, after = (line if line.strip() else b"" for line in ends)
        at = ConflictContext(before, after, columns)
        for rule in rules:
            lines = rule.join(chunk, at) if language in rule.languages else None
            if lines is not None:
                used[rule.words] = None
                joined[len(joined)] = b"".join(lines)
                break
        else:
            return None
    return RuleMerge(resolve(merged, joined).content(), ", ".join(used))


# --- the rules ---


def _inserts(chunk: Chunk, at: ConflictContext) -> Lines | None:
    """Join what both sides only insert: sorted if both are sorted into their surroundings, else the project's first."""
    if chunk.base or not all(any(map(_is_code, side)) for side in (chunk.ours, chunk.theirs)):
        return None
    lines = [*chunk.ours, *chunk.theirs]
    if not all(line.endswith(b"\n") for line in lines):
        return None
    sides = [[*filter(None, (at.before, *side, at.after))] for side in (chunk.ours, chunk.theirs)]
    if all(line.strip() for line in lines) and all(side == sorted(side) for side in sides):
        lines.sort()
    return tuple(lines)


def _is_code(line: bytes) -> bool:
    return line.lstrip()[:1] not in (b"", b"#")


_NAME = re.compile(rb"[ \t]+\w+( as \w+)?,\r?\n")


def _names(chunk: Chunk, at: ConflictContext) -> Lines | None:
    """Join names, each on a line, of an import in brackets."""
    sides = chunk.base, chunk.ours, chunk.theirs
    if not all(_NAME.fullmatch(line) for side in sides for line in side) or _is_replaced(*sides):
        return None
    around = [[line] if _NAME.fullmatch(line) else [] for line in (at.before, at.after)]
    order = _order_of([[*around[0], *side, *around[1]] for side in sides], _NAME_ORDERS)
    return tuple(_union(*sides, order=order))


def _imports(chunk: Chunk, at: ConflictContext) -> Lines | None:
    """Join import statements: of each module the names that either side has, without those that a side removed."""
    sides = [_import_table(side) for side in (chunk.base, chunk.ours, chunk.theirs)]
    base, ours, theirs = (side or {} for side in sides)
    if any(side is None for side in sides) or not ours or not theirs or _is_replaced([*base], [*ours], [*theirs]):
        return None
    around = [list(_import_table((line,) if line else ()) or ()) for line in (at.before, at.after)]
    order = _order_of([[*around[0], *side, *around[1]] for side in (base, ours, theirs)], _MODULE_ORDERS)
    lines: list[bytes] = []
    for module in _union(list(base), list(ours), list(theirs), order=order):
        tables = [side.get(module, _NO_IMPORT) for side in (base, ours, theirs)]
        names = [table.names for table in tables]
        if _is_replaced(*names):
            return None
        union = _union(*names, order=_order_of(names, _NAME_ORDERS))
        same = next((table for table in tables[1:] if {*table.names} == {*union}), None)
        if same is not None:
            lines += same.lines
        elif any(b"#" in line for table in tables for line in table.lines):
            return None
        else:
            lines += _import_lines(module, union, tables[1] if tables[1].lines else tables[2], at.columns)
    return tuple(lines)


def _is_replaced(base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]) -> bool:
    """Return whether both sides put others, not the same, in the place of one."""
    new = [{*side} - {*base} for side in (ours, theirs)]
    return bool({*base} - {*ours, *theirs}) and all(new) and new[0] != new[1]


class _Import(NamedTuple):
    names: tuple[bytes, ...]
    lines: Lines


_NO_IMPORT = _Import((), ())


def _import_table(lines: Lines) -> dict[bytes, _Import] | None:
    """Return the import statements by their beginning (``from m import``; a whole ``import m``), or None if the lines
    hold anything else."""
    import ast

    indent = min((len(line) - len(line.lstrip(b" ")) for line in lines), default=0)
    tree = _parsed(b"".join(line[indent:] for line in lines))
    if tree is None:
        return None
    table: dict[bytes, _Import] = {}
    end = 0
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom) or node.lineno != end + 1 or node.end_lineno is None:
            return None
        end = node.end_lineno
        names = tuple(_alias(alias) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            key = b"from " + b"." * node.level + (node.module or "").encode() + b" import"
        elif len(names) == 1:
            key = b"import " + names[0]
        else:
            return None
        if key in table or b"*" in names:
            return None
        table[key] = _Import(names, lines[node.lineno - 1 : end])
    return table if end == len(lines) else None


def _alias(alias: ast.alias) -> bytes:
    return (alias.name + (f" as {alias.asname}" if alias.asname else "")).encode()


def _import_lines(module: bytes, names: Sequence[bytes], like: _Import, columns: int) -> list[bytes]:
    """Return a ``from`` statement with these names, wrapped as ``like`` is, or if it does not fit on a line."""
    first = like.lines[0]
    indent, end = first[: len(first) - len(first.lstrip(b" "))], b"\r\n" if first.endswith(b"\r\n") else b"\n"
    line = indent + module + b" " + b", ".join(names) + end
    if len(like.lines) == 1 and len(line) <= columns + 1:
        return [line]
    return [
        indent + module + b" (" + end,
        *(indent + b"    " + each + b"," + end for each in names),
        indent + b")" + end,
    ]


_Order = Callable[[bytes], Any]
_NAME_ORDERS: tuple[_Order, ...] = (
    lambda each: each,
    lambda each: each.lower(),
    lambda each: (
        each.strip().isupper() is False,
        each.strip()[:1].islower(),
        each.lower(),
    ),  # constants, classes, others
)
_MODULE_ORDERS: tuple[_Order, ...] = (
    lambda each: (b"__future__" not in each, each.startswith(b"from"), each),
    lambda each: (b"__future__" not in each, each.startswith(b"from"), each.lower()),
    lambda each: (b"__future__" not in each, each.split()[1]),
    lambda each: (b"__future__" not in each, each.split()[1].lower()),
)


def _order_of(sides: Iterable[Sequence[bytes]], orders: Iterable[_Order]) -> _Order | None:
    """Return the order in which all sides are sorted, or None. A single element is in no order."""
    kept = [list(side) for side in sides]
    if max(map(len, kept)) < 2:
        return None
    return next((order for order in orders if all(side == sorted(side, key=order) for side in kept)), None)


def _union(
    base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes], *, order: _Order | None
) -> list[bytes]:
    """Return the elements of either side without those that a side removed, sorted if there is an ``order``."""
    gone = {*base} - ({*ours} & {*theirs})
    union = [each for each in dict.fromkeys((*ours, *theirs)) if each not in gone]
    return union if order is None else sorted(union, key=order)


def _keys(chunk: Chunk, at: ConflictContext) -> Lines | None:
    """Join entries of one object or table: each key as the side has it that changed it."""
    sides = [_entries(side) for side in (chunk.base, chunk.ours, chunk.theirs)]
    if not all(side is not None for side in sides):
        return None
    base, ours, theirs = (side or {} for side in sides)
    kept: dict[bytes, Lines] = {}
    for key in dict.fromkeys((*base, *ours, *theirs)):
        values = [_bare(side.get(key, ())) for side in (base, ours, theirs)]
        if values[0] not in values[1:] and values[1] != values[2]:
            return None
        chosen = theirs if values[0] == values[1] else ours
        if key in chosen:
            kept[key] = chosen[key]
    sorted_by = _order_of([list(side) for side in (base, ours, theirs)], _NAME_ORDERS[:1])
    order = [key for key in dict.fromkeys((*ours, *theirs)) if key in kept]
    entries = [kept[key] for key in (order if sorted_by is None else sorted(order))]
    if not any(b"," in line[-3:] for side in chunk[1:] for line in side):
        return tuple(line for entry in entries for line in entry)  # TOML, or a single entry
    is_end = at.after.lstrip()[:1] in (b"}", b"")
    return tuple(
        line
        for place, entry in enumerate(entries)
        for line in (*entry[:-1], _with_comma(entry[-1], needed=not (is_end and place + 1 == len(entries))))
    )


_KEY = re.compile(rb"""[ \t]*("(?:[^"\\]|\\.)*"[ \t]*:|[\w.-]+[ \t]*=|"[^"\\]*"[ \t]*=)""")


def _entries(lines: Lines) -> dict[bytes, Lines] | None:
    """Return the lines of each entry by its key, or None if they are not whole entries, each key once."""
    entries: dict[bytes, Lines] = {}
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    key = b""
    for line in lines:
        start = _KEY.match(line)
        if start is not None and len(line) - len(line.lstrip()) == indent:
            key = start[1].rstrip(b":= \t")
            if key in entries:
                return None
            entries[key] = (line,)
        elif not key or not line.strip():
            return None
        else:
            entries[key] += (line,)
    return entries


def _bare(lines: Lines) -> bytes:
    return b"".join(lines).rstrip().removesuffix(b",")


def _with_comma(line: bytes, *, needed: bool) -> bytes:
    text = line.rstrip()
    return text.removesuffix(b",") + b"," * needed + line[len(text) :]


def _checksums(chunk: Chunk, _at: ConflictContext) -> Lines | None:
    """Join checksums of modules, one a line: those of either side. One that is not needed changes nothing."""
    lines = tuple(dict.fromkeys((*chunk.ours, *chunk.theirs)))
    return tuple(sorted(lines)) if all(list(side) == sorted(side) for side in (chunk.ours, chunk.theirs)) else lines


_DATA = ("json", "toml")
RULES = (
    MergeRule("union of imports", ("python",), _imports),
    MergeRule("union of imports", ("python",), _names),
    MergeRule("different keys of one object", _DATA, _keys),
    MergeRule("both sides only insert", ("python", *_DATA), _inserts),
    MergeRule("union of checksums", ("checksums",), _checksums),
)
"""In this order; if the guard refuses what they make, the other way round."""


# --- the guards ---


def _parsed(text: bytes, *, whole: bool = False) -> ast.Module | None:
    """Return the syntax of a text, or None. ``whole``: require a whole module, where ``__future__`` comes first."""
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the texts, not of this program
            tree = ast.parse(text)
            if whole:
                compile(tree, "text", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


def _guard_python(texts: Texts) -> bool:
    trees = [_parsed(text, whole=text is texts[3]) for text in texts]
    if any(tree is None for tree in trees):
        return False
    try:
        base, ours, theirs, result = (_Parts(tree) for tree in trees if tree is not None)
    except RecursionError:
        return False
    return (
        _is_sum(*(side.counts for side in (base, ours, theirs, result)))
        and _are_independent(ours.inserted(base, theirs), theirs.inserted(base, ours))
        and not (base.imported - result.imported) & result.read
    )


def _is_sum(*counts: Mapping[Hashable, int]) -> bool:
    """Return whether each part is in the result as often as in the base with both sides' changes."""
    for part in dict.fromkeys(part for count in counts for part in count):
        base, ours, theirs, result = (count.get(part, 0) for count in counts)
        if ours == theirs and ours != base and ours > base and not _is_import(part):
            return False  # both insert it: once or twice is not for a rule to say
        if result != (ours if ours == theirs else ours + theirs - base):
            return False
    return True


def _is_import(part: Hashable) -> bool:
    return isinstance(part, tuple) and str(part[-1]).startswith("alias(")


_Pending = list[tuple[str, "ast.AST"]]
_OPEN = frozenset(("body", "orelse", "finalbody", "handlers", "elts", "keywords", "names"))
"""Fields whose elements are parts of their own: statements, elements of a display, keywords, imported names."""


class _Parts:
    """The parts of a module, each as the path of headings that leads to it."""

    def __init__(self, tree: ast.Module) -> None:
        import ast

        self.counts: Counter[Hashable] = Counter()
        self.imported: set[str] = set()
        self.read: set[str] = set()
        self._statements: dict[tuple[Hashable, ...], ast.stmt | ast.alias] = {}
        self._add(tree, ())
        for node in ast.walk(tree):
            if isinstance(node, ast.alias):
                self.imported.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, ast.Name):
                self.read.add(node.id)

    def inserted(self, base: _Parts, other: _Parts) -> dict[tuple[Hashable, ...], list[ast.stmt | ast.alias]]:
        """Return the statements, and imported names, that neither the base nor the other side has, by their body."""
        import ast

        inserted: dict[tuple[Hashable, ...], list[ast.stmt | ast.alias]] = {}
        for path, node in self._statements.items():
            if path not in base.counts and path not in other.counts:
                inserted.setdefault(path[: -3 if isinstance(node, ast.alias) else -1], []).append(node)
        return inserted

    def _add(self, node: ast.AST, path: tuple[Hashable, ...]) -> None:
        import ast

        pending: _Pending = []
        here = (*path, _heading(node, None if path and path[-1] == "elts" else pending))
        if not isinstance(node, ast.Import | ast.ImportFrom):  # their names are counted
            self.counts[here] += 1
            if isinstance(node, ast.stmt | ast.alias):
                self._statements[here] = node
        for field, child in pending:
            self._add(child, (*here, field))


def _heading(value: object, pending: _Pending | None) -> str:
    """Return a node as text without its parts, which are added to ``pending``. None: return it with its parts, whose
    order matters, or which have no names to tell them apart."""
    import ast

    if isinstance(value, list):
        return "[" + ",".join(_heading(each, pending) for each in value) + "]"
    if not isinstance(value, ast.AST):
        return repr(value)
    if isinstance(value, ast.BoolOp | ast.Match | ast.Return | ast.Yield):
        pending = None
    if isinstance(value, ast.Dict) and pending is not None:
        pairs = zip(value.keys, value.values, strict=True)
        pending += [(f"pair {_heading(key, None)}", item) for key, item in pairs]
        return "Dict"
    fields: list[str] = []
    for field, child in ast.iter_fields(value):
        if pending is not None and field in _OPEN and isinstance(child, list):
            pending += [(field, each) for each in child]
        else:
            fields.append(f"{field}={_heading(child, pending)}")
    return f"{type(value).__name__}({','.join(fields)})"


_Inserted = Mapping[tuple[Hashable, ...], Sequence["ast.stmt | ast.alias"]]


def _are_independent(ours: _Inserted, theirs: _Inserted) -> bool:
    """Return whether statements that both sides insert into one body mean the same in either order."""
    for body in ours.keys() & theirs.keys():
        holder = str(body[-2]).partition("(")[0]
        if any(map(_is_docstring, (ours[body][0], theirs[body][0]))):
            return False
        if len(ours[body]) * len(theirs[body]) > MOST_PAIRS:
            return False
        uses = ([_uses(node, holder) for node in side[body]] for side in (ours, theirs))
        for mine, other in product(*uses):
            if mine.ends or other.ends or (mine.acts and other.looks) or (other.acts and mine.looks):
                return False
            if mine.bound & (other.bound | other.read) or other.bound & mine.read:
                return False
            if mine.is_field and other.is_field:
                return False
    return True


def _is_docstring(node: ast.stmt | ast.alias) -> bool:
    """Return whether a statement is a text, which belongs to what stands before it."""
    import ast

    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Uses(NamedTuple):
    bound: frozenset[str]
    read: frozenset[str]
    """Names that are read when the statement runs, not when a function that it defines is called."""
    ends: bool
    """Whether statements behind it may not run."""
    acts: bool
    """Whether it may do more than to bind names or to fail."""
    looks: bool
    """Whether it may notice what another statement does."""
    is_field: bool
    """Whether it may be a field of a data class or tuple: their order is that of the arguments."""


def _uses(statement: ast.stmt | ast.alias, holder: str) -> _Uses:
    import ast

    bound: set[str] = set()
    read: set[str] = set()
    ends = acts = False
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            pending += node.decorator_list
            if isinstance(node, ast.ClassDef):
                pending += [*node.bases, *node.keywords]
            else:
                pending += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(f"{node.value.id}.{node.attr}")
            acts |= isinstance(node.ctx, ast.Del)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            acts |= not isinstance(node.ctx, ast.Load)
        elif isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        ends |= isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Yield | ast.YieldFrom)
        acts |= isinstance(node, ast.Call | ast.Await | ast.AugAssign | ast.Delete | ast.Global | ast.Nonlocal)
        pending += ast.iter_child_nodes(node)
    looks = acts or bool(read)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.alias):
        acts = looks = False
    elif isinstance(statement, ast.Assert) or (
        holder in ("Module", "ClassDef") and isinstance(statement, ast.Assign | ast.AnnAssign)
    ):
        acts = False
    is_field = holder == "ClassDef" and isinstance(statement, ast.AnnAssign)
    return _Uses(frozenset(bound), frozenset(read), ends, acts, looks, is_field)


class _Twice(ValueError):
    pass


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise _Twice
    return dict(pairs)


def read_json(text: bytes) -> Any:
    import json

    return json.loads(text.decode(), object_pairs_hook=_object)


def read_toml(text: bytes) -> Any:
    import tomllib

    return tomllib.loads(text.decode())


def _guard_data(read: Callable[[bytes], Any]) -> Callable[[Texts], bool]:
    def guard(texts: Texts) -> bool:
        try:
            base, ours, theirs, result = map(read, texts)
            return _is_merge(base, ours, theirs, result)
        except (ValueError, RecursionError):
            return False

    return guard


_ABSENT = object()


def _is_merge(base: Any, ours: Any, theirs: Any, result: Any) -> bool:
    """Return whether a value holds the changes of both sides and no others."""
    if repr(ours) == repr(theirs) or repr(base) == repr(theirs):
        return repr(result) == repr(ours) or _is_same(result, ours)
    if repr(base) == repr(ours):
        return _is_same(result, theirs)
    sides = base, ours, theirs, result
    if all(isinstance(side, dict) for side in (ours, theirs, result)):
        keys = dict.fromkeys(key for side in sides if isinstance(side, dict) for key in side)
        found = [side if isinstance(side, dict) else {} for side in sides]
        return all(_is_merge(*(side.get(key, _ABSENT) for side in found)) for key in keys)
    if all(isinstance(side, list) for side in sides):
        return _is_sum(*(Counter[Hashable](repr(each) for each in side) for side in sides))
    return False


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of one type: True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    return repr(one) == repr(other)


_CHECKSUM = re.compile(rb"(\S+ v\S+) (h1:[A-Za-z0-9+/]{43}=)")


def _guard_checksums(texts: Texts) -> bool:
    """Return whether the result has a checksum for each module that a side has, and the same one as that side."""
    tables: list[dict[bytes, bytes]] = []
    for text in texts[1:]:
        rows = [_CHECKSUM.fullmatch(line) for line in text.splitlines() if line]
        table = {row[1]: row[2] for row in rows if row is not None}
        if len(table) != len(rows):
            return False  # another line, or a module twice
        tables.append(table)
    ours, theirs, result = tables
    return ours.items() & theirs.items() <= result.items() <= ours.items() | theirs.items()


GUARDS: Mapping[str, Callable[[Texts], bool]] = {
    "python": _guard_python,
    "json": _guard_data(read_json),
    "toml": _guard_data(read_toml),
    "checksums": _guard_checksums,
}
