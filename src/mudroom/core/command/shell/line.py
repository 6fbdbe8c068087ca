"""Parse a shell line into its parts.

The syntax tree comes from tree-sitter's bash grammar, which differs from bash in places. Rules of this file:

* Every node type has a handler. A node without one, an ERROR node, a MISSING node, and text that no node covers become
  an unknown part; parts that are understood inside such a node count as well.
* Where bash and the grammar are known to differ (control characters, a line continuation inside a word, words that
  touch, operators inside ``[ … ]``), the part is unknown.
* Recursion is at most ``DEEPEST`` deep, whatever the line. Lines longer than ``LONGEST`` bytes, or with more than
  ``MOST_OPERATORS`` operators, are not parsed.
* A line with any unknown part also gets the fallback scan (``scan_line``), so that a command hidden by a grammar error
  is judged no more mildly than a visible one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mudroom.core.command.locations import CommandContext, is_of_git, locate, move, names_credentials
from mudroom.core.command.path_aim import add_path_aims
from mudroom.core.command.shell.grammar import tree_of
from mudroom.core.command.shell.quoting import word_of
from mudroom.core.command.shell.tree import BLANK, BLANK_IN_LINE, LEAVES, VALUES, WORDS, TreeReader, names_of, unread
from mudroom.core.command.table_rule import tidy
from mudroom.core.command.variable import is_harmless_value, runs_code
from mudroom.core.command.verdict import CommandClass, CommandPart
from mudroom.core.command.word import UNKNOWN, Word, concatenate, known_words, literal_words
from mudroom.core.text.escaping import escape_line
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


# --- Redirections: the files that a command reads or writes through the shell (bash(1), REDIRECTION) ---


_NOWHERE = frozenset({b"/dev/null", b"/dev/stdout", b"/dev/stderr", b"/dev/tty"})
_ENDS_A_WORD = (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"<", b">", b")")
_DELIMITER = regex(rb"(?P<quote>['\"]?)\\?(?P<name>\w+)(?P=quote)\Z")


def redirection(operator: str, target: Word, bare: bool, context: CommandContext) -> Iterable[CommandPart]:
    """Yield the part for a redirection; no part if it only duplicates descriptors or writes to a null device. ``bare``:
    there is no command, so ``>`` empties the file."""
    text = target.text
    if text == b"/dev/fd/":
        return  # a process substitution: its commands are parts by themselves
    if operator in (">&", "<&") and target.literal and (text.isdigit() or text == b"-" or text[:-1].isdigit()):
        return
    if text.startswith((b"/dev/tcp/", b"/dev/udp/")) or (not target.literal and text.startswith(b"/dev/")):
        yield CommandPart((), False, ("networked", "unknown"), "opens a connection")
        return
    classes: set[CommandClass] = set()
    verb = "writes" if ">" in operator else "reads"
    if ">" in operator and text not in _NOWHERE:
        place = locate(target, context)
        empties = bare and operator in (">", ">|", "&>", ">&")
        classes.add("destructive" if empties else "mutating")
        verb = "empties" if empties else verb
        if place != "inside":
            classes.add("host_escape_risk" if place == "outside" else "unknown")
        if is_of_git(target):
            classes.add("unknown")
    if names_credentials(target, context):
        classes.add("host_escape_risk")
    if classes:
        part = CommandPart((), False, tidy(classes), f"{verb} {text.decode(errors='replace')}")
        yield add_path_aims(part, (target,), context) if "host_escape_risk" in classes else part


def heredoc_is_plain(node: Node, source: bytes) -> bool:
    """Return whether the grammar certainly ended the here-document where bash does: at the first line equal to the
    delimiter."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    end = next((child for child in node.children if child.type == "heredoc_end"), None)
    delimiter = _DELIMITER.match(start.text or b"") if start is not None else None
    if start is None or source[start.end_byte : start.end_byte + 1] not in _ENDS_A_WORD:
        return False
    if delimiter is None or end is None or end.is_missing or (end.text or b"").lstrip(b"\t") != delimiter["name"]:
        return False
    tabs = any(child.type == "<<-" for child in node.children)
    line_start = source.rfind(b"\n", 0, end.start_byte) + 1
    before = source[line_start : end.start_byte]
    if before.strip(b"\t") or (before and not tabs) or source[end.end_byte : end.end_byte + 1] not in (b"", b"\n"):
        return False
    lines = source[body.start_byte : line_start].split(b"\n") if body is not None else []
    return not any((line.lstrip(b"\t") if tabs else line) == delimiter["name"] for line in lines)


LONGEST = 128 << 10
MOST_OPERATORS = 4_000
"""The parser takes the square of their number: 60,000 parentheses took 20 s, these take 1 s."""
_MOST_PLACES = 8
_ODD_BYTES = regex(rb"[\x00-\x08\x0b-\x1f\x7f]")
_ODD_SPACE = regex("[^\\S \t\n]")
_BROKEN_WORD = regex(rb"[^ \t\n\\;|&(]\\\n[^ \t\n]")
_ASSIGNS_IN_SUBSCRIPT = regex(rb"[(\s]\[[^\]\[$'\"]*=[^\]]*\]=")
_NAME = regex(rb"[A-Za-z_]\w*\Z")
_BEYOND_A_WORD = regex(rb"[\s;&|<>()`]")
_SPECIAL_IN_BACKTICKS = regex(rb"\\[`$\\\"]")
_APART = names_of("subshell command_substitution process_substitution")
"""Nodes that run in their own process: a change of directory inside has no effect outside."""
_LOOPS = names_of("while_statement for_statement c_style_for_statement")
_PERHAPS = _LOOPS | names_of("if_statement case_statement function_definition pipeline")
_BRANCHES = names_of("case_item elif_clause else_clause")
_MOVES = regex(rb"\b(?:cd|pushd|popd)\b")
_REDIRECTS = names_of("< > >> &> &>> <& >& >| <&- >&-")
_IN_THIS_SHELL = frozenset({b"time", b"-p", b"command", b"builtin", b"!", b"{", b"then", b"do", b"--"})
_LONE_DASH = regex(rb"[ \t]+-[ \t]+")
_DOES_NOTHING = regex(rb"\s*(?::|true|time|exec|!|\s)+\Z")


def parts_of(line: bytes, context: CommandContext) -> tuple[CommandPart, ...]:
    """Return the parts of a shell line. Never raises; a line that cannot be parsed has an unknown part."""
    reason = f"longer than {LONGEST >> 10} KiB" if len(line) > LONGEST else "holds a NUL" if b"\0" in line else ""
    if not reason and len(line) - len(line.translate(None, b"()<>|&;")) > MOST_OPERATORS:
        reason = f"holds more than {MOST_OPERATORS:,} operators"
    if reason:
        return (unread(reason), *scan_line(line, context))
    tree = CommandReader(line, context).tree
    odd = _oddity(line)
    if odd:
        tree.unread(odd)
    root = tree_of(line)
    if not BLANK.match(line, 0, root.start_byte) or not BLANK.match(line, root.end_byte):
        tree.unread()
    tree.visit(root, 0)
    if tree.numbers.doubtful():
        tree.unread("evaluates a variable that may hold a command")
    hidden = scan_line(line, context) if tree.doubts else ()
    return (*tree.parts, *hidden)


def _oddity(line: bytes) -> str:
    if _ODD_BYTES.search(line):
        return "holds control characters"
    if _BROKEN_WORD.search(line):
        return "continues in the next line in the middle of a word"
    if line.isascii():
        return ""
    try:
        has_space = _ODD_SPACE.search(line.decode())
    except UnicodeDecodeError:
        return "is not text"
    shown = escape_line(line.replace(b"\n", b" "), widest=10 * len(line) + 1)
    return "holds invisible characters" if has_space or shown.odd else ""


def _for_read(node: Node) -> bool:
    """Return whether the assignment holds for a single ``read`` only: ``IFS= read -r line``."""
    name = node.parent.child_by_field_name("name") if node.parent is not None else None
    return name is not None and name.text in (b"read", b"mapfile", b"readarray")


def _list_inside(node: Node) -> Node | None:
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else None
    return body if body is not None and body.type == "list" else None


class CommandReader:
    """Handlers for the nodes that are commands, or that change the shell. ``tree`` walks the syntax tree, calls them,
    and collects the parts."""

    def __init__(self, source: bytes, context: CommandContext) -> None:
        self.tree = TreeReader(source, self)
        self.context = context
        self.functions: set[bytes] = set()
        self.rehearses = False
        """Whether the first round of a loop is visited for its directories only."""

    def structure(self, node: Node, depth: int) -> None:
        before = self.context
        kind = node.type
        if kind == "for_statement":
            self.loop_variable(node)
        if kind == "command_substitution":
            text = (node.text or b"").lstrip()
            if text.startswith(b"`") and _SPECIAL_IN_BACKTICKS.search(text):
                self.tree.unread("backslashes between backticks, which bash removes before parsing")
        if kind == "list":
            self.chain(node, depth)
            return
        self.looped(node, lambda: self.grouped(node, depth))
        self.leave(kind, before)

    def grouped(self, node: Node, depth: int) -> None:
        """Visit the children of a node in order, each in the directories that bash gives it: a command before ``&``,
        and each of a pipeline, runs in its own process; one branch does not follow another."""
        start = untaken = self.context
        ends = set(start.places)
        self.tree.gaps(node, lines=True)
        for child in node.children:
            if child.type == "then":
                untaken = self.context
            elif child.type in _BRANCHES:
                ends.update(self.context.places)
                self.context = untaken
            elif child.type == "&" or node.type == "pipeline":
                self.context = start
            if child.is_named:
                start = self.context
            self.tree.visit(child, depth + 1)
        if node.type in _PERHAPS:
            self.context = self.among(ends)

    def looped(self, node: Node, visit: Callable[[], None]) -> None:
        """Visit a node; a loop that changes its directory also in the directories after its first round."""
        if node.type in _LOOPS and not self.rehearses and _MOVES.search(node.text or b""):
            before, known = self.context, len(self.tree.parts)
            self.rehearses = True
            visit()
            self.rehearses = False
            del self.tree.parts[known:]
            if self.context.places != before.places:
                self.context = self.among({*before.places, None})
        visit()

    def among(self, places: Iterable[bytes | None]) -> CommandContext:
        """Return the context in which the next command may also run in these directories."""
        merged = tuple(sorted({*places, *self.context.places}, key=repr))
        if merged == self.context.places:
            return self.context
        most = merged[:_MOST_PLACES] + ((None,) if len(merged) > _MOST_PLACES else ())
        return self.context._replace(places=most, stack=())

    def chain(self, node: Node, depth: int) -> None:
        """Visit the commands that ``&&`` and ``||`` join, from left to right. The grammar puts a redirection around the
        whole list; bash gives it to the last command. A change of directory is taken to succeed, except before ``||``,
        as before ``;``."""
        before, ends = self.context.places, set[bytes | None]()
        spine: list[tuple[Node, Node | None]] = []
        redirects: Node | None = None
        while (joined := node if node.type == "list" else _list_inside(node)) is not None:
            if joined is not node:
                redirects = node
            spine.append((joined, redirects))
            node, redirects = joined.children[0], None
        self.tree.visit(node, depth + 1)
        for joined, redirects in reversed(spine):
            self.tree.gaps(joined, lines=True)
            left = self.context.places
            if not _MOVES.match(node.text or b""):
                ends.update(left)
            *signs, right = joined.children[1:]
            for sign in signs:
                self.tree.visit(sign, depth + 1)
            fails = any(sign.type == "||" for sign in signs)
            if fails:
                self.context = self.among({*before, *ends})
            if redirects is None:
                self.tree.visit(right, depth + 1)
            else:
                self.redirected(redirects, right, depth + 1)
            if fails:
                self.context = self.among(left)
            node = right
        self.context = self.among(ends)

    def leave(self, kind: str, before: CommandContext) -> None:
        """Set the directories in which the next command may run, after one that may have changed its directory."""
        if kind in _APART:
            self.context = before
        elif kind in _PERHAPS:
            self.context = self.among(before.places)

    def loop_variable(self, node: Node) -> None:
        name = node.child_by_field_name("variable")
        text = b"" if name is None else name.text or b""
        if runs_code(text):
            self.tree.unread("sets a variable that decides what is run")
        values = [
            child for child in node.children if child.is_named and child.type not in ("variable_name", "do_group")
        ]
        self.tree.numbers.looped(text, values)
        self.keys_among(values)

    def keys_among(self, values: Sequence[Node]) -> None:
        """Add a part if an assigned value names a credential file: a command may use it through the variable."""
        if any(names_credentials(word_of(value), self.context) for value in values):
            self.tree.parts.append(CommandPart((), False, ("host_escape_risk",), "names a credential file"))

    def on_command(self, node: Node, depth: int, extra: Sequence[Word] = ()) -> None:
        words: list[Word] = []
        end = -1
        self.tree.gaps(node)
        for child in node.children:
            kind = child.type
            if kind == "command_name" and child.child_count == 1:
                child = child.children[0]
            if kind == "file_redirect" and child.start_byte == end and child.children[0].type == "file_descriptor":
                self.tree.unread()
            if kind == "file_redirect":
                words += self.redirect(child, depth, bare=False)
            elif kind in ("variable_assignment", "herestring_redirect"):
                self.tree.visit(child, depth + 1)
            elif kind == "subshell":
                if [word.text for word in words] not in ([b"time"], [b"time", b"-p"]):
                    self.tree.unread()
                self.tree.visit(child, depth + 1)
            else:
                word = word_of(child) if child.is_named and kind != "regex" else UNKNOWN
                if kind == "regex" and _BEYOND_A_WORD.search(child.text or b""):
                    self.tree.unread("is parsed past an operator that ends the word")
                if child.is_named or child.is_missing:
                    self.tree.visit(child, depth + 1)
                if child.start_byte == end:
                    words[-1:] = [concatenate([*words[-1:], word, UNKNOWN])]
                    self.tree.unread("words that touch")
                else:
                    words.append(word)
            end = child.end_byte
        self.simple([*words, *extra])

    def simple(self, words: Sequence[Word]) -> None:
        if not words:
            return
        if words[0].literal and words[0].text in self.functions:
            self.tree.parts.append(
                CommandPart(known_words(words), False, ("unknown",), "calls a function of this line")
            )
            return
        parts = self.context.words(words, self.context)
        self.tree.parts.extend(parts)
        while len(words) > 1 and words[0].literal and words[0].text in _IN_THIS_SHELL:
            words = words[1:]
        name = words[0].text
        if name in (b"cd", b"pushd", b"popd") and words[0].literal:
            self.context = move(words, self.context)
        elif name == b"eval":
            for part in parts[1:]:
                if part.words[:1] == (b"cd",):
                    rest = literal_words(part.words) if part.complete else (Word(b"cd"), UNKNOWN)
                    self.context = self.among(move(rest, self.context).places)
        elif name in (b"read", b"mapfile", b"readarray", b"getopts", b"printf"):
            self.tree.numbers.told(word.text for word in words[1:])

    def on_redirected_statement(self, node: Node, depth: int) -> None:
        if _list_inside(node) is None:
            self.redirected(node, node.child_by_field_name("body"), depth)
        else:
            self.chain(node, depth)

    def redirected(self, node: Node, body: Node | None, depth: int) -> None:
        """Visit a command with the redirections of ``node``, and then what follows a here-document on its line."""
        whole = node.child_by_field_name("body")
        extra = self.lone_dash(node, body)
        before = self.context
        after: list[Node] = []
        self.tree.gaps(node, known=body.end_byte if body is not None and extra else -1)
        for child in node.children:
            if whole is not None and child.id == whole.id:
                continue
            if child.type == "file_redirect":
                text = self.tree.source[: child.start_byte]
                if text.endswith(b"}") and runs_code(text.rpartition(b"{")[2][:-1]):
                    self.tree.unread("sets a variable that decides what is run")  # {PATH}>x
                extra += self.redirect(child, depth, bare=body is None or bool(_DOES_NOTHING.match(body.text or b"")))
            elif child.type == "heredoc_redirect":
                extra += self.heredoc(child, depth, after)
            else:
                self.tree.visit(child, depth + 1)
        if body is not None and body.type == "command":
            self.on_command(body, depth + 1, extra)
        elif body is not None:
            self.tree.visit(body, depth + 1)
            if extra:
                self.tree.unread()
        else:
            self.simple(extra)
        for child in after:
            self.context = (
                self.context if child.prev_sibling and child.prev_sibling.type == "&&" else self.among(before.places)
            )
            self.tree.visit(child, depth + 1)

    def lone_dash(self, node: Node, body: Node | None) -> list[Word]:
        """Return the word ``-`` if it is the command's last word before a here-document, for which the grammar has no
        node (``python3 - <<END``)."""
        after = node.children[1] if len(node.children) > 1 else None
        if body is None or after is None or body.type != "command" or node.children[0].end_byte != body.end_byte:
            return []
        is_alone = after.type == "heredoc_redirect" and _LONE_DASH.fullmatch(
            self.tree.source, body.end_byte, after.start_byte
        )
        return [Word(b"-")] if is_alone else []

    def on_file_redirect(self, node: Node, depth: int) -> None:
        self.simple(self.redirect(node, depth, bare=True))

    def on_heredoc_redirect(self, node: Node, depth: int) -> None:
        after: list[Node] = []
        self.simple(self.heredoc(node, depth, after))
        for child in after:
            self.tree.visit(child, depth + 1)

    def on_herestring_redirect(self, node: Node, depth: int) -> None:
        self.tree.gaps(node, apart=True)
        if [child.type for child in node.children if not child.is_named] != ["<<<"]:
            self.tree.unread()
        self.tree.value(node, depth)

    def redirect(self, node: Node, depth: int, bare: bool) -> list[Word]:
        """Add the part for the redirection, and return the words after its target, which belong to the command."""
        operator, words = "", list[Word]()
        self.tree.gaps(node, apart=True)
        for child in node.children:
            if child.is_missing or child.type == "ERROR":
                self.tree.visit(child, depth + 1)
            elif not child.is_named:
                if operator or child.type not in _REDIRECTS:
                    self.tree.unread()
                operator = operator or child.type
            elif child.type != "file_descriptor":
                self.tree.visit(child, depth + 1)
                words.append(word_of(child))
        if operator in (">&-", "<&-"):
            return words
        if not words:
            self.tree.unread()
            return []
        if operator in (">&", "<&") and words[0].text.startswith(b"-") and words[0].text != b"-":
            self.tree.unread("closes a descriptor, and the next text is a separate word")
        self.tree.parts.extend(redirection(operator, words[0], bare, self.context))
        return words[1:]

    def heredoc(self, node: Node, depth: int, after: list[Node]) -> list[Word]:
        """Return the words after ``<<END`` on its line, add the commands that run inside the text, and append those
        that follow on the line to ``after``."""
        extra: list[Word] = []
        self.tree.tokens(node)
        if not heredoc_is_plain(node, self.tree.source):
            self.tree.unread("a here-document whose end is not certain")
        at, last = node.start_byte, ""
        for child in node.children:
            kind = child.type
            if kind not in ("heredoc_body", "heredoc_end"):
                touching = child.start_byte == at and kind in WORDS and (last in WORDS or last.startswith("heredoc"))
                if touching or not BLANK_IN_LINE.match(self.tree.source, at, child.start_byte):
                    self.tree.unread("cannot be parsed after a here-document")
            at, last = child.end_byte, kind
            if kind == "file_redirect":
                extra += self.redirect(child, depth, bare=False)
            elif kind == "heredoc_body":
                if child.child_count:
                    self.tree.value(child, depth)
                elif not any(mark in (node.text or b"").partition(b"\n")[0] for mark in (b"'", b'"', b"\\")):
                    self.tree.text_of(child.text or b"")
            elif kind in LEAVES or kind in VALUES or kind == "expansion":
                self.tree.visit(child, depth + 1)
                extra.append(word_of(child))
            elif kind not in ("heredoc_start", "heredoc_end") and (child.is_named or child.is_missing):
                after.append(child)
        return extra

    def on_variable_assignment(self, node: Node, depth: int) -> None:
        name = node.child_by_field_name("name")
        self.tree.children(node, depth, strict=False)
        text = b"" if name is None else (name.text or b"").partition(b"[")[0]
        self.tree.gaps(node)
        if not _NAME.match(text) or any(
            not child.is_named and child.type not in ("=", "+=") for child in node.children
        ):
            self.tree.unread("an assignment to something that is not a variable")
        value = node.child_by_field_name("value")
        if value is not None and value.type not in WORDS and value.type != "process_substitution":
            self.tree.unread("sets a variable to something that is not a word")
        if value is not None and value.type == "array" and _ASSIGNS_IN_SUBSCRIPT.search(value.text or b""):
            self.tree.unread("a subscript that sets a variable")
        self.tree.numbers.assigned(text, value)
        self.keys_among([] if value is None else value.named_children if value.type == "array" else [value])
        word = UNKNOWN if value is None else word_of(value)
        harmless = is_harmless_value(text, word.text) and word.literal
        if runs_code(text) and not harmless and not (text == b"IFS" and _for_read(node)):
            self.tree.unread("sets a variable that decides what is run")
        elif node.parent is None or node.parent.type not in ("command", "declaration_command"):
            self.tree.parts.append(CommandPart((), True, ("read_only",), "sets a variable of the shell"))

    def on_variable_assignments(self, node: Node, depth: int) -> None:
        self.tree.children(node, depth)

    def on_declaration_command(self, node: Node, depth: int) -> None:
        words: list[Word] = [Word(node.children[0].type.encode())]
        self.tree.gaps(node, apart=True)
        for child in node.children[1:]:
            self.tree.visit(child, depth + 1)
            if child.type != "variable_assignment":
                words.append(word_of(child))
        if any(word.text.startswith(b"-") and {*b"nif"} & {*word.text[1:]} for word in words[1:]):
            self.tree.unread("declares names with special attributes")
        self.simple(words)

    def on_unset_command(self, node: Node, depth: int) -> None:
        self.on_declaration_command(node, depth)

    def on_function_definition(self, node: Node, depth: int) -> None:
        before = self.context
        name = node.child_by_field_name("name")
        self.functions.add(b"" if name is None else name.text or b"")
        for child in node.children:
            if (child.is_named or child.is_missing) and (name is None or child.id != name.id):
                self.tree.visit(child, depth + 1)
        self.tree.parts.append(CommandPart((), True, ("read_only",), "defines a function"))
        self.leave(node.type, before)

    def on_compound_statement(self, node: Node, depth: int) -> None:
        if node.children and node.children[0].type == "((":
            self.tree.on_arithmetic_expansion(node, depth)
            self.tree.parts.append(CommandPart((), True, ("read_only",), "calculates"))
        else:
            self.grouped(node, depth)

    def on_c_style_for_statement(self, node: Node, depth: int) -> None:
        before = self.context
        self.looped(node, lambda: self.counted(node, depth))
        self.leave(node.type, before)

    def counted(self, node: Node, depth: int) -> None:
        for child in node.children:
            if child.type in ("do_group", "compound_statement"):
                self.tree.visit(child, depth + 1)
            elif child.is_named or child.is_missing:
                self.tree.on_arithmetic_expansion(child, depth + 1)


# --- fallback scan for a command line that the parser could not fully read ---


_START = regex(
    rb"(?:\A|[;&|\n(`{!]|\b(?:do|then|else|if|while|until|time|in)\b)[ \t]*(?:\w+=\S{0,4096}[ \t]+)*"
    rb"([A-Za-z0-9_./+'\"\\-]+(?:[ \t]+[^ \t\n;&|()`<>]{1,4096}){0,64})"
)
_SCANNED_BYTES = 1 << 20
_MOST_STARTS = 500


def scan_line(line: bytes, context: CommandContext) -> tuple[CommandPart, ...]:
    """Return the parts that are destructive or reach past the sandbox, one for each reason."""
    parts_by_reason: dict[str, CommandPart] = {}
    for number, match in enumerate(_START.finditer(line, 0, _SCANNED_BYTES)):
        if number >= _MOST_STARTS:
            break
        words = [Word(word.translate(None, b"'\"\\")) for word in match[1].split()]
        if not words[0].text or b"\0" in match[1] or context.depth > 1:
            continue
        for part in context.words(words, context._replace(depth=context.depth + 2)):
            strict = [name for name in part.classes if name in ("destructive", "host_escape_risk")]
            if strict and part.reason not in parts_by_reason:
                # its paths are guessed, too: no aim is certain
                reason = part.reason + " (at a guess)"
                parts_by_reason[part.reason] = part._replace(complete=False, reason=reason, aims=(), otherwise=())
    return tuple(parts_by_reason.values())
