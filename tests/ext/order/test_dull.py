"""Blocks that are proven to change nothing, and attempts to have a block folded that changes something."""

from __future__ import annotations

from mudroom.core.text.linediff import diff_lines, split_lines
from mudroom.ext.order.core.dull import COMMENTS, IMPORTS, LAYOUT, MOVED, is_inert_comment, prove
from tiers import each


def proofs(path: str, old: str, new: str) -> list[str]:
    """Return the proof of each block, "" for one that is not dull."""
    sides = split_lines(old.encode()), split_lines(new.encode())
    blocks = diff_lines(*sides)
    found = prove(path.encode(), *sides, blocks)
    return [found.get(number, "") for number in range(len(blocks))]


F = "def f(a):\n    return a\n"
G = "def g(a):\n    return -a\n"


@each(
    ("path", "old", "new", "words"),
    [
        ("a.py", "x = f(a,b)\n", "x = f(a, b)\n", LAYOUT),
        ("a.py", "x = f(a, b)\n", "x = f(\n    a,\n    b,\n)\n", LAYOUT),
        ("a.py", "x = 'a'\n", 'x = "a"\n', LAYOUT),
        ("a.py", "x = 1  # the first\n", "x = 1  # the very first\n", COMMENTS),
        ("a.py", "x = 1\ny = 2\n", "x = 1\n# two of them\n\ny = 2\n", COMMENTS),
        ("a.py", F + "\n\n" + G, G + "\n\n" + F, MOVED),
        (
            "a.py",
            "class A:\n    def f(self): pass\n    def g(self): pass\n",
            "class A:\n    def g(self): pass\n    def f(self): pass\n",
            MOVED,
        ),
        ("a.py", "import sys\nimport os\n", "import os\nimport sys\n", IMPORTS),
        (
            "a.py",
            "def f():\n    n = 1\n    return n\n",
            "def f():\n    count = 1\n    return count\n",
            "n is count now, a local name, in all places",
        ),
        ("a.js", "const x = f(a,b);\n", "const x = f(a, b);\n", LAYOUT),
        ("a.ts", "const x: number = f( a );\n", "const x: number = f(a);\n", LAYOUT),
        ("a.js", "// the first\nlet a = 1;\n", "// the very first\nlet a = 1;\n", COMMENTS),
        (
            "a.go",
            "package a\n\nfunc f() {\nx := 1\n_ = x\n}\n",
            "package a\n\nfunc f() {\n\tx := 1\n\t_ = x\n}\n",
            LAYOUT,
        ),
        ("a.rs", "fn f()->i32{ 1 }\n", "fn f() -> i32 {\n    1\n}\n", LAYOUT),
        ("a.java", "class A { int f(){ return 1; } }\n", "class A {\n  int f() { return 1; }\n}\n", LAYOUT),
    ],
)
def test_what_is_proven(path: str, old: str, new: str, words: str) -> None:
    found = proofs(path, old, new)
    assert found and set(found) == {words}


@each(
    ("path", "old", "new"),
    [
        # indentation, prefixes, strings
        ("a.py", "if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
        ("a.py", "x = 'a b'\n", "x = 'a  b'\n"),
        ("a.py", "x = '\\d'\n", "x = r'\\d'\n"),
        ("a.py", "x = '{a}'\n", "x = f'{a}'\n"),
        ("a.py", 'def f():\n    """One."""\n', 'def f():\n    """One"""\n'),
        ("a.py", 'x = """\na b\n"""\n', 'x = """\na  b\n"""\n'),
        # comments that do something
        ("a.py", "x = f()\n", "x = f()  # noqa\n"),
        ("a.py", "x = f()\n", "x = f()  # type: ignore\n"),
        ("a.py", "x = []\n", "x = []  # type: list[int]\n"),
        ("a.py", "x = f()\n", "x = f()  # pragma no cover\n"),
        ("a.py", "x = 1\n", "# -*- coding: latin-1 -*-\nx = 1\n"),
        ("a.py", "# coding: latin-1\nx = f(a,b)\n", "# coding: latin-1\nx = f(a, b)\n"),
        ("a.py", "x = 1\n", "#!/bin/sh\nx = 1\n"),
        ("a.py", "x = 1\n", "# /// script\n# dependencies = ['evil']\n# ///\nx = 1\n"),
        ("a.py", "# /// script\n# one\n# ///\nx = 1\n", "# /// script\n# two\n# ///\nx = 1\n"),
        ("a.py", "x = f(a,  # nosec\n      b)\n", "x = f(\n    a,  # nosec\n    b)\n"),
        ("a.go", "package a\n", "//go:build linux\n\npackage a\n"),
        ("a.go", "package a\n\nfunc F() {}\n", "package a\n\n//export F\nfunc F() {}\n"),
        ("a.go", 'package a\n\n// one\nimport "C"\n', 'package a\n\n// two\nimport "C"\n'),
        ("a_test.go", "package a\n\n// one\nfunc f() {}\n", "package a\n\n// two\nfunc f() {}\n"),
        ("a.js", "f();\n", "// eslint-disable-next-line\nf();\n"),
        ("a.js", "f();\n", "/* global f */\nf();\n"),
        ("a.js", "f();\n", "//# sourceMappingURL=x\nf();\n"),
        ("a.ts", "f();\n", "// @ts-ignore\nf();\n"),
        ("a.rs", "fn f() {}\n", "/// one\nfn f() {}\n"),
        ("a.java", "class A {}\n", "// \\u000a class B {}\nclass A {}\n"),
        # characters and line ends
        ("a.py", "x = 1\n", "# a \u202e b\nx = 1\n"),
        ("a.py", "x = 1\n", "# a\u200bb\nx = 1\n"),
        ("a.py", "x = 1\n", "\ufeffx = 1\n"),
        ("a.py", "x = 1\n", "x = 1\r\n"),
        ("a.py", "y = 1\rx = f(a,b)\n", "y = 1\rx = f(a, b)\n"),
        ("a.py", "x = 1\n", "x = 1\n\f\n"),
        ("a.py", "x = 1\n", "x  = 1"),
        ("a.js", "f(); // a\n", "f(); // a\u2028evil()\n"),
        # where the layout means something
        ("a.js", "return_: f(\nx);\n", "return_: f\n(y);\n"),
        ("a.js", "function f() { return x; }\n", "function f() { return\n x; }\n"),
        ("a.js", "a\n++b\n", "a++\nb\n"),
        ("a.js", "x = `a ${b}`;\n", "x = `a  ${b}`;\n"),
        ("a.js", "x = /a b/;\n", "x = /a  b/;\n"),
        ("a.jsx", "x = <p>a b</p>;\n", "x = <p>a  b</p>;\n"),
        ("a.rs", "fn f() { m!(a - b) }\n", "fn f() { m!(a-b) }\n"),
        ("a.js", "f(a,b);\n(\n", "f(a, b);\n(\n"),  # cannot be read
        ("a.c", "f(a,b);\n", "f(a, b);\n"),  # unknown
        # order and names
        ("a.py", "f()\ng()\n", "g()\nf()\n"),
        ("a.py", "import b\nimport a\n", "import a\nimport b\n"),
        (
            "a.py",
            "from os import path\nfrom posixpath import path\n",
            "from posixpath import path\nfrom os import path\n",
        ),
        ("a.py", F + F.replace("a)", "b)"), F.replace("a)", "b)") + F),
        ("a.py", F + "f = g\n" + G, G + "f = g\n" + F),
        ("a.py", "@d\n" + F + G, G + "@d\n" + F),
        ("a.py", "def f(a=h()): pass\n" + G, G + "def f(a=h()): pass\n"),
        ("a.py", F + "f(1)\n", "f(1)\n" + F),
        (
            "a.py",
            "class A(B):\n    def f(self): pass\n    def g(self): pass\n",
            "class A(B):\n    def g(self): pass\n    def f(self): pass\n",
        ),
        ("test_a.py", "def test_a(): pass\ndef test_b(): pass\n", "def test_b(): pass\ndef test_a(): pass\n"),
        ("a.py", "def f(n):\n    return n\n", "def f(m):\n    return m\n"),
        ("a.py", "n = 1\n", "m = 1\n"),
        ("a.py", "def f():\n    n = 1\n    return n\n", "def f():\n    m = 1\n    return n\n"),
        ("a.py", "def f():\n    n = 1\n    return locals()\n", "def f():\n    m = 1\n    return locals()\n"),
        ("a.py", "def f():\n    n = 1\n    return n, m\n", "def f():\n    m = 1\n    return m, m\n"),
        ("a.py", "def f():\n    n = 1\n    return n\n", "def f():\n    len = 1\n    return len\n"),
        ("a.py", "def f():\n    global n\n    n = 1\n", "def f():\n    global n\n    m = 1\n"),
        ("a.py", "def f():\n    n = 1\n    return f'{n=}'\n", "def f():\n    m = 1\n    return f'{m=}'\n"),
        (
            "a.py",
            "def f():\n    def g():\n        n = 1\n    return n\n",
            "def f():\n    def g():\n        m = 1\n    return m\n",
        ),
        # one block opens what another one closes
        ("a.py", "a()\nx = 1\nb()\n", "a()\n'''\nx = 1\n'''\nb()\n"),
        ("a.js", "a();\nx();\nb();\n", "a();\n/* one\nx();\ntwo */\nb();\n"),
        # added and deleted files
        ("a.py", "", "# one\n"),
        ("a.py", "# one\n", ""),
    ],
)
def test_what_is_not_proven(path: str, old: str, new: str) -> None:
    assert not any(proofs(path, old, new))


def test_a_block_that_changes_something_leaves_the_others_dull() -> None:
    old = "a = f(1,2)\n\n\nb = 1\n\n\nc = f(3,4)\n"
    new = "a = f(1, 2)\n\n\nb = 2\n\n\nc = f(3, 4)\n"
    assert proofs("a.py", old, new) == [LAYOUT, "", LAYOUT]


@each(
    ("comment", "is_inert"),
    [
        ("# two of them, at most", True),
        ("#", True),
        ("// It ends here.", True),
        ("/* one\n * two */", True),
        ("#x", False),
        ("#  x", False),
        ("# x = 1", False),
        ("# type: ignore", False),
        ("# region a", False),
        ("# prettier-ignore", False),
        ("/** one */", False),
        ("/*! one */", False),
        ("//nolint", False),
        ("# TODO: x", False),
        ("# caf\u00e9", False),
        ("# falls through", False),
        ("/* jsx h */", False),
        ("# %%", False),
    ],
)
def test_a_comment_is_inert_only_as_plain_prose(comment: str, is_inert: bool) -> None:
    assert is_inert_comment(comment.encode()) is is_inert
