"""The messages of mudroom's errors, read from the source: each call of an error class with its text and its hint.

    .venv/bin/python tests/messages.py             the table: class, module, text, hint, whether a test has the text
    .venv/bin/python tests/messages.py --write     tests/messages_without_a_test.txt

A message counts as tested if the longest literal part of its text is in the text of a test: comments do not count, and
neighbouring literals are one. No test is here; ``test_messages.py`` holds the list.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
UNTESTED = Path(__file__).with_name("messages_without_a_test.txt")
BASES = frozenset(("MudroomError", "UsageError", "Refused", "Unsupported", "CommandNotStarted", "Interrupted"))
"""Classes that take a text at each call. Others have one text, in their class."""
LEAST = 10
"""Characters of a literal part that can identify a message."""
HOLE = "…"


class Message(NamedTuple):
    kind: str
    module: str
    line: int
    text: str
    """Values stand as ``…``."""
    hint: str

    @property
    def parts(self) -> list[str]:
        """The literal parts that can identify it, the longest first."""
        parts = (part.strip(" :;,()") for part in self.text.split(HOLE))
        return sorted((part for part in parts if len(part) >= LEAST), key=len, reverse=True)


def literal(node: ast.expr | None) -> str:
    """Return the text of an expression, with ``…`` for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(value) if isinstance(value, ast.Constant) else HOLE for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return literal(node.left) + literal(node.right)
    return HOLE if node is not None else ""


@functools.cache
def messages(root: Path = ROOT) -> tuple[Message, ...]:
    """Return every message, by module and line."""
    return tuple(_messages(root))


def _messages(root: Path) -> Iterator[Message]:
    source = root / "src" / "mudroom"
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(f"{base}(" in text for base in BASES) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BASES and node.args:
                yield _message(node.func.id, str(path.relative_to(source)), node)


def _message(kind: str, module: str, call: ast.Call) -> Message:
    words = [literal(argument) for argument in call.args]
    if kind == "Unsupported":  # as its class puts them together
        words = [f"{words[0]} needs {words[1]}; found: {words[2]}" if len(words) > 2 else words[0], *words[3:]]
    at = 2 if kind == "CommandNotStarted" else 1
    given = next((literal(keyword.value) for keyword in call.keywords if keyword.arg == "hint"), "")
    return Message(kind, module, call.lineno, words[0], words[at] if len(words) > at else given)


_COMMENT = re.compile(r"^[ \t]*(#|//).*$|  # .*$", re.M)
_JOINT = re.compile(r"""(?<=[^"'])["']\s*\n\s*[frb]*["'](?=[^"'])""")
"""Between two literals that Python makes one of."""


def text_of_tests(root: Path = ROOT) -> str:
    """Return the text of all tests, in one string, without comments; each literal is whole."""
    paths = (path for kind in ("py", "mjs") for path in sorted((root / "tests").rglob(f"*.{kind}")))
    text = "\n".join(path.read_text(errors="replace") for path in paths if path.name != "messages.py")
    return joined(_COMMENT.sub("", text))


def joined(text: str) -> str:
    """Return Python with the parts of its literals joined."""
    return _JOINT.sub("", text)


def untested(root: Path = ROOT, *, of_kernel: bool = False) -> list[str]:
    """Return the messages that no test has, sorted; each once. ``of_kernel``: without those of satellites."""
    tests = text_of_tests(root)
    chosen = [found for found in messages(root) if not (of_kernel and found.module.startswith("ext/"))]
    return sorted({found.text for found in chosen if not is_tested(found, tests)})


def is_tested(message: Message, tests: str) -> bool:
    """Return whether a test quotes the longest literal part. A message without one cannot be found."""
    return not message.parts or message.parts[0] in tests


def write_table() -> None:
    tests = text_of_tests()
    for found in messages():
        state = "tested" if is_tested(found, tests) else "-"
        sys.stdout.write(f"{found.kind}\t{found.module}:{found.line}\t{found.text!r}\t{found.hint!r}\t{state}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        UNTESTED.write_text("".join(f"{row}\n" for row in untested()))
    else:
        write_table()
