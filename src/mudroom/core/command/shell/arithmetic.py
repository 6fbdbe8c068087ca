"""Which variables in arithmetic are certainly numbers.

In an arithmetic expression bash evaluates a variable's content as another expression, down to ``a[$(command)]``
(bash(1), ARITHMETIC EVALUATION). So an expression that uses a variable with unknown content may run any command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.command.variable import runs_code
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBER = regex(rb"[-+]?[0-9]*\Z")
_NUMBER_PRINTED = regex(  # by the last command in a single pipeline
    rb"\$\((?:(?:'[^'|]*'|\"[^\"|\\`$]*\"|[^;&|\n()`\\'\"])*\|(?!\|))*\s*"
    rb"(?:(?:wc -[lcmw]|grep -c [\w./'\"-]+)(?: < [\w./-]+| [\w./-]+)?|nproc|id -[ug]"
    rb"|date \+%s(?:%N)?|seq [0-9 ]+)\s*\)\Z"
)
_NAME = regex(rb"[A-Za-z_]\w*\Z")
_ALWAYS = frozenset(
    b"RANDOM SRANDOM SECONDS LINENO EPOCHSECONDS UID EUID PPID BASHPID OPTIND HISTCMD SHLVL # ? $ !".split()
)
_ASSIGNS = frozenset(["="])


class Numbers:
    """Collects the variables that a line assigns and those that it evaluates."""

    def __init__(self) -> None:
        self._sure: dict[bytes, bool] = {}
        self._used: set[bytes] = set()
        self._doubt = False

    def doubtful(self) -> bool:
        """Return whether the line evaluates something that is not certainly a number."""
        return self._doubt or any(not self._sure.get(name, False) for name in self._used - _ALWAYS)

    def assigned(self, name: bytes, value: Node | None) -> None:
        self._note(name, value is None or _is_number(value))

    def looped(self, name: bytes, values: Sequence[Node]) -> None:
        self._note(name, bool(values) and all(_is_number(value) for value in values))

    def told(self, names: Iterable[bytes]) -> None:
        """Mark variables that get their content from input."""
        for name in names:
            self._note(name, False)

    def _note(self, name: bytes, sure: bool) -> None:
        self._sure[name] = sure and self._sure.get(name, True)

    def evaluated(self, node: Node) -> None:
        """Note a node in an arithmetic expression. Child expressions are passed to this function separately."""
        kind = node.type
        children = node.children
        if kind == "subscript":
            children = children[1:]
        if kind in ("binary_expression", "variable_assignment") and len(children) > 1 and children[1].type in _ASSIGNS:
            name = (children[0].text or b"").partition(b"[")[0]
            self._note(name, True)
            self._doubt = self._doubt or runs_code(name)  # ((PATH=1)) looks for programs in the directory 1
            children = children[1:]
        for child in children:
            self.leaf(child)

    def leaf(self, node: Node) -> None:
        """Note another node that bash evaluates, in arithmetic or beside ``-eq``."""
        kind, text = node.type, node.text or b""
        if kind in ("variable_name", "word") and _NAME.match(text):
            self._used.add(text)
        elif kind == "word" and b"=" in text:  # a[PATH=1] assigns
            self._doubt = True
        elif kind == "simple_expansion":
            self._used.add(text[1:])
        elif kind == "expansion":
            tokens = [child.type for child in node.children]
            if "#" not in tokens[:2]:
                self._used.add(text.strip(b" ${}"))
        elif kind == "string" and node.named_child_count == 1 and not text[1:].startswith(b" "):
            self.leaf(node.named_children[0])
        elif kind == "string_content" or kind in ("string", "raw_string", "ansi_c_string", "concatenation"):
            self._doubt = self._doubt or not _NUMBER.match(text.strip(b"'\""))
        elif kind == "command_substitution":
            self._doubt = self._doubt or not _NUMBER_PRINTED.match(text)


def _is_number(value: Node) -> bool:
    kind, text = value.type, value.text or b""
    if kind in ("number", "word"):
        return bool(_NUMBER.match(text))
    if kind == "brace_expression":
        return all(_NUMBER.match(child.text or b"") for child in value.named_children)
    if kind == "command_substitution":
        return bool(_NUMBER_PRINTED.match(text))
    if kind == "expansion":
        return text.startswith(b"${#")
    return kind == "arithmetic_expansion"
