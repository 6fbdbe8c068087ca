"""Blocks that are proven to change nothing: layout, comments, order of definitions, one local name. Pure.

A proof is made twice over whole texts, and both must hold: the old text with these blocks alone means what the old
text means; and the new text without them means what the new text means. Everything that is not proven is not dull: a
language without a grammar, a text with an error, a changed line that is not plain ASCII.

A comment that a tool, a compiler or a reader of the file may obey is code. No list of such comments is complete, so the
rule is the reverse: a comment is inert only if it is plain prose (``is_inert_comment``).
"""

from __future__ import annotations

import builtins
import io
import re
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mudroom.core.text.linediff import Block
from mudroom.core.tree.path import name
from mudroom.ext.order.core.syntax import Comment, has_grammar, syntax_of
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

LIMIT = 1 << 19
"""Bytes. Nothing is proven of a larger text."""
MOST_BLOCKS = 64
"""Changed blocks of a file of which a proof is tried."""
LAYOUT, COMMENTS, MOVED, IMPORTS = (
    "only the layout differs",
    "only comments differ",
    "only moved",
    "imports in another order",
)

Lines = Sequence[bytes]


class Meaning(NamedTuple):
    """Everything in a text that is not layout."""

    code: object
    comments: tuple[Comment, ...]


def prove(path: bytes, old: Lines, new: Lines, blocks: Sequence[Block]) -> dict[int, str]:
    """Return the dull blocks, by number, each with its proof in words."""
    read = _reader(path)
    size = max(sum(map(len, old)), sum(map(len, new)))
    if read is None or not old or not new or size > LIMIT or len(blocks) > MOST_BLOCKS:
        return {}
    if any(b"\r" in line for line in (*old, *new)):
        return {}  # a line's end for some readers, and none for others
    before, after = read(b"".join(old)), read(b"".join(new))
    if before is None or after is None:
        return {}
    plain = [number for number, block in enumerate(blocks) if _is_plain(old, new, block)]
    dull = {number: words for number in plain if (words := _alone(read, before, old, new, blocks, number))}
    rest = frozenset(range(len(blocks))) - dull.keys()
    if dull and not (
        _is_same(read(_with(old, new, blocks, dull)), before) and _is_same(read(_with(old, new, blocks, rest)), after)
    ):
        dull = {}
    rest = frozenset(range(len(blocks))) - dull.keys()
    if _is_python(path) and rest and rest <= set(plain) and all(_are_inert(side.comments) for side in (before, after)):
        words = _rearranged(b"".join(old), b"".join(new))
        dull |= dict.fromkeys(rest, words) if words else {}
    return dull


def _alone(read: _Read, before: Meaning, old: Lines, new: Lines, blocks: Sequence[Block], number: int) -> str:
    """Return the words of the proof that one block of the old text changes nothing; "" if it is none."""
    block = blocks[number]
    removed, added = old[block.old_start : block.old_end], new[block.new_start : block.new_end]
    if _squeezed(removed) != _squeezed(added):
        return ""  # most blocks end here
    after = read(_with(old, new, blocks, (number,)))
    if after is None or after.code != before.code:
        return ""
    near = _near(before.comments, block.old_start, block.old_end) + _near(
        after.comments, block.old_start, block.old_start + len(added)
    )
    if not _are_inert(near):
        return ""
    same = [comment.text for comment in before.comments] == [comment.text for comment in after.comments]
    return LAYOUT if same else COMMENTS


def _is_same(one: Meaning | None, other: Meaning) -> bool:
    return one is not None and one.code == other.code


def _near(comments: Iterable[Comment], start: int, end: int) -> list[Comment]:
    """Return the comments in these lines, and those beside them, which may be about them."""
    return [comment for comment in comments if comment.end >= start - 1 and comment.line <= end]


def _with(old: Lines, new: Lines, blocks: Sequence[Block], chosen: Iterable[int]) -> bytes:
    """Return the old text with these blocks changed."""
    wanted, lines, at = set(chosen), list[bytes](), 0
    for number, block in enumerate(blocks):
        lines += old[at : block.old_start]
        lines += new[block.new_start : block.new_end] if number in wanted else old[block.old_start : block.old_end]
        at = block.old_end
    return b"".join([*lines, *old[at:]])


def _is_plain(old: Lines, new: Lines, block: Block) -> bool:
    """Return whether all changed lines are ASCII without control characters, and end as other lines do."""
    lines = [*old[block.old_start : block.old_end], *new[block.new_start : block.new_end]]
    return all(line.endswith(b"\n") and _PLAIN.fullmatch(line) for line in lines)


_PLAIN = re.compile(rb"[\t\x20-\x7e]*\n")
_COMMENT = re.compile(rb"#.*|//.*|/\*.*?(?:\*/|$)|^\s*\*.*")
_WORD = re.compile(rb"\W+")


def _squeezed(lines: Lines) -> bytes:
    """Return what the lines keep in any layout: letters, digits and underscores outside comments, roughly."""
    return b"".join(_WORD.sub(b"", _COMMENT.sub(b"", line)) for line in lines)


# --- comments ---

_PROSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.;()'?_-]*")
_OBEYED = re.compile(
    r"(?i)noqa|nosec|nosonar|nopmd|nolint|nosemgrep|noinspection|nobuiltin|pragma|pylint|pyright|pytype|mypy|flake8|ruff|isort"
    r"|yapf|black|bandit|coverage|istanbul|eslint|jshint|jslint|tslint|biome|prettier|rustfmt|clippy|gofmt|cython"
    r"|distutils|doctest|webpack|vite|falls? ?through|checkstyle|formatter|spotless|sonar|vim|emacs|coding|encoding"
    r"|generated|modeline|codeql|semgrep|deprecated|include|disable|enable|ignore|suppress|skip|exclude|allow"
)
_FIRST = re.compile(
    r"(?i)(?:globals?|exported|export|import|go|line|build|jsx|flow|type|types?|region|endregion|fmt|c8|v8|ts|test|output|unordered|script)\b"
)
_MARKS = ("#", "//", "/*")


def is_inert_comment(text: bytes) -> bool:
    """Return whether a comment is plain prose that no tool obeys: words with commas and stops, a blank behind its mark,
    none of the words by which tools find their comments."""
    try:
        comment = text.decode("ascii").rstrip()
    except UnicodeDecodeError:
        return False
    mark = next((each for each in _MARKS if comment.startswith(each)), "")
    body = comment[len(mark) :]
    if mark == "/*":
        if not body.endswith("*/") or body.startswith(("*", "!")):
            return False
        body = body[:-2]
    lines = [line.strip().removeprefix("* ") if mark == "/*" else line for line in body.split("\n")]
    if mark != "/*" and lines != [""] and not (lines[0].startswith(" ") and not lines[0].startswith("  ")):
        return not lines[0].strip()
    return bool(mark) and all(map(_is_prose, lines))


def _is_prose(line: str) -> bool:
    text = line.strip()
    return text in ("", "*") or bool(_PROSE.fullmatch(text) and not _OBEYED.search(text) and not _FIRST.match(text))


def _are_inert(comments: Iterable[Comment]) -> bool:
    return all(is_inert_comment(comment.text) for comment in comments)


# --- languages ---

_Read = Callable[[bytes], Meaning | None]


def _is_python(path: bytes) -> bool:
    return name(path).lower().endswith((b".py", b".pyi"))


def _reader(path: bytes) -> _Read | None:
    if _is_python(path):
        return _read_python
    if not has_grammar(path):
        return None

    def read(text: bytes) -> Meaning | None:
        is_obeyed = path.endswith(b".go") and (b'import "C"' in text or path.endswith(b"_test.go"))
        syntax = None if is_obeyed or (b"\\u" in text and path.endswith(b".java")) else syntax_of(path, text)
        return Meaning(syntax.signature, syntax.comments) if syntax is not None else None

    return read


_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=]")
"""PEP 263."""


def _read_python(text: bytes) -> Meaning | None:
    """Return a module's meaning; None if it does not parse, names an encoding, or has metadata in comments.

    Sources: PEP 263, PEP 723."""
    import ast

    head = text.split(b"\n", 2)[:2]
    if any(_COOKIE.match(line) for line in head) or b"# ///" in text or b"\f" in text or b"\0" in text:
        return None
    tree = parsed(text)
    if tree is None:
        return None
    try:
        tokens = tokenize.generate_tokens(io.StringIO(text.decode(), newline="").readline)
        comments = tuple(
            Comment(token.string.encode(), token.start[0] - 1, token.end[0] - 1)
            for token in tokens
            if token.type == tokenize.COMMENT
        )
        return Meaning(ast.dump(tree), comments)
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError, RecursionError):
        return None


def parsed(text: bytes) -> ast.Module | None:
    """Return a text's syntax tree, or None if Python cannot read it."""
    import ast

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the texts, not of this program
            return ast.parse(text, type_comments=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# --- Python: the same parts in another order, or one local name renamed ---


def _rearranged(old: bytes, new: bytes) -> str:
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return ""
    return _moved(before, after) or _renamed(before, after)


def _moved(before: ast.Module, after: ast.Module) -> str:
    """Return words if both modules have the same statements, and each two that changed places may do so: plain
    functions with different names, or imports of the standard library."""
    words: dict[str, None] = {}
    return ", ".join(words) if _permuted(before, after, words) and words else ""


def _permuted(before: ast.AST, after: ast.AST, words: dict[str, None]) -> bool:
    import ast

    old, new = _body(before), _body(after)
    keys = [ast.dump(node) for node in old], [ast.dump(node) for node in new]
    if Counter(keys[0]) == Counter(keys[1]):
        if len(set(keys[0])) < len(keys[0]):
            return keys[0] == keys[1]
        places = {key: place for place, key in enumerate(keys[1])}
        order = [places[key] for key in keys[0]]
        turned = [(old[i], old[j]) for j in range(len(order)) for i in range(j) if order[i] > order[j]]
        for one, other in turned:
            word = _may_turn(one, other, old)
            if not word:
                return False
            words[word] = None
        return True
    if len(old) != len(new):
        return False
    for one, other in zip(old, new, strict=True):  # the difference is inside a class
        if ast.dump(one) == ast.dump(other):
            continue
        if not (isinstance(one, ast.ClassDef) and isinstance(other, ast.ClassDef) and _head(one) == _head(other)):
            return False
        if _head(one) != (one.name,):
            return False  # a metaclass or a decorator may see the order
        if not _permuted(one, other, words):
            return False
    return True


def _body(node: ast.AST) -> list[ast.stmt]:
    body: list[ast.stmt] = getattr(node, "body", [])
    return body


def _head(node: ast.ClassDef) -> tuple[object, ...]:
    import ast

    return node.name, *(ast.dump(each) for each in (*node.bases, *node.keywords, *node.decorator_list))


def _may_turn(one: ast.stmt, other: ast.stmt, among: Sequence[ast.stmt]) -> str:
    import ast

    if _is_plain_function(one) and _is_plain_function(other):
        names = [each.name for each in (one, other) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        bound = Counter(name for statement in among for name in _bound(statement))
        is_test = any("test" in each.lower() for each in names)  # they run in their order
        return MOVED if all(bound[each] == 1 for each in names) and not is_test else ""
    modules = [_library_modules(each) for each in (one, other)]
    if all(modules):
        names = [name for each in (one, other) for name in _bound(each)]
        return IMPORTS if len(names) == len(set(names)) else ""
    return ""


def _is_plain_function(node: ast.stmt) -> bool:
    """Return whether running the definition does nothing but to bind its name."""
    import ast

    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
        return False
    arguments = node.args
    values = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    notes = [each.annotation for each in every if each is not None and each.annotation is not None]
    notes += [node.returns] if node.returns is not None else []
    return all(isinstance(each, ast.Constant) for each in (*values, *notes)) and not getattr(node, "type_params", ())


_LOUD = frozenset(
    ("antigravity", "this", "readline", "site", "__future__", "rlcompleter", "sitecustomize", "usercustomize")
)
"""Modules whose import does more than to define names."""


def _library_modules(node: ast.stmt) -> list[str]:
    """Return the modules that a statement imports, if all are of the standard library; else nothing."""
    import ast

    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level and all(alias.name != "*" for alias in node.names):
        modules = [node.module or ""]
    else:
        return []
    tops = [module.partition(".")[0] for module in modules]
    return modules if all(top in sys.stdlib_module_names and top not in _LOUD for top in tops) else []


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds in its own body, nested statements included."""
    import ast

    names: list[str] = []
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(each.name)
        elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            names.append(each.id)
        elif isinstance(each, ast.alias):
            names.append((each.asname or each.name).partition(".")[0])
        else:
            kept = getattr(each, "rest" if isinstance(each, ast.MatchMapping) else "name", None)
            names += [kept] if isinstance(kept, str) else []  # except … as name, case … as name
            pending += ast.iter_child_nodes(each)
    return names


_LOOKS = frozenset(
    ("locals", "vars", "eval", "exec", "dir", "globals", "compile", "__builtins__", "super", "__class__")
)
"""Names through which code sees the names of local variables."""


def _renamed(before: ast.Module, after: ast.Module) -> str:
    """Return words if one local variable of one function has another name, everywhere, and nothing else differs."""
    import ast

    pair = _differing_functions(before, after)
    if pair is None:
        return ""
    one, other = pair
    old_names, new_names = ([node.id for node in ast.walk(each) if isinstance(node, ast.Name)] for each in pair)
    names = {(a, b) for a, b in zip(old_names, new_names, strict=False) if a != b}
    if len(names) != 1:
        return ""
    old, new = names.pop()
    used = _words(before)
    if new in used or old in _words_of(other) or new in vars(builtins) or not _LOOKS.isdisjoint(old_names):
        return ""
    if any(isinstance(node, ast.ClassDef | ast.Global | ast.Nonlocal) for node in ast.walk(one)):
        return ""
    if old not in _stored(one) or any(isinstance(node, ast.arg) and node.arg == old for node in ast.walk(one)):
        return ""
    for node in ast.walk(one):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return f"{old} is {new} now, a local name, in all places" if ast.dump(one) == ast.dump(other) else ""


def _differing_functions(before: ast.AST, after: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    """Return the outermost two functions in which two trees differ, if they differ in nothing else."""
    import ast

    old, new = _body(before), _body(after)
    if len(old) != len(new):
        return None
    differing = [pair for pair in zip(old, new, strict=True) if ast.dump(pair[0]) != ast.dump(pair[1])]
    if len(differing) != 1:
        return None
    one, other = differing[0]
    if isinstance(one, ast.ClassDef) and isinstance(other, ast.ClassDef) and _head(one) == _head(other):
        return _differing_functions(one, other)
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return (one, other) if isinstance(one, functions) and isinstance(other, functions) else None


def _stored(function: ast.AST) -> set[str]:
    """Return the names that a function itself binds, not those of functions in it."""
    import ast

    stored: set[str] = set()
    pending = list[ast.AST](_body(function))
    while pending:
        node = pending.pop()
        if isinstance(
            node,
            ast.FunctionDef
            | ast.AsyncFunctionDef
            | ast.Lambda
            | ast.ListComp
            | ast.SetComp
            | ast.DictComp
            | ast.GeneratorExp,
        ):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored.add(node.id)
        pending += ast.iter_child_nodes(node)
    return stored


def _words(tree: ast.AST) -> set[str]:
    """Return each name and text in a tree."""
    import ast

    return {
        value
        for node in ast.walk(tree)
        for _field, field in ast.iter_fields(node)
        for value in (field if isinstance(field, list) else [field])
        if isinstance(value, str)
    }


def _words_of(function: ast.AST) -> set[str]:
    return _words(function)
