"""The walk over a line's syntax tree: each node type's handler, and the commands that run inside words, arithmetic and
tests.

Every node type has a handler. A node without one, or one that does not look as the grammar says, is unknown:
tree-sitter's bash grammar is not bash itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.command.variable import runs_code
from mudroom.core.command.verdict import CommandPart
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node


# --- variables in arithmetic that are certainly numbers ---
# In an arithmetic expression bash evaluates a variable's content as another expression, down to ``a[$(command)]``
# (bash(1), ARITHMETIC EVALUATION). So an expression that uses a variable with unknown content may run any command.


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


# --- the walk ---

DEEPEST = 60
BLANK = regex(rb"(?:[ \t\n]|\\\n)*\Z")
BLANK_IN_LINE = regex(rb"(?:[ \t]|\\\n)*\Z")
_RUNS_INSIDE = regex(rb"(?<!\\)(?:\\\\)*(?:`|\$\(|[<>]\()")
_BRACKETS = regex(rb"(?s)(\[\[?)[ \t\n].*[ \t\n]\]\]?\Z")
_LEADING = regex(rb"\A(?:[ \t\n]|\\\n)+")
_BLANK_IN_WORD = regex(rb"(?<!\\)(?:\\\\)*[ \t\n]|\\\n")
_WORD = regex(rb"(?s)(?:[^'\"`;&|<>()\\\s]|\\.)*\Z")
_ANSI = regex(rb"(?s)\$'(?:[^'\\]|\\.)*'\Z")
_QUOTE_INSIDE = regex(rb"(?<!\\)(?:\\\\)*\"")
_SHELL_VALUES = frozenset("QEAaKkUuL")


def names_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STRUCTURE = names_of(
    "program subshell do_group if_statement elif_clause else_clause while_statement case_statement case_item"
    " for_statement list pipeline negated_command command_substitution process_substitution"
)
_TOKENS = names_of(
    "; ;; ;& ;;& & && || | |& ( ) { } ! if then elif else fi while until do done for select in case esac $( ` <( >("
) | {"\n"}
LEAVES = names_of("word number raw_string ansi_c_string variable_name special_variable_name extglob_pattern regex")
_QUIET = names_of("heredoc_start heredoc_end test_operator file_descriptor")
VALUES = names_of("string concatenation simple_expansion brace_expression array translated_string")
_WITH_SIGNS = frozenset({"negated_command", "compound_statement"})
_AFTER_SIGN = (b" ", b"\t", b"\n")
_AFTER_BRACE = (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b")", b">", b"<")
WORDS = LEAVES | VALUES | {"expansion", "arithmetic_expansion", "variable_assignment", "command_substitution"}
_SUM_NODES = names_of(
    "binary_expression unary_expression ternary_expression postfix_expression parenthesized_expression subscript"
    " variable_assignment arithmetic_expansion compound_statement"
)
_TEST_NODES = names_of("binary_expression unary_expression ternary_expression parenthesized_expression")
_SUMS = names_of("-eq -ne -lt -le -gt -ge")
_BRACKET_TOKENS = names_of("[ ] = == != !")


def unread(reason: str) -> CommandPart:
    return CommandPart((), False, ("unknown",), reason)


class CommandHandlers(Protocol):
    """Handlers for the node types for which ``TreeReader`` has none: a method named ``on_`` and the type for each."""

    def structure(self, node: Node, depth: int) -> None:
        """Visit a node that only groups others."""


class TreeReader:
    """Collects a line's parts: the commands that run inside words by itself, the commands themselves through
    ``commands``."""

    def __init__(self, source: bytes, commands: CommandHandlers) -> None:
        self.source = source
        self._commands = commands
        self.parts: list[CommandPart] = []
        self.doubts = False
        self.numbers = Numbers()
        self.quoted = False
        """Whether the walk is inside double quotes. There a single quote is an ordinary character, in spite of the
        grammar."""

    def unread(self, reason: str = "cannot be parsed") -> None:
        self.doubts = True
        part = unread(reason)
        if part not in self.parts[-1:]:
            self.parts.append(part)

    def visit(self, node: Node, depth: int) -> None:
        kind = node.type
        if depth > DEEPEST:
            self.unread("nested too deeply")
        elif node.is_missing or kind == "ERROR":
            self.unread()
            self.children(node, depth, strict=False)
        elif not node.is_named:
            if kind not in _TOKENS:
                self.unread()
        elif kind in LEAVES:
            text = node.text or b""
            if kind not in ("raw_string", "ansi_c_string") and _RUNS_INSIDE.search(text):
                self.unread()
            if kind in ("regex", "extglob_pattern") and (b"\n" in text or b" ]]" in text):
                self.unread("a pattern that continues after its test")
            if kind == "word" and not _WORD.match(text):
                self.unread("a word that holds a character which ends words")
            if kind == "ansi_c_string" and not _ANSI.match(text):
                self.unread("a string whose end is not certain")
            if self.quoted and kind in ("raw_string", "ansi_c_string"):
                self.unread("single quotes inside double quotes")
            if kind in ("word", "number", "variable_name") and _BLANK_IN_WORD.search(text):
                self.unread("a blank inside a word")
            self.children(node, depth, strict=False)
        elif kind in _STRUCTURE or kind == "string":
            outer, self.quoted = self.quoted, kind == "string"
            self.value(node, depth) if kind == "string" else self._commands.structure(node, depth)
            self.quoted = outer
        elif kind in VALUES:
            self.value(node, depth)
        elif kind in ("string_content", "heredoc_content"):
            self.text_of(node.text or b"")
            if kind == "string_content" and _QUOTE_INSIDE.search(node.text or b""):
                self.unread("a string whose end is not certain")
        elif kind not in _QUIET:
            handler = getattr(self, "on_" + kind, None) or getattr(self._commands, "on_" + kind, None)
            if handler is None:
                self.unread()
                self.children(node, depth, strict=False)
            else:
                handler(node, depth)

    def children(self, node: Node, depth: int, strict: bool = True) -> None:
        """Visit all children. ``strict``: tokens too, and only blanks may stand between children."""
        if strict:
            self.gaps(node, lines=True)
        for child in node.children:
            if strict or child.is_named or child.is_missing:
                self.visit(child, depth + 1)

    def gaps(self, node: Node, apart: bool = False, lines: bool = False, known: int = -1) -> None:
        """Check that only blanks stand between children. ``apart``: words may not touch. ``lines``: newlines count as
        blanks. ``known``: where a gap begins whose text the caller has read."""
        blank = BLANK if lines else BLANK_IN_LINE
        at, last = node.start_byte, ""
        self.tokens(node)
        for child in node.children:
            if child.start_byte > at != known and not blank.match(self.source, at, child.start_byte):
                self.unread()
            if apart and child.start_byte == at and last in WORDS and child.type in WORDS:
                self.unread("words that touch")
            at, last = child.end_byte, child.type
        if node.end_byte > at and not blank.match(self.source, at, node.end_byte):
            self.unread()

    def tokens(self, node: Node) -> None:
        """Check that each token's text equals its type: the grammar lets ``<<`` include the end of a word."""
        for child in node.children:
            if not child.is_named and not child.is_missing:
                text = _LEADING.sub(b"", child.text or b"").decode(errors="replace")
                if child.type in ("!", "{", "}") and node.type in _WITH_SIGNS and not self.stands_alone(child):
                    self.unread("a reserved word that is part of another word")
                if text != child.type and not (child.type == "\n" and not text.strip()):
                    self.unread()

    def stands_alone(self, node: Node) -> bool:
        """Return whether a word ends after the node: only then are ``{``, ``!`` and ``}`` reserved words."""
        after = self.source[node.end_byte : node.end_byte + 1]
        return after in (_AFTER_BRACE if node.type == "}" else _AFTER_SIGN)

    def value(self, node: Node, depth: int) -> None:
        """Visit a piece in a word. The text between its children must not run a command."""
        at = node.start_byte
        self.tokens(node)
        if node.type == "simple_expansion" and any(
            blank in (node.text or b"").lstrip() for blank in (b" ", b"\t", b"\n")
        ):
            self.unread("an expansion that is followed by a blank")
        for child in node.children:
            self.text_of(self.source[at : child.start_byte])
            at = child.end_byte
            if child.is_named or child.is_missing:
                self.visit(child, depth + 1)
        self.text_of(self.source[at : node.end_byte])

    def text_of(self, text: bytes) -> None:
        if _RUNS_INSIDE.search(text):
            self.unread("runs a command inside its text")

    def sum_of(self, node: Node, depth: int) -> None:
        """Visit an arithmetic expression. bash evaluates the variables in it, and their content, and runs commands in
        subscripts."""
        if depth > DEEPEST:
            self.unread("nested too deeply")
            return
        self.tokens(node)
        if node.type not in _SUM_NODES:
            self.numbers.leaf(node)
            self.visit(node, depth + 1)
            return
        self.numbers.evaluated(node)
        for child in node.children:
            if child.type in _SUM_NODES:
                self.sum_of(child, depth + 1)
            elif child.is_named or child.is_missing:
                self.visit(child, depth + 1)

    def on_arithmetic_expansion(self, node: Node, depth: int) -> None:
        self.sum_of(node, depth)

    def on_subscript(self, node: Node, depth: int) -> None:
        index = node.child_by_field_name("index")
        if index is not None and (index.text or b"") not in (b"@", b"*"):
            self.sum_of(node, depth)

    def on_expansion(self, node: Node, depth: int) -> None:
        self.tokens(node)
        if (node.text or b"").lstrip()[2:3] in (b" ", b"\t", b"\n", b"|", b"("):
            self.unread("runs commands in place of a variable")  # ${ command; } in bash 5.3
        tokens = [child.type for child in node.children if not child.is_named]
        named = [child for child in node.children if child.is_named]
        kinds = [child.type for child in named]
        if "!" in tokens and kinds[:1] != ["subscript"] and not {"*", "@"} & set(tokens):
            self.unread("takes a variable whose name is not known before it runs")
        if "@" in tokens and "!" not in tokens and not set(tokens[tokens.index("@") + 1 :]) <= _SHELL_VALUES | {"}"}:
            self.unread("evaluates a variable")
        if {"=", ":="} & set(tokens) and named and runs_code(named[0].text or b""):
            self.unread("sets a variable that decides what is run")
        for at, child in enumerate(node.children):
            if at and node.children[at - 1].type == ":" and child.is_named:
                self.sum_of(child, depth + 1)
            elif child.is_named or child.is_missing:
                self.visit(child, depth + 1)

    def on_test_command(self, node: Node, depth: int) -> None:
        plain = bool(node.children) and node.children[0].type == "["
        if not _BRACKETS.match(node.text or b"") or (plain and b"\n" in (node.text or b"")):
            self.unread("a bracket that is part of a word")
        self.tested(node, depth, plain)
        self.parts.append(CommandPart((b"[",) if plain else (b"[[",), False, ("read_only",), "tests a condition"))

    def tested(self, node: Node, depth: int, plain: bool) -> None:
        operators = {child.text for child in node.children if child.type == "test_operator"}
        sums = bool({operator.decode() for operator in operators if operator} & _SUMS) and not plain
        self.gaps(node, lines=not plain)
        if {b"-v", b"-R"} & operators and _RUNS_INSIDE.search(node.text or b""):
            self.unread("the name of a variable is not known before it runs")
        if depth > DEEPEST:
            self.unread("nested too deeply")
            return
        for child in node.children:
            if not child.is_named and plain and child.type not in _BRACKET_TOKENS:
                self.unread("an operator of the shell inside a test")
            if child.type in _TEST_NODES:
                self.tested(child, depth + 1, plain)
            elif sums and child.is_named and child.type != "test_operator":
                self.sum_of(child, depth + 1)
            elif child.is_named or child.is_missing:
                self.visit(child, depth + 1)

    def on_comment(self, node: Node, _depth: int) -> None:
        if node.start_byte and self.source[node.start_byte - 1] not in b" \t\n;&|":
            self.unread("a comment that may be a word")
