"""``mudroom.typing`` beside ``typing``: the same named tuples, by comparison, without compiling a string."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mudroom.typing
from house import ROOT
from satellites import whole
from tiers import each

FIELDS = ("alpha", "b", "items", "count", "index", "self", "cls", "kind", "path", "a", "name", "values", "z")

BODY = """
class Value(NamedTuple):
    {doc}
    {fields}

    @property
    def first(self):
        return self[0]

    @classmethod
    def made(cls, *words, **named):
        return cls(*words, **named)

    def __str__(self):
        return "shown " + str(len(self))

    TABLE = (1, 2)
"""


def built(base: object, fields: list[str], defaults: int, doc: str) -> Any:
    rows = [f'{name}: int = {number}\n    """Of it."""' for number, name in enumerate(fields)]
    for place in range(len(fields) - defaults):
        rows[place] = f"{fields[place]}: int"
    space: dict[str, Any] = {"NamedTuple": base, "__name__": __name__}
    exec(BODY.format(fields="\n    ".join(rows), doc=doc and repr(doc)), space)
    return space["Value"]


def told(call: Callable[[], object]) -> object:
    try:
        return repr(call())
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@st.composite
def classes(draw: st.DrawFn) -> tuple[Any, Any]:
    fields = draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1))
    defaults = draw(st.integers(0, len(fields)))
    doc = draw(st.sampled_from(("", "What it is.")))
    return built(mudroom.typing.NamedTuple, fields, defaults, doc), built(typing.NamedTuple, fields, defaults, doc)


WORDS = st.lists(st.integers(), max_size=14)
NAMED = st.dictionaries(st.sampled_from((*FIELDS, "other")), st.text(max_size=3), max_size=5)


@given(classes(), WORDS, NAMED)
def test_calls_give_the_same_values_and_errors(
    both: tuple[Any, Any], words: list[int], named: Mapping[str, str]
) -> None:
    ours, theirs = both
    for call in ("made", "_make"):
        if call == "_make":
            assert told(lambda: ours._make(words)) == told(lambda: theirs._make(words))
        else:
            assert told(lambda: ours.made(*words, **named)) == told(lambda: theirs.made(*words, **named))
    size = len(ours._fields)
    one, other = ours._make(range(size)), theirs._make(range(size))
    assert one == other == tuple(range(size))
    assert hash(one) == hash(other)
    assert told(lambda: one._replace(**named)) == told(lambda: other._replace(**named))
    assert (one._asdict(), repr(one), str(one), one.first) == (other._asdict(), repr(other), str(other), other.first)
    assert [getattr(one, field) for field in ours._fields] == list(range(size))


@given(classes())
def test_classes_tell_the_same_of_themselves(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    assert {type(each) for each in both} == {type}
    assert ours.__mro__[1:] == theirs.__mro__[1:] == (tuple, object)
    for name in ("__name__", "__qualname__", "__module__", "__match_args__", "__slots__", "_fields", "_field_defaults"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert list(ours.__annotations__) == list(theirs.__annotations__)
    one, other = inspect.signature(ours), inspect.signature(theirs)
    assert [(row.name, row.kind, row.default) for row in one.parameters.values()] == [
        (row.name, row.kind, row.default) for row in other.parameters.values()
    ]
    assert ours.TABLE == theirs.TABLE
    kept = {"__annotate_func__", "__annotations_cache__"}  # where Python 3.14 keeps annotations (PEP 649)
    missing = {name for name in dir(theirs) if name not in dir(ours)} - {"__orig_bases__"} - kept
    assert missing == set()
    for field in ours._fields:
        assert type(vars(ours)[field]) is type(vars(theirs)[field])
        assert vars(ours)[field].__doc__ == vars(theirs)[field].__doc__
    with pytest.raises(AttributeError):
        setattr(ours._make(range(len(ours._fields))), ours._fields[0], 1)


class Point(mudroom.typing.NamedTuple):
    """Where."""

    x: int
    y: str = "y"
    """How far up."""

    def __repr__(self) -> str:
        return f"<{self.x}>"


def test_a_value_is_pickled_copied_and_matched() -> None:
    point = Point(1, "z")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(point, protocol)) == point
        assert type(pickle.loads(pickle.dumps(point, protocol))) is Point
    assert copy.copy(point) == copy.deepcopy(point) == point
    match point:
        case Point(x, y=name):
            assert (x, name) == (1, "z")
    assert (repr(point), Point.__doc__, Point.__new__.__qualname__) == ("<1>", "Where.", "Point.__new__")
    assert typing.get_type_hints(Point) == {"x": int, "y": str}


@pytest.mark.parametrize(
    "body", ["a: int = 1\n    b: int", "_a: int", "a: int\n    def _replace(self): ...", "a: int\n    _fields = ()"]
)
def test_a_class_that_typing_refuses_is_refused(body: str) -> None:
    errors = []
    for base in (mudroom.typing.NamedTuple, typing.NamedTuple):
        with pytest.raises((TypeError, ValueError, AttributeError)) as error:
            exec(f"class Value(NamedTuple):\n    {body}", {"NamedTuple": base, "__name__": __name__})
        errors.append(error.type)
    assert errors[0] is errors[1]


def test_a_number_of_fields_that_is_not_in_the_table_is_compiled() -> None:
    for count in (0, 15, 60):
        fields = [f"f{number}" for number in range(count)]
        body = "\n    ".join(f"{field}: int" for field in fields) or "pass"
        space: dict[str, Any] = {"NamedTuple": mudroom.typing.NamedTuple, "__name__": __name__}
        exec(f"class Value(NamedTuple):\n    {body}", space)
        assert space["Value"](*range(count)) == tuple(range(count))


@whole
def test_no_class_of_the_code_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    counts = {
        sum(isinstance(item, ast.AnnAssign) for item in node.body)
        for path in (ROOT / "src").rglob("*.py")
        if "NamedTuple" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)
    }
    assert counts == set(mudroom.typing._CONSTRUCTORS)  # type: ignore[attr-defined]


def test_literals_are_those_of_typing_for_whoever_asks() -> None:
    ours = mudroom.typing.Literal
    kind = ours["a", "b"]
    assert (kind.__origin__, kind.__args__) == (typing.Literal, ("a", "b"))  # type: ignore[attr-defined]
    assert mudroom.typing.get_args(kind) == ("a", "b")
    assert (kind | None) == typing.Optional[typing.Literal["a", "b"]]  # noqa: UP045
    assert ours["a"].__args__ == ("a",)  # type: ignore[attr-defined]


def test_it_loads_nothing() -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); b = set(sys.modules); import mudroom.typing; "
    done = subprocess.run(
        [sys.executable, "-I", "-c", program + "print(*sorted(set(sys.modules) - b))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["__future__", "_collections", "mudroom", "mudroom.typing"]


def test_msgspec_reads_the_annotations_of_both_alike() -> None:
    told = []
    for source in (mudroom.typing, typing):
        space = {"Kind": source.Literal["a", "b"], "NamedTuple": source.NamedTuple, "__name__": "shapes"}
        exec(
            "from __future__ import annotations\n"
            "class Row(NamedTuple):\n    kind: Kind\n    more: tuple[Kind, ...] = ()\n    last: Kind | None = None\n",
            space,
        )
        sys.modules["shapes"] = types.ModuleType("shapes")
        vars(sys.modules["shapes"]).update(space)
        row: Any = space["Row"]
        data = msgspec.msgpack.encode(row("a", ("b",), "b"))
        read = msgspec.msgpack.decode(data, type=row)
        with pytest.raises(msgspec.ValidationError) as error:
            msgspec.msgpack.decode(msgspec.msgpack.encode(["z"]), type=row)
        told.append([data, read, type(read) is row, str(error.value), msgspec.json.schema(row)])
    del sys.modules["shapes"]
    assert told[0] == told[1]


RECORDS = (
    "vault.record:ForkRecord", "vault.record:ApplyRecord", "vault.apply.imprint:Imprint",
    "vault.approvals.question:QueuedQuestionRecord", "vault.approvals.question:QueueDecision",
    "vault.conflict.resolution:Resolution", "core.tree.entry:Entry",
    "stage.originals.original:Original", "stage.views.copy_view:Manifest", "stage.layers.landed:LandedPaths",
    "core.agent.endpoint:AgentEndpoint",
)  # fmt: skip


@each("record", RECORDS)
def test_stored_records_have_only_types_that_are_read(record: str) -> None:
    module, _colon, name = record.partition(":")
    kind = getattr(importlib.import_module(f"mudroom.{module}"), name)
    assert "CustomType" not in repr(msgspec.inspect.type_info(kind))
