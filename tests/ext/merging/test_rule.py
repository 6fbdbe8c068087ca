"""Conflicts settled by rule: what a rule joins, what its guard refuses, and what holds for all texts."""

from __future__ import annotations

import ast
import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.merge.diff3 import merge3
from mudroom.ext.merging.rule import LIMIT, settle
from tiers import each

IMPORTS, KEYS, INSERTS = "union of imports", "different keys of one object", "both sides only insert"


def settled(path: str, base: str, ours: str, theirs: str) -> tuple[str, str] | None:
    merged = merge3(base.encode(), ours.encode(), theirs.encode())
    assert not merged.clean
    result = settle(path.encode(), merged)
    return (result.content.decode(), result.words) if result is not None else None


def lines(words: str, indent: str = "") -> str:
    return "".join(f"{indent}{word}\n" for word in words.split("|"))


@each(
    ("path", "base", "ours", "theirs", "result", "words"),
    [
        ("a.py", "x = 1\n", "x = 1\ny = 2\n", "x = 1\nz = 3\n", "x = 1\ny = 2\nz = 3\n", INSERTS),
        ("a.py", "x = 1\n", "x = 1\nz = 3\n", "x = 1\ny = 2\n", "x = 1\ny = 2\nz = 3\n", INSERTS),  # sorted
        ("a.py", "A = [\n]\n", "A = [\n'b',\n]\n", "A = [\n'a',\n]\n", "A = [\n'b',\n'a',\n]\n", INSERTS),
        ("a.py", lines("import b"), lines("import b|import c"), lines("import b|import d"),
         lines("import b|import c|import d"), IMPORTS),
        ("a.py", lines("import b"), lines("import d|import b"), lines("import c|import b"),
         lines("import d|import c|import b"), IMPORTS),
        ("a.py", lines("from m import b, c"), lines("from m import b, c, d"), lines("from m import a, b, c"),
         lines("from m import a, b, c, d"), IMPORTS),
        ("a.py", lines("from m import b, c"), lines("from m import b"), lines("from m import a, b, c"),
         lines("from m import a, b"), IMPORTS),
        ("a.py", lines("from m import b, c"), lines("from m import b, d"), lines("from m import b"),
         lines("from m import b, d"), IMPORTS),
        ("a.py", lines("from m import (|    b,|)"), lines("from m import (|    b,|    d,|)"),
         lines("from m import (|    b,|    c,|)"), lines("from m import (|    b,|    c,|    d,|)"), IMPORTS),
        ("a.py", lines("from m import (|    a,|    b,|)"), lines("from m import (|    a,|    c,|)"),
         lines("from m import (|    a,|    b,|    d,|)"), lines("from m import (|    a,|    c,|    d,|)"), IMPORTS),
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "a": 1,\n  "c": 3\n}\n',
         '{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}\n', KEYS),
        ("a.json", '{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "a": 3,\n  "b": 2\n}\n', '{\n  "a": 1,\n  "b": 4\n}\n',
         '{\n  "a": 3,\n  "b": 4\n}\n', KEYS),
        ("a.toml", "[t]\na = 1\nb = 2\n", "[t]\na = 3\nb = 2\n", "[t]\na = 1\nb = 4\n", "[t]\na = 3\nb = 4\n", KEYS),
        ("a.toml", "a = 1\n", "a = 1\n[t]\nb = 1\n", "a = 1\n[s]\nb = 1\n", "a = 1\n[t]\nb = 1\n[s]\nb = 1\n", INSERTS),
        ("a.toml", "a = 1\r\n", "a = 2\r\nb = 1\r\n", "a = 1\r\nc = 1\r\n", "a = 2\r\nb = 1\r\nc = 1\r\n", KEYS),
    ],
)  # fmt: skip
def test_a_rule_joins(path: str, base: str, ours: str, theirs: str, result: str, words: str) -> None:
    assert settled(path, base, ours, theirs) == (result, words)


@each(
    ("path", "base", "ours", "theirs"),
    [
        ("a.txt", "x\n", "x\ny\n", "x\nz\n"),  # no guard reads it
        ("a.py", "x = 1\n", "x = 2\n", "x = 3\n"),
        ("a.py", "x = 1\n", "x = 1\ny = (\n", "x = 1\nz = 3\n"),  # it does not parse
        ("a.py", "x = 1\n", "x = 1\ny = 2\n", "x = 1\ny = 3\n"),  # one name, twice
        ("a.py", "x = 1\n", "x = 1\ndef f(): pass\n", "x = 1\nclass f: pass\n"),
        ("a.py", "x = 1\n", "x = 1\ny = 2\n", "x = 1\nz = y\n"),  # one reads what the other binds
        ("a.py", "x = 1\n", "x = 1\ny = 2\n", "x = 1\nx2 = y2 = y\n"),
        ("a.py", "", "from a import f\n", "from b import f\n"),
        ("a.py", "import a\n", "import b\n", "import c\n"),  # each puts another in its place
        ("a.py", "from m import a, b\n", "from m import a, c\n", "from m import a, d\n"),
        ("a.py", "x = 1\n", "x = 1\n# y\n", "x = 1\n# z\n"),  # comments: nothing tells what they are about
        ("a.py", "import a\n", "import sys\nimport a\n", "from __future__ import annotations\nimport a\n"),
        ("a.py", "def f():\n    x()\n", "def f():\n    x()\n    return 1\n", "def f():\n    x()\n    y()\n"),
        ("a.py", "def f():\n    x()\n", "def f():\n    x()\n    z()\n", "def f():\n    x()\n    y()\n"),  # which first?
        ("a.py", "class A:\n    pass\n", 'class A:\n    "a"\n    pass\n', 'class A:\n    "b"\n    pass\n'),
        ("a.py", "class A:\n    x: int\n", "class A:\n    x: int\n    y: int\n", "class A:\n    x: int\n    z: int\n"),
        ("a.py", "f(\n    a,\n)\n", "f(\n    a,\n    b,\n)\n", "f(\n    a,\n    c,\n)\n"),  # arguments by their place
        ("a.py", "def f():\n  return (\n    a,\n)\n", "def f():\n  return (\n    a,\n    b,\n)\n",
         "def f():\n  return (\n    a,\n    c,\n)\n"),
        ("a.py", "x = (\n'a'\n)\n", "x = (\n'a'\n'b'\n)\n", "x = (\n'a'\n'c'\n)\n"),  # one text of several
        ("a.py", "if a:\n  x = 1\n", "if a:\n  x = 1\nelif b:\n  x = 2\n", "if a:\n  x = 1\nelif c:\n  x = 3\n"),
        ("a.py", "import a\n", "import b\n", "import a\nimport c\nx = a.y\n"),  # removed here, used there
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 2\n}\n', '{\n  "a": 3\n}\n'),
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "a": 1,\n  "b": 3\n}\n'),
        ("a.json", '{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "b": 1\n}\n'),
        ("a.toml", "a = 1\n", "a = 1\n[t]\nb = 1\n", "a = 1\n[t]\nc = 1\n"),  # a table, twice
        ("a.toml", "[s]\n", "[s]\na = 1\n[t]\n", "[s]\nb = 1\n"),  # it would be in the other table
    ],
)  # fmt: skip
def test_a_guard_refuses(path: str, base: str, ours: str, theirs: str) -> None:
    assert settled(path, base, ours, theirs) is None


def test_a_text_that_no_parser_bears_is_refused() -> None:
    deep = "x = " + "-" * 100_000 + "1\n"
    assert settled("a.py", deep, deep + "y = 1\n", deep + "z = 1\n") is None
    nested = '{"a": ' + "[" * 100_000 + "]" * 100_000
    assert settled("a.json", nested + "\n}\n", nested + ',\n"b": 1\n}\n', nested + ',\n"c": 1\n}\n') is None
    long = "#" * LIMIT + "\n"
    assert settled("a.py", long, long + "y = 1\n", long + "z = 1\n") is None


def test_very_many_insertions_are_not_compared() -> None:
    def text(name: str, count: int) -> str:
        return "a = 1\n" + "".join(f"{name}{number} = 1\n" for number in range(count))

    assert settled("a.py", "a = 1\n", text("x", 100), text("y", 100)) is not None
    assert settled("a.py", "a = 1\n", text("x", 100), text("y", 101)) is None


NAMES = st.sets(st.sampled_from([a + b for a in "abcdef" for b in "123"]), min_size=1, max_size=4)


@given(NAMES, NAMES, NAMES, st.booleans())
def test_a_union_of_imports_has_the_names_of_both_sides(
    base: set[str], ours: set[str], theirs: set[str], bracketed: bool
) -> None:
    def text(names: set[str]) -> str:
        if bracketed:
            return "from m import (\n" + lines("|".join(f"{name}," for name in sorted(names)), "    ") + ")\nx = 1\n"
        return f"from m import {', '.join(sorted(names))}\nx = 1\n"

    sides = base, base | ours, base | theirs
    if merge3(*(text(side).encode() for side in sides)).clean:
        return
    result = settled("a.py", *map(text, sides))
    assert result is not None
    (node, *_rest) = ast.parse(result[0]).body
    assert isinstance(node, ast.ImportFrom)
    names = [alias.name for alias in node.names]
    assert sorted(names) == sorted(base | ours | theirs)
    assert len(base) == 1 or names == sorted(names), "an order that the lines show is kept"


@given(NAMES, NAMES, NAMES, st.sampled_from(["json", "toml"]))
def test_different_keys_are_those_of_both_sides(base: set[str], ours: set[str], theirs: set[str], kind: str) -> None:
    def text(side: dict[str, int]) -> str:
        if kind == "json":
            return json.dumps(side, indent=2) + "\n"
        return "".join(f"{key} = {value}\n" for key, value in side.items())

    read = json.loads if kind == "json" else tomllib.loads
    before = dict.fromkeys(sorted(base), 0)
    mine = before | dict.fromkeys(sorted(ours - theirs), 1)
    yours = before | dict.fromkeys(sorted(theirs - ours), 2)
    sides = before, mine, yours
    if merge3(*(text(side).encode() for side in sides)).clean:
        return
    for order in (sides, (before, yours, mine)):
        result = settled(f"a.{kind}", *map(text, order))
        if result is not None:
            assert read(result[0]) == mine | {key: value for key, value in yours.items() if before.get(key) != value}


STATEMENTS = st.lists(
    st.sampled_from(
        ["x{} = 1\n", "def f{}():\n    return 1\n\n\n", "class C{}:\n    x = 1\n\n\n", "@d\ndef g{}(): pass\n"]
    ),
    min_size=1,
    max_size=3,
)


@given(STATEMENTS, STATEMENTS)
def test_insertions_are_all_there_in_either_order(ours: list[str], theirs: list[str]) -> None:
    base = "a = 1\n"
    mine = [word.format(f"_m{number}") for number, word in enumerate(ours)]
    yours = [word.format(f"_y{number}") for number, word in enumerate(theirs)]
    sides = base, base + "".join(mine), base + "".join(yours)
    for order in (sides, (sides[0], sides[2], sides[1])):
        if merge3(*(side.encode() for side in order)).clean:
            continue
        result = settled("a.py", *order)
        assert result is not None
        bodies = sorted(map(ast.dump, ast.parse(result[0]).body))
        assert bodies == sorted(map(ast.dump, ast.parse("".join([base, *mine, *yours])).body))


def sums(*rows: str) -> str:
    return "".join(f"{row[:-1]} v1.{row[-1]} h1:{row[-1] * 43}=\n" for row in rows)


@each(
    ("base", "ours", "theirs", "result"),
    [
        (("a1",), ("a1", "b1"), ("a1", "c1"), ("a1", "b1", "c1")),
        (("a1",), ("a1", "c1"), ("a1", "b1"), ("a1", "b1", "c1")),  # sorted
        (("a1", "z1"), ("a2", "z1"), ("a3", "z1"), ("a2", "a3", "z1")),  # one that is not needed changes nothing
    ],
)
def test_checksums_are_joined(
    base: tuple[str, ...], ours: tuple[str, ...], theirs: tuple[str, ...], result: tuple[str, ...]
) -> None:
    assert settled("x/go.sum", *(sums(*side) for side in (base, ours, theirs))) == (
        sums(*result),
        "union of checksums",
    )


@each(
    ("ours", "theirs"),
    [
        ("b v1 h1:" + "1" * 43 + "=\n", "b v1 h1:" + "2" * 43 + "=\n"),  # a module with two contents
        ("b v1 h1:" + "1" * 43 + "=\n", "c v1\n"),
        ("b v1 h1:" + "1" * 43 + "=\n", "c v1 h1:1=\n"),
    ],
)
def test_checksums_that_disagree_are_not_joined(ours: str, theirs: str) -> None:
    assert settled("go.sum", "", ours, theirs) is None


def test_a_lock_file_is_no_text_for_a_rule() -> None:
    texts = ['{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "a": 1,\n  "c": 3\n}\n']
    assert settled("x.json", *texts) is not None
    assert settled("web/package-lock.json", *texts) is None
