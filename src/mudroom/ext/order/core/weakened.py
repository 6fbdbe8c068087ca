"""Checks that say less than before: tests, and lines by which CI and tools check the rest. Pure.

Python's tests are read as syntax trees, those of JavaScript, TypeScript, Go, Rust and Java by their lines without
comments. A finding is a reason to look, no verdict: a changed expectation may be the purpose of the change.

1. A test is known by its name. A new name with the old body is no deleted test.
2. Assertions of a test are compared as a bag. An assertion that runs only under a condition is none.
3. A replaced assertion is weaker if its form says less (``_strictness``), its tolerance is wider, or it expects another
   value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from mudroom.core.text.linediff import Block
from mudroom.core.text.plural import counted
from mudroom.core.text.table import read_table
from mudroom.core.tree.path import name
from mudroom.ext.order.core.dull import parsed
from mudroom.ext.order.core.kind import kind_of
from mudroom.ext.order.core.syntax import without_comments
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

Lines = Sequence[bytes]
LIMIT = 1 << 19
"""Bytes. Tests in a larger text are not read."""


class Weakening(NamedTuple):
    reason: str
    old: range = range(0)
    """The lines that it is about, from 0."""
    new: range = range(0)


def weakened(path: bytes, old: Lines, new: Lines, blocks: Sequence[Block]) -> dict[int, tuple[str, ...]]:
    """Return the reasons by changed block."""
    findings = list(_by_lines(old, new, blocks))
    is_small = max(sum(map(len, old)), sum(map(len, new))) <= LIMIT
    last = name(path).lower()
    kind = kind_of(path)
    if is_small and last.endswith(b".py") and (kind == "tests" or any(b"def test" in line for line in old)):
        is_read = parsed(b"".join(old)) is not None
        findings += _python(b"".join(old), b"".join(new)) if is_read else _other(path, old, new, "python")
    elif is_small and (language := _language(last)):
        findings += _other(path, old, new, language)
    reasons: dict[int, dict[str, None]] = {}
    for finding in findings:
        for number in _blocks_of(finding, blocks):
            reasons.setdefault(number, {})[finding.reason] = None
    if kind == "snapshots" and old:
        for number, block in enumerate(blocks):
            if block.old_end > block.old_start:
                reasons.setdefault(number, {})["a snapshot is rewritten"] = None
    return {number: tuple(words) for number, words in reasons.items()}


def _blocks_of(finding: Weakening, blocks: Sequence[Block]) -> list[int]:
    touched = [
        number
        for number, block in enumerate(blocks)
        if _meet(finding.old, block.old_start, block.old_end) or _meet(finding.new, block.new_start, block.new_end)
    ]
    if touched or not blocks:
        return touched[:1] if finding.old or finding.new else touched
    at = finding.new.start if finding.new else finding.old.start
    place = 2 if finding.new else 0
    return [min(range(len(blocks)), key=lambda number: abs(blocks[number][place] - at))]


def _meet(lines: range, start: int, end: int) -> bool:
    return bool(lines) and lines.start < end and start < lines.stop


# --- lines of any file ---


class _LineRow(NamedTuple):
    reason: str
    is_added: bool
    pattern: re.Pattern[str]


@cache
def _rows() -> tuple[_LineRow, ...]:
    rows = (row.split(" | ", 2) for row in read_table("weakened_checks"))
    return tuple(_LineRow(reason, where == "added", re.compile(pattern.strip())) for reason, where, pattern in rows)


_THRESHOLD = re.compile(
    r"""(?i)^\s*["']?[\w.-]*(?:fail[_-]under|threshold|min[_-]?coverage|branches|functions|lines|statements)["']?\s*[:=]\s*"""
    r"""["']?(\d+(?:\.\d+)?)|--(?:cov-)?fail-under[= ](\d+(?:\.\d+)?)"""
)
_WIDEST = 2_000


def _by_lines(old: Lines, new: Lines, blocks: Sequence[Block]) -> Iterator[Weakening]:
    removed = {line.strip() for block in blocks for line in old[block.old_start : block.old_end]}
    added = {line.strip() for block in blocks for line in new[block.new_start : block.new_end]}
    for block in blocks:
        before = [_text(line) for line in old[block.old_start : block.old_end]]
        for at in range(block.new_start, block.new_end):
            line = _text(new[at])
            if new[at].strip() in removed:
                continue
            for row in _rows():
                if row.is_added and row.pattern.search(line) and not any(map(row.pattern.search, before)):
                    yield Weakening(row.reason, new=range(at, at + 1))
        after = [_text(line) for line in new[block.new_start : block.new_end]]
        for at in range(block.old_start, block.old_end):
            line = _text(old[at])
            if old[at].strip() in added or line.lstrip().startswith(("#", "//")):
                continue
            for row in _rows():
                match = row.pattern.search(line) if not row.is_added else None
                if match is not None and not any(_names(row, match[0], text) for text in after):
                    yield Weakening(row.reason, old=range(at, at + 1))
        pairs = zip(_thresholds(before), _thresholds(after), strict=False)
        if any(high > low for high, low in pairs):
            yield Weakening("a threshold is lower", new=range(block.new_start, block.new_end))


def _names(row: _LineRow, word: str, text: str) -> bool:
    """Return whether a line that is no comment still runs the same."""
    return (
        not text.lstrip().startswith(("#", "//"))
        and word.strip(" \t\"'&;|:,") in text
        and bool(row.pattern.search(text))
    )


def _thresholds(lines: Iterable[str]) -> list[float]:
    return [float(match[1] or match[2]) for line in lines if (match := _THRESHOLD.search(line)) is not None]


def _text(line: bytes) -> str:
    return line[:_WIDEST].decode("utf-8", "replace").rstrip("\r\n")


# --- Python ---

_SKIPS = re.compile(r"\b(?:skip\w*|xfail|expectedFailure|importorskip|SkipTest|flaky|no_cover)\b")
_WIDE = frozenset(("Exception", "BaseException"))


class _Assertion(NamedTuple):
    text: str
    node: ast.AST
    lines: range
    is_sure: bool
    """Whether it runs whenever its test does."""


class _Test(NamedTuple):
    node: ast.FunctionDef | ast.AsyncFunctionDef
    assertions: tuple[_Assertion, ...]
    skips: Mapping[str, range]
    cases: int
    """Cases of ``parametrize``."""
    body: str

    @property
    def lines(self) -> range:
        return _lines(self.node)


def _lines(node: ast.AST) -> range:
    first = min((each.lineno for each in getattr(node, "decorator_list", ())), default=getattr(node, "lineno", 1))
    return range(min(first, getattr(node, "lineno", 1)) - 1, getattr(node, "end_lineno", None) or 1)


def _python(old: bytes, new: bytes) -> Iterator[Weakening]:
    before, after = parsed(old), parsed(new)
    if before is None:
        return
    if after is None:
        yield Weakening("the tests cannot be read any more", new=range(1))
        return
    tests = _tests(before), _tests(after)
    yield from _whole_module(before, after)
    fresh = {test.body for key, test in tests[1].items() if key not in tests[0] and _is_test(key)}
    for key, test in tests[0].items():
        if key in tests[1]:
            yield from _compared(key, test, tests[1][key])
        elif _is_test(key) and test.body not in fresh:
            yield Weakening(f"{key} is deleted", old=test.lines)


def _is_test(key: str) -> bool:
    return key.rpartition(".")[2].startswith("test")


def _whole_module(before: ast.Module, after: ast.Module) -> Iterator[Weakening]:
    """Findings about marks of modules and classes, and about a test that another of its name hides."""
    import ast

    marks = [
        {
            ast.unparse(node): _lines(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and any(
                isinstance(each, ast.Name) and each.id in ("pytestmark", "__test__", "collect_ignore")
                for each in node.targets
            )
        }
        for tree in (before, after)
    ]
    for text, lines in marks[1].items():
        if text not in marks[0] and (_SKIPS.search(text) or "pytestmark" not in text):
            yield Weakening("a whole module or class is skipped", new=lines)
    counts = [Counter(key for key, _lines_of in _places(tree)) for tree in (before, after)]
    for key, lines in _places(after):
        if counts[1][key] > 1 and counts[0][key] == 1:
            yield Weakening(f"{key} is defined twice: the first is not run", new=lines)


def _places(tree: ast.Module) -> Iterator[tuple[str, range]]:
    import ast

    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                pending.append((f"{prefix}{child.name}.", child))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test"):
                yield prefix + child.name, _lines(child)


def _tests(tree: ast.Module) -> dict[str, _Test]:
    """Return the functions of a module of tests by their names, those of classes with the class's."""
    import ast

    tests: dict[str, _Test] = {}
    pending: list[tuple[str, ast.AST, dict[str, range]]] = [("", tree, {})]
    while pending:
        prefix, node, inherited = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                pending.append((f"{prefix}{child.name}.", child, inherited | _marks(child)))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                tests[prefix + child.name] = _test(child, inherited)
            elif isinstance(child, ast.If | ast.Try | ast.With):
                pending.append((prefix, child, inherited))
    return tests


def _marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, range]:
    import ast

    texts = ((ast.unparse(each), each) for each in node.decorator_list)
    return {text: _lines(each) for text, each in texts if _SKIPS.search(text)}


def _test(node: ast.FunctionDef | ast.AsyncFunctionDef, inherited: Mapping[str, range]) -> _Test:
    import ast

    skips = {**inherited, **_marks(node)}
    assertions: list[_Assertion] = []
    pending: list[tuple[ast.AST, bool]] = [(each, True) for each in reversed(node.body)]
    ended = False
    while pending:
        each, is_sure = pending.pop()
        if isinstance(each, ast.Return) and is_sure and not ended:
            ended = True
        text = _assertion_text(each)
        if text:
            assertions.append(_Assertion(text, each, _lines(each), is_sure and not ended))
        if isinstance(each, ast.Call) and _SKIPS.search(called := ast.unparse(each.func)):
            skips[f"{called}()"] = _lines(each)
        is_open = isinstance(each, ast.With | ast.AsyncWith) and "suppress" not in ast.unparse(each.items[0])
        is_block = isinstance(each, ast.stmt) and any(
            True for field in ("body", "orelse", "handlers") if getattr(each, field, None)
        )
        inner = is_sure and (is_open or not is_block)
        pending += [(child, inner) for child in reversed(list(ast.iter_child_nodes(each)))]
    cases = sum(
        len(argument.elts)
        for mark in node.decorator_list
        if isinstance(mark, ast.Call)
        for argument in mark.args[1:]
        if isinstance(argument, ast.List | ast.Tuple)
    )
    body = "\n".join(ast.dump(each) for each in node.body)
    return _Test(node, tuple(assertions), skips, cases, body)


_EXPECTING = frozenset(("raises", "warns", "deprecated_call", "fail"))


def _assertion_text(node: ast.AST) -> str:
    """Return an assertion as text, without its message; "" for another node."""
    import ast

    if isinstance(node, ast.Assert):
        return ast.unparse(node.test)
    if isinstance(node, ast.Call):
        function = node.func
        last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if last.lower().startswith("assert") or last in _EXPECTING:
            return ast.unparse(node)
    return ""


def _compared(key: str, old: _Test, new: _Test) -> Iterator[Weakening]:
    for text, lines in new.skips.items():
        if text not in old.skips:
            yield Weakening(f"{key} is skipped, or may fail", new=lines)
            break
    if old.cases > new.cases > 0 or (old.cases and not new.cases and old.assertions):
        yield Weakening(f"{key} has fewer cases", old=old.lines)
    gone, fresh = _without(old.assertions, new.assertions), _without(new.assertions, old.assertions)
    sure = [[each for each in test.assertions if each.is_sure] for test in (old, new)]
    texts = {each.text for each in gone}
    for each in [each for each in _without(*sure) if each.text not in texts][:1]:
        yield Weakening(f"{key} asserts only under a condition", old=each.lines, new=_place_of(each.text, new))
    pairs, lost = _paired(gone, fresh)
    if lost:
        yield Weakening(f"{key} has {counted(len(lost), 'assertion')} fewer", old=lost[0].lines)
    for before, after in pairs:
        reason = _loosened(before, after)
        if reason:
            yield Weakening(f"{key}: {reason}", old=before.lines, new=after.lines)


def _place_of(text: str, test: _Test) -> range:
    return next((each.lines for each in test.assertions if each.text == text), range(0))


def _without(some: Iterable[_Assertion], others: Iterable[_Assertion]) -> list[_Assertion]:
    left = Counter(each.text for each in others)
    rest: list[_Assertion] = []
    for each in some:
        if left[each.text]:
            left[each.text] -= 1
        else:
            rest.append(each)
    return rest


def _paired(
    gone: Sequence[_Assertion], fresh: Sequence[_Assertion]
) -> tuple[list[tuple[_Assertion, _Assertion]], list[_Assertion]]:
    """Return the assertions that replace each other, the most alike first, and those without a successor."""
    left, pairs, lost = list(fresh), list[tuple[_Assertion, _Assertion]](), list[_Assertion]()
    for each in gone:
        words = set(re.findall(r"\w+", each.text))
        best = max(left, key=lambda other: len(words & set(re.findall(r"\w+", other.text))), default=None)
        if best is None:
            lost.append(each)
        else:
            left.remove(best)
            pairs.append((each, best))
    return pairs, lost


def _loosened(old: _Assertion, new: _Assertion) -> str:
    """Return why the new assertion says less, or another thing; "" if that is not seen."""
    before, after = _strictness(old.node), _strictness(new.node)
    if _width(new.node) > _width(old.node):
        return "a wider exception is expected"
    if after == 0:
        return "an assertion that is always true"
    if after < before:
        return "an assertion says less"
    tolerances = _tolerances(old.node), _tolerances(new.node)
    if tolerances[0] and any(tolerances[1].get(key, 0.0) > value for key, value in tolerances[0].items()):
        return "a tolerance is wider"
    return _other_value(old.node, new.node)


def _strictness(node: ast.AST) -> float:
    """Return how much the form of an assertion says: 3 for equality, 0 for what is always true."""
    import ast

    if isinstance(node, ast.Assert):
        return _strictness(node.test)
    if isinstance(node, ast.Constant):
        return 0
    if isinstance(node, ast.BoolOp):
        values = [_strictness(each) for each in node.values]
        return max(values) if isinstance(node.op, ast.And) else 0 if 0 in values else min(values) - 0.25
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return 1.5
    if isinstance(node, ast.Compare):
        return _strictness_of_comparison(node)
    if isinstance(node, ast.Call):
        function = node.func
        last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if last in ("assertTrue", "assertFalse") and node.args:
            return _strictness(node.args[0]) if isinstance(node.args[0], ast.Constant | ast.Compare | ast.BoolOp) else 1
        if last.startswith(
            ("assertEqual", "assertIs", "assertList", "assertDict", "assertSet", "assertTuple", "assertCount")
        ):
            return 1 if last in ("assertIsNotNone", "assertIsInstance", "assertIsNot") else 3
        if last.startswith(("assertRaises", "assertWarns", "assert_")) or last in _EXPECTING:
            return 3
        return 2.5 if "lmost" in last or "close" in last else 2 if last.startswith("assert") or last == "all" else 1
    return 1


def _strictness_of_comparison(node: ast.Compare) -> float:
    import ast

    operator, right = node.ops[0], node.comparators[0]
    if ast.dump(node.left) == ast.dump(right) or (
        isinstance(node.left, ast.Constant) and isinstance(right, ast.Constant)
    ):
        return 0
    if isinstance(operator, ast.Eq | ast.Is):
        return 2.5 if re.search(r"\b(?:approx|ANY)\b|isclose", ast.unparse(node)) else 3
    if isinstance(operator, ast.In):
        return 2
    return 1 if isinstance(operator, ast.NotEq | ast.IsNot) else 1.5


def _width(node: ast.AST) -> int:
    """Return how wide the expected exception is; 0 if none is expected."""
    import ast

    call = node if isinstance(node, ast.Call) else None
    if call is None or not call.args:
        return 0
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if not last.startswith(("raises", "warns", "assertRaises", "assertWarns")):
        return 0
    expected = call.args[0]
    names = (
        [ast.unparse(each) for each in expected.elts] if isinstance(expected, ast.Tuple) else [ast.unparse(expected)]
    )
    is_wide = not _WIDE.isdisjoint(names)
    is_matched = any(keyword.arg == "match" for keyword in call.keywords) or last.endswith("Regex")
    return 1 + 4 * is_wide + 2 * (len(names) > 1) + (not is_matched)


_TOLERANCES = ("rel", "abs", "rtol", "atol", "delta", "rel_tol", "abs_tol", "tolerance", "places", "decimal")


def _tolerances(node: ast.AST) -> dict[str, float]:
    """Return the tolerances in an assertion by their names; a number of digits as its negative."""
    import ast

    found: dict[str, float] = {}
    for call in ast.walk(node):
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            if keyword.arg in _TOLERANCES and isinstance(keyword.value, ast.Constant):
                value = keyword.value.value
                if isinstance(value, int | float):
                    found[keyword.arg] = -value if keyword.arg in ("places", "decimal") else value
    return found


def _other_value(old: ast.AST, new: ast.AST) -> str:
    """Return words if both are the same comparison with another constant."""
    import ast

    old, new = (each.test if isinstance(each, ast.Assert) else each for each in (old, new))
    if isinstance(old, ast.Compare) and isinstance(new, ast.Compare):
        sides: list[tuple[ast.expr, ast.AST, ast.expr]]
        sides = [(each.left, each.ops[0], each.comparators[0]) for each in (old, new)]
    elif isinstance(old, ast.Call) and isinstance(new, ast.Call) and len(old.args) == len(new.args) >= 2:
        sides = [(each.args[0], each.func, each.args[1]) for each in (old, new)]
    else:
        return ""
    (left, operator, right), (new_left, new_operator, new_right) = sides
    if ast.dump(operator) != ast.dump(new_operator):
        return ""
    if ast.dump(left) == ast.dump(new_left):
        was, now = right, new_right
    elif ast.dump(right) == ast.dump(new_right):
        was, now = left, new_left
    else:
        return ""
    try:
        values = ast.literal_eval(was), ast.literal_eval(now)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ""
    if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        try:
            grows = values[1] > values[0]
        except TypeError:
            return ""
        is_upper = isinstance(operator, ast.Lt | ast.LtE) == (was is right)
        return "a bound is wider" if grows == is_upper else ""
    return "another value is expected"


# --- JavaScript, TypeScript, Go, Rust and Java, by their lines without comments ---


class _Words(NamedTuple):
    test: re.Pattern[str]
    """The declaration of a test; its last group is the name."""
    assertion: re.Pattern[str]
    skip: re.Pattern[str]
    loose: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    """An assertion, and one that says less."""


def _loose(*pairs: tuple[str, str]) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple((re.compile(strict), re.compile(loose)) for strict, loose in pairs)


_LANGUAGES: Mapping[str, _Words] = {
    "python": _Words(  # of texts that this Python cannot read
        re.compile(r"^\s*def\s+(test\w*)\s*\("),
        re.compile(r"^\s*assert\b|\.assert\w+\s*\(|\braises\s*\("),
        re.compile(r"^\s*@.*\b(?:skip\w*|xfail)\b|\bskip\s*\("),
        _loose((r"\bassert\b.*==", r"\bassert\b(?!.*==)")),
    ),
    "js": _Words(
        re.compile(r"""\b[xf]?(?:it|test|specify)(?:\.\w+)*\s*\(\s*(["'`])(.*?)\1"""),
        re.compile(r"\b(?:expect|assert|should)\b[\w.]*\s*\(|\.should\."),
        re.compile(
            r"\b(?:it|test|describe|context|suite)\.(?:skip|only|todo|fixme|fails|failing|skipIf|runIf)\b"
            r"|\b[xf](?:it|describe|test|context)\s*\(|\bthis\.skip\(|\btest\.setTimeout\("
        ),
        _loose(
            (
                r"\.(?:toBe|toEqual|toStrictEqual|toMatchSnapshot|toMatchInlineSnapshot|deepEqual|strictEqual|deepStrictEqual|equal)\(",
                r"\.(?:toBeTruthy|toBeDefined|toContain|toMatchObject|toMatch|toBeInstanceOf|toBeCloseTo|toBeGreaterThan\w*|"
                r"toBeLessThan\w*|toHaveProperty|ok|exists?)\(|\.not\.|\bexpect\.(?:anything|any)\b",
            ),
            (
                r"\.(?:toThrow|toThrowError|throws|rejects)\((?!\s*\))",
                r"\.(?:toThrow|toThrowError|throws)\(\s*\)|\.not\.toThrow",
            ),
            (r"\.toHaveBeenCalledWith\(|\.toHaveBeenCalledTimes\(", r"\.toHaveBeenCalled\("),
        ),
    ),
    "go": _Words(
        re.compile(r"^func\s+((?:Test|Fuzz|Example)\w*)\s*\("),
        re.compile(r"\bt\.(?:Fatal|Error|Fail)\w*\(|\b(?:assert|require)\.\w+\(|^\s*if\s.*[!=]="),
        re.compile(r"\b[tbf]\.Skip(?:f|Now)?\(|^\s*//go:build\s+ignore"),
        _loose(
            (r"\b(?:assert|require)\.(?:Equal|Exactly|ErrorIs|EqualError|JSONEq|ElementsMatch)",
             r"\b(?:assert|require)\.(?:NotNil|NotEmpty|True|Contains|Error|NoError|InDelta|NotEqual)\("),
            (r"\bt\.(?:Fatal|Error)f?\(", r"\bt\.Logf?\("),
        ),
    ),
    "rust": _Words(
        re.compile(r"^\s*(?:pub\s+)?(?:async\s+)?fn\s+(test\w*|\w+_test|it_\w+|should_\w+)\s*\("),
        re.compile(r"\b(?:assert|assert_eq|assert_ne|debug_assert\w*|assert_matches|panic|prop_assert\w*)!"),
        re.compile(r"#\[ignore|#\[cfg\((?:any\(\))?FALSE|#\[cfg\(not\(test"),
        _loose(
            (r"\bassert_eq!", r"\bassert!|\bassert_ne!"),
            (r"#\[should_panic\(expected", r"#\[should_panic\]"),
        ),
    ),
    "java": _Words(
        re.compile(r"\bvoid\s+(test\w*|should\w*|\w+Test)\s*\("),
        re.compile(r"\b(?:assert\w*|verify|fail)\s*\("),
        re.compile(r"@(?:Disabled|Ignore)\b|\bassume(?:True|False|That)\s*\("),
        _loose(
            (r"\bassert(?:Equals|ArrayEquals|Same|IterableEquals)\s*\(|\.isEqualTo\(",
             r"\bassert(?:NotNull|True|False|NotEquals|InstanceOf)\s*\(|\.is(?:NotNull|NotEmpty|True|InstanceOf)\("),
            (r"\bexpected\s*=\s*(?!Exception\b|Throwable\b)\w+|assertThrows\(\s*(?!Exception\b|Throwable\b)\w+",
             r"\bexpected\s*=\s*(?:Exception|Throwable)\b|assertThrows\(\s*(?:Exception|Throwable)\b"),
        ),
    ),
}  # fmt: skip
_ENDINGS = {"js": b"js jsx mjs cjs ts tsx mts cts", "go": b"go", "rust": b"rs", "java": b"java kt"}
_BY_ENDING = {ending: language for language, endings in _ENDINGS.items() for ending in endings.split()}
_NEVER = re.compile(r"\bif\s*\(?\s*(?:false|0)\s*\)?\s*\{")


def _language(last: bytes) -> str:
    return _BY_ENDING.get(last.rpartition(b".")[2], "")


def _other(path: bytes, old: Lines, new: Lines, language: str) -> Iterator[Weakening]:
    words = _LANGUAGES[language]
    sides = [_code(path, lines) for lines in (old, new)]
    if not any(words.test.search(line) for line in sides[0]) and kind_of(path) != "tests":
        return
    gone, fresh = (_rest(sides[one], sides[1 - one]) for one in (0, 1))
    for at, line in fresh:
        if words.skip.search(line) and not any(words.skip.search(each) for _at, each in gone):
            yield Weakening("a test is skipped, or others are", new=range(at, at + 1))
        if _NEVER.search(line):
            yield Weakening("assertions that never run", new=range(at, at + 1))
    names = {match[match.lastindex or 0] for line in sides[1] if (match := words.test.search(line))}
    fresh_names = [match for _at, line in fresh if (match := words.test.search(line))]
    for at, line in gone:
        match = words.test.search(line)
        if match is not None and match[match.lastindex or 0] not in names and not fresh_names:
            yield Weakening(f"{_name_of(match)} is deleted", old=range(at, at + 1))
    lost, made = ([row for row in rows if words.assertion.search(row[1])] for rows in (gone, fresh))
    if len(lost) > len(made):
        yield Weakening(f"{counted(len(lost) - len(made), 'assertion')} fewer", old=range(lost[0][0], lost[0][0] + 1))
    for strict, loose in words.loose:
        was = [row for row in gone if strict.search(row[1]) and not loose.search(row[1])]
        now = [row for row in fresh if loose.search(row[1])]
        if was and now and len([row for row in fresh if strict.search(row[1])]) < len(was):
            yield Weakening(
                "an assertion says less", old=range(was[0][0], was[0][0] + 1), new=range(now[0][0], now[0][0] + 1)
            )
    for (at, line), (place, other) in zip(lost, made, strict=False):
        if _expected(line) != _expected(other) and _unexpected(line) == _unexpected(other):
            yield Weakening("another value is expected", old=range(at, at + 1), new=range(place, place + 1))


_VALUE = re.compile(r"""(["'`])(?:\\.|(?!\1).)*\1|\b\d[\w.]*\b|\b(?:true|false|null|nil|None)\b""")


def _expected(line: str) -> list[str]:
    return [match[0] for match in _VALUE.finditer(line)]


def _unexpected(line: str) -> str:
    return "".join(_VALUE.sub("_", line).split())


def _name_of(match: re.Match[str]) -> str:
    return " ".join("".join(each if each.isprintable() else "?" for each in match[match.lastindex or 0]).split())[:60]


def _code(path: bytes, lines: Lines) -> list[str]:
    text = b"".join(lines)
    plain = without_comments(path, text)
    if plain is not None:
        return [_text(line) for line in plain.split(b"\n")]
    texts = [_text(line) for line in lines]
    return ["" if text.lstrip().startswith(("//", "/*", "*", "#")) else text for text in texts]


def _rest(side: Sequence[str], other: Sequence[str]) -> list[tuple[int, str]]:
    """Return the lines that the other side has not as often, with their numbers."""
    left = Counter("".join(line.split()) for line in other)
    rest: list[tuple[int, str]] = []
    for at, line in enumerate(side):
        key = "".join(line.split())
        if key and left[key]:
            left[key] -= 1
        elif key:
            rest.append((at, line))
    return rest
