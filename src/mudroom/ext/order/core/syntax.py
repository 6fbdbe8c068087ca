"""Syntax trees of other languages than Python, by tree-sitter. The grammars are the extra ``languages``; a language
whose grammar is not installed has no tree, and nothing is proven of it.

A signature holds all of a text that means something: the shape of the tree, and each token. Two texts with one
signature differ in blanks, line ends between tokens, and comments only. It fails closed:

1. A text with an error in it has no signature, nor one in which anything but blanks lies between two tokens.
2. Texts inside texts (strings, templates, regular expressions, JSX, the arguments of Rust's macros) are one token.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache

from mudroom.core.tree.path import name
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language, Node

_GRAMMARS = {
    b"js": ("tree_sitter_javascript", "language"),
    b"mjs": ("tree_sitter_javascript", "language"),
    b"cjs": ("tree_sitter_javascript", "language"),
    b"jsx": ("tree_sitter_javascript", "language"),
    b"ts": ("tree_sitter_typescript", "language_typescript"),
    b"mts": ("tree_sitter_typescript", "language_typescript"),
    b"cts": ("tree_sitter_typescript", "language_typescript"),
    b"tsx": ("tree_sitter_typescript", "language_tsx"),
    b"go": ("tree_sitter_go", "language"),
    b"rs": ("tree_sitter_rust", "language"),
    b"java": ("tree_sitter_java", "language"),
}
_WHOLE = ("string", "template", "regex", "jsx", "char", "rune", "token_tree", "hash_bang")
"""Parts of the types of nodes that are one token."""
_DEEP = 400
"""Most nodes above a token. A deeper text has no signature."""


class Comment(NamedTuple):
    text: bytes
    line: int
    """From 0."""
    end: int
    """Line at which it ends."""


class Syntax(NamedTuple):
    signature: tuple[Hashable, ...]
    comments: tuple[Comment, ...]


class _Unclear(ValueError):
    """The text is not wholly understood."""


def has_grammar(path: bytes) -> bool:
    """Return whether a file's language is known and its grammar installed."""
    return _language(_ending(path)) is not None


def syntax_of(path: bytes, text: bytes) -> Syntax | None:
    """Return a text's syntax, or None if it is not wholly understood."""
    language = _language(_ending(path))
    if language is None:
        return None
    import tree_sitter

    root = tree_sitter.Parser(language).parse(text).root_node
    if root.has_error:
        return None
    signature: list[Hashable] = []
    comments: list[Comment] = []
    try:
        end = _add(root, text, 0, 0, signature, comments)
    except _Unclear:
        return None
    return Syntax(tuple(signature), tuple(comments)) if not text[end:].strip(b" \t\r\n") else None


def without_comments(path: bytes, text: bytes) -> bytes | None:
    """Return a text with blanks in the place of its comments, so that its lines stay where they are; None if the
    language's grammar is not installed. Where the text has errors, comments are those that the grammar found."""
    language = _language(_ending(path))
    if language is None:
        return None
    import tree_sitter

    result = bytearray(text)
    for node in _comments(tree_sitter.Parser(language).parse(text).root_node):
        for at in range(node.start_byte, node.end_byte):
            if result[at] not in b"\r\n":
                result[at] = 0x20
    return bytes(result)


def _comments(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        if "comment" in node.type:
            yield node
        else:
            pending += node.children


def _add(node: Node, text: bytes, end: int, depth: int, signature: list[Hashable], comments: list[Comment]) -> int:
    """Add a node, and return where it ends. ``end``: where the token before it ends."""
    if node.is_missing or depth > _DEEP:
        raise _Unclear
    kind = node.type
    if "comment" in kind:
        _require_blank(text, end, node.start_byte)
        last = node.end_point.row - (node.end_point.column == 0 and node.end_point.row > node.start_point.row)
        comments.append(Comment(text[node.start_byte : node.end_byte].rstrip(b"\n"), node.start_point.row, last))
        return node.end_byte
    if not node.child_count or any(part in kind for part in _WHOLE):
        if node.start_byte == node.end_byte and not kind.strip():
            return end
        token = text[node.start_byte : node.end_byte]
        if token.strip(b" \t\r\n") or node.is_named:
            _require_blank(text, end, node.start_byte)
            signature.append((kind, token))
            return node.end_byte
        signature.append((kind, b""))  # a line's end that ends a statement
        return max(end, node.end_byte)
    signature.append((kind, node.is_named))
    for child in node.children:
        end = _add(child, text, end, depth + 1, signature, comments)
    signature.append(None)
    return end


def _require_blank(text: bytes, start: int, end: int) -> None:
    if text[start:end].strip(b" \t\r\n"):
        raise _Unclear


def _ending(path: bytes) -> bytes:
    return name(path).lower().rpartition(b".")[2]


@cache
def _language(ending: bytes) -> Language | None:
    if ending not in _GRAMMARS:
        return None
    module, function = _GRAMMARS[ending]
    try:
        entry = getattr(__import__(module), function)
    except ModuleNotFoundError:
        return None  # the extra is not installed
    import tree_sitter

    return tree_sitter.Language(entry())
