"""A line of shell, read as its parts.

The tree comes from tree-sitter's grammar of bash. Rules of this file:

* Every node has a way of being read; what has none, an ERROR, a node that was made up (MISSING), and text that no node
  covers become an unknown part, and what is understood inside them counts as well.
* A word that bash and the grammar might take differently (control characters, a line that goes on in the middle of a
  word, pieces that touch) is unknown.
* Nothing here recurses deeper than ``DEEPEST``, whatever the line; longer lines than ``LONGEST`` are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mudroom.core.grammar import tree_of
from mudroom.core.place import Scene, moved, names_credentials, where
from mudroom.core.quoting import word_of
from mudroom.core.rule import tidy
from mudroom.core.variable import runs_code
from mudroom.core.verdict import CommandClass, Part
from mudroom.core.word import Word, glued, known

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 128 << 10
DEEPEST = 60
_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*\Z")
_ODD_BYTES = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_ODD_TEXT = re.compile(  # blank or invisible: spaces, joiners, marks of direction, tags
    "[^\\S \t\n]|[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_BROKEN_WORD = re.compile(rb"[^ \t\n\\;|&(]\\\n[^ \t\n]")
_RUNS_INSIDE = re.compile(rb"(?<!\\)(?:\\\\)*(?:`|\$\(|[<>]\()")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STRUCTURE = _names(
    "program subshell do_group if_statement elif_clause else_clause while_statement case_statement case_item"
    " for_statement list pipeline negated_command heredoc_redirect command_substitution process_substitution"
)
_TOKENS = _names(
    "; ;; ;& ;;& & && || | |& ( ) { } ! if then elif else fi while until do done for select in case esac $( ` <( >( <<"
    " <<-"
) | {"\n"}
_LEAVES = _names("word number raw_string ansi_c_string variable_name special_variable_name extglob_pattern regex")
_VALUES = _names(
    "string concatenation simple_expansion expansion arithmetic_expansion brace_expression array subscript"
    " translated_string heredoc_body binary_expression unary_expression ternary_expression postfix_expression"
    " parenthesized_expression"
)


def parts_of(line: bytes, scene: Scene, bash: bool = True) -> tuple[Part, ...]:
    """The parts of a line of shell. Never raises; a line that cannot be read has an unknown part."""
    if len(line) > LONGEST:
        return (unread(f"longer than {LONGEST >> 10} KiB"),)
    reader = Reader(scene, bash)
    odd = _oddity(line)
    if odd:
        reader.parts.append(unread(odd))
    if b"\0" not in line:
        reader.visit(tree_of(line), 0)
    return tuple(reader.parts)


def unread(reason: str) -> Part:
    return Part((), False, ("unknown",), reason)


def _oddity(line: bytes) -> str:
    if _ODD_BYTES.search(line):
        return "holds control characters"
    if _BROKEN_WORD.search(line):
        return "goes on in the next line in the middle of a word"
    if line.isascii():
        return ""
    try:
        return "holds characters that cannot be seen" if _ODD_TEXT.search(line.decode()) else ""
    except UnicodeDecodeError:
        return "is not text"


class Reader:
    """Walks the tree of one line and collects its parts."""

    def __init__(self, scene: Scene, bash: bool) -> None:
        self.parts: list[Part] = []
        self.scene = scene
        self.bash = bash
        self.functions: set[bytes] = set()

    def unread(self, reason: str = "cannot be read") -> None:
        self.parts.append(unread(reason))

    def visit(self, node: Node, depth: int) -> None:
        kind = node.type
        if depth > DEEPEST:
            self.unread("nested too deeply")
            return
        if node.is_missing or kind == "ERROR":
            self.unread()
            self.children(node, depth, strict=False)
        elif not node.is_named:
            if kind not in _TOKENS:
                self.unread()
        elif kind == "command":
            self.command(node, depth, ())
        elif kind == "redirected_statement":
            self.redirected(node, depth)
        elif kind in _STRUCTURE:
            self.structure(node, depth)
        elif kind == "comment":
            pass
        elif kind in _LEAVES or kind in _VALUES:
            self.value(node, depth)
        elif kind == "variable_assignment":
            self.assignment(node, depth)
            self.parts.append(Part((), True, ("read_only",), "sets a variable of the shell"))
        elif kind == "compound_statement":
            self.structure(node, depth) if node.child(0) and node.children[0].type == "{" else self.value(node, depth)
        elif kind == "file_redirect":
            if self.redirect(node, depth, bare=False):
                self.unread()
        elif kind == "herestring_redirect":
            self.children(node, depth, strict=False, skip=("<<<",))
        elif kind == "function_definition":
            self.function(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self.declaration(node, depth)
        elif kind == "test_command":
            self.value(node, depth)
            self.parts.append(Part((b"[",), False, ("read_only",), "tests something"))
        elif kind in ("heredoc_start", "heredoc_end", "heredoc_content", "string_content", "test_operator"):
            pass
        else:
            self.unread()
            self.children(node, depth, strict=False)

    def children(self, node: Node, depth: int, strict: bool = True, skip: Sequence[str] = ()) -> None:
        text, start, at = node.text or b"", node.start_byte, node.start_byte
        for child in node.children:
            if strict and not _BLANK.match(text[at - start : child.start_byte - start]):
                self.unread()
            at = child.end_byte
            if child.type not in skip and (strict or child.is_named):
                self.visit(child, depth + 1)
        if strict and not _BLANK.match(text[at - start :]):
            self.unread()

    def structure(self, node: Node, depth: int) -> None:
        spine: list[Node] = []
        while node.type == "list" and node.children and node.children[0].type == "list":
            spine.append(node)
            node = node.children[0]
        self.children(node, depth)
        for outer in reversed(spine):
            for child in outer.children[1:]:
                self.visit(child, depth + 1)

    def command(self, node: Node, depth: int, extra: Sequence[Word]) -> None:
        words: list[Word] = []
        end = -1
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment":
                self.assignment(child, depth)
                continue
            if kind in ("file_redirect", "herestring_redirect"):
                if kind == "file_redirect":
                    words += self.redirect(child, depth, bare=False)
                else:
                    self.visit(child, depth + 1)
                continue
            if kind == "command_name" and child.children:
                child = child.children[0]
            word = word_of(child, self.bash) if child.is_named else Word(child.text or b"", "computed")
            if child.is_named:
                self.visit(child, depth + 1)
            if child.start_byte == end:
                words[-1] = glued([words[-1], word, Word(b"", "computed")])
            else:
                words.append(word)
            end = child.end_byte
        self.simple([*words, *extra])

    def simple(self, words: Sequence[Word]) -> None:
        if not words:
            return
        if words[0].text in self.functions:
            self.parts.append(Part(known(words), False, ("unknown",), "a function of this line"))
            return
        self.parts.extend(self.scene.words(words, self.scene))
        if words[0].text in (b"cd", b"pushd", b"popd"):
            target = words[1] if len(words) > 1 else Word(b"~", "computed")
            self.scene = self.scene._replace(places=moved(target, self.scene))

    def redirected(self, node: Node, depth: int) -> None:
        body = node.child_by_field_name("body")
        extra: list[Word] = []
        for child in node.children:
            if body is not None and child.id == body.id:
                continue
            if child.type == "file_redirect":
                extra += self.redirect(child, depth, bare=body is None)
            else:
                self.visit(child, depth + 1)
        if body is not None and body.type == "command":
            self.command(body, depth + 1, extra)
            return
        if body is not None:
            self.visit(body, depth + 1)
        if extra:
            self.simple(extra) if body is None else self.unread()

    def redirect(self, node: Node, depth: int, bare: bool) -> list[Word]:
        """Adds what the redirection does; gives the words behind its target, which belong to the command."""
        operator, words = "", []
        for child in node.children:
            if child.type == "file_descriptor":
                continue
            if not child.is_named:
                operator = child.type
                continue
            self.visit(child, depth + 1)
            words.append(word_of(child, self.bash))
        if operator in (">&-", "<&-"):
            return words
        if not words:
            self.unread()
            return []
        self.parts.extend(redirection(operator, words[0], bare, self.scene))
        return words[1:]

    def assignment(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("name")
        self.children(node, depth, strict=False)
        text = b"" if name is None else (name.text or b"").partition(b"[")[0]
        if runs_code(text):
            self.parts.append(unread("sets a variable that decides what is run"))

    def declaration(self, node: Node, depth: int) -> None:
        words: list[Word] = [Word(node.children[0].type.encode())]
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assignment(child, depth)
                words.append(Word(child.text or b"", "computed"))
            else:
                words.append(word_of(child, self.bash))
                self.visit(child, depth + 1)
        self.parts.append(Part(known(words), all(w.literal for w in words), ("read_only",), "declares variables"))

    def function(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("name")
        self.functions.add(b"" if name is None else name.text or b"")
        for child in node.children:
            if child.is_named and (name is None or child.id != name.id):
                self.visit(child, depth + 1)

    def value(self, node: Node, depth: int) -> None:
        """A piece of a word: what is run inside it counts."""
        if not node.child_count:
            if node.type in ("word", "regex", "extglob_pattern") and _RUNS_INSIDE.search(node.text or b""):
                self.unread()
            return
        self.children(node, depth, strict=False)


def redirection(operator: str, target: Word, bare: bool, scene: Scene) -> Iterable[Part]:
    """What a redirection of a command does, beside the command."""
    if operator in (">&", "<&") and target.literal and (target.text.isdigit() or target.text.rstrip(b"-").isdigit()):
        return
    if target.text.startswith((b"/dev/tcp/", b"/dev/udp/")):
        yield Part((), False, ("networked",), "opens a connection")
        return
    classes: set[CommandClass] = set()
    if ">" in operator and target.text not in (b"/dev/null", b"/dev/stdout", b"/dev/stderr", b"/dev/tty"):
        place = where(target, scene)
        classes = {"destructive" if bare else "mutating"}
        classes |= {"host_escape_risk"} if place == "outside" else {"unknown"} if place == "unknown" else set()
    if names_credentials(target):
        classes.add("host_escape_risk")
    if classes:
        where_to = target.text.decode(errors="replace")
        yield Part((), False, tidy(classes), f"{'writes' if '>' in operator else 'reads'} {where_to}")
