"""The ``typing`` names needed at run time, without importing ``typing``.

A type checker reads the real names. At run time, importing ``typing`` costs as much as starting the interpreter (it
imports ``re``, which imports ``enum``), and ``typing.NamedTuple`` compiles each class's constructor from a string. Here
a constructor is a function over a code object that was compiled with this file; only the variable names are replaced.

Rules of this file:
1. ``NamedTuple`` matches ``typing.NamedTuple`` in attributes, errors and speed: tests/test_typing.py compares them.
   Not supported: other bases beside it, and the call ``NamedTuple("Name", …)``.
2. Annotations are strings (``from __future__ import annotations``), so names that occur only in annotations are
   placeholders at run time. msgspec evaluates annotations: a module that imports msgspec, and all of ``web`` and
   ``tui``, import ``typing`` itself.
3. At run time this file imports only modules in C and those that an interpreter without ``site`` has already loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import IO as IO
    from typing import Any as Any
    from typing import AnyStr as AnyStr
    from typing import BinaryIO as BinaryIO
    from typing import Concatenate as Concatenate
    from typing import Generic as Generic
    from typing import Literal as Literal
    from typing import NamedTuple as NamedTuple
    from typing import NewType as NewType
    from typing import NoReturn as NoReturn
    from typing import ParamSpec as ParamSpec
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import TypeAlias as TypeAlias
    from typing import TypedDict as TypedDict
    from typing import TypeVar as TypeVar
    from typing import Unpack as Unpack
    from typing import cast as cast
    from typing import get_args as get_args
else:
    import sys
    from _collections import _tuplegetter

    IO = Any = AnyStr = BinaryIO = Concatenate = NoReturn = Self = TypeAlias = Unpack = None
    _new = tuple.__new__
    _make_function = type(lambda: None)

    # By number of fields. ``_constructor`` compiles the missing ones on demand.
    _CONSTRUCTORS = {
        1: lambda _cls, a: _new(_cls, (a,)),
        2: lambda _cls, a, b: _new(_cls, (a, b)),
        3: lambda _cls, a, b, c: _new(_cls, (a, b, c)),
        4: lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
        5: lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
        6: lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
        7: lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
        8: lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
        9: lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
        10: lambda _cls, a, b, c, d, e, f, g, h, i, j: _new(_cls, (a, b, c, d, e, f, g, h, i, j)),
        11: lambda _cls, a, b, c, d, e, f, g, h, i, j, k: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
        12: lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k, m)),
        13: lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m, n: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k, m, n)),
        14: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o
        )),
        15: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p
        )),
        16: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q
        )),
        17: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r
        )),
        18: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s
        )),
        19: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t
        )),
        21: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v
        )),
        22: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w
        )),
        24: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y
        )),
        32: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag: _new(
            _cls,
            (a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag),
        ),
        51: lambda _cls,
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag,
            ah, ai, aj, ak, am, an, ao, ap, aq, ar, at, au, av, aw, ax, ay, az, ba, bb: _new(_cls, (
            a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af, ag,
            ah, ai, aj, ak, am, an, ao, ap, aq, ar, at, au, av, aw, ax, ay, az, ba, bb
        )),
    }  # fmt: skip
    _PROHIBITED = frozenset(
        ("__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults", "_make", "_replace")
    ) | {"_asdict", "_source"}

    def _constructor(name, fields, defaults):
        """Return the ``__new__`` for a class with these fields."""
        known = _CONSTRUCTORS.get(len(fields))
        if known is None:
            known = eval(f"lambda _cls, {', '.join(fields)}: _new(_cls, ({', '.join(fields)}{',' if fields else ''}))")
        code = known.__code__.replace(co_name="__new__", co_varnames=("_cls", *fields))
        function = _make_function(code, known.__globals__, "__new__", defaults)
        function.__qualname__ = f"{name}.__new__"
        function.__doc__ = f"Create new instance of {name}({', '.join(fields)})"
        return function

    @classmethod
    def _make(cls, iterable):
        """Return a new value from an iterable."""
        result = _new(cls, iterable)
        if len(result) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
        return result

    def _replace(self, /, **kwds):
        """Return a new value with the named fields replaced."""
        result = self._make(map(kwds.pop, self._fields, self))
        if kwds:
            error = TypeError if sys.version_info >= (3, 13) else ValueError
            raise error(f"Got unexpected field names: {list(kwds)!r}")
        return result

    def _asdict(self):
        """Return a new dict of field names to values."""
        return dict(zip(self._fields, self, strict=True))

    _FORMS = {}

    def __repr__(self):
        """Return the class name with the field names and values."""
        form = _FORMS.get(self._fields)
        if form is None:
            form = _FORMS[self._fields] = f"({', '.join([f'{field}=%r' for field in self._fields])})"
        return self.__class__.__name__ + form % self

    def __getnewargs__(self):
        """Return self as a plain tuple, for copy and pickle."""
        return tuple(self)

    _METHODS = {
        "__repr__": __repr__,
        "__getnewargs__": __getnewargs__,
        "_make": _make,
        "_replace": _replace,
        "_asdict": _asdict,
        **({"__replace__": _replace} if sys.version_info >= (3, 13) else {}),
    }

    class _NamedTupleType(type):
        """The metaclass for ``NamedTuple`` only: its subclasses are plain classes over ``tuple``."""

        def __new__(cls, name, bases, body):
            if not bases:
                return type.__new__(cls, name, bases, body)
            if len(bases) > 1:
                raise TypeError("can only inherit from NamedTuple")
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            _check(fields, defaults, body)
            constructor = _constructor(name, fields, tuple(defaults.values()) or None)
            constructor.__annotations__ = body.get("__annotations__", {})
            space = {**_METHODS, "__match_args__": fields, "__doc__": f"{name}({', '.join(fields)})", **body}
            space.update(__new__=constructor, __slots__=(), _fields=fields, _field_defaults=defaults)
            for number, field in enumerate(fields):
                space[field] = _tuplegetter(number, f"Alias for field number {number}")
            return type(name, (tuple,), space)

    def _check(fields, defaults, body):
        """Raise the errors that ``typing.NamedTuple`` raises for a class body."""
        if fields[len(fields) - len(defaults) :] != tuple(defaults):
            late = next(field for field in fields[fields.index(next(iter(defaults))) :] if field not in defaults)
            raise TypeError(f"Non-default namedtuple field {late} cannot follow default field {', '.join(defaults)}")
        for field in fields:
            if field[0] == "_":
                raise ValueError(f"Field names cannot start with an underscore: {field!r}")
        if not body.keys().isdisjoint(_PROHIBITED):
            raise AttributeError(f"Cannot overwrite NamedTuple attribute {', '.join(body.keys() & _PROHIBITED)}")

    class NamedTuple(metaclass=_NamedTupleType):
        """Base class for tuples with named fields; see the rules of this file."""

    class Protocol:
        """Base class for protocols, which only a type checker reads."""

        __slots__ = ()

    class Generic:
        """Base class for generic classes."""

        def __class_getitem__(cls, _parameters):
            return cls

    class TypedDict(dict):
        """Base class for dicts whose known keys are the ``__annotations__``."""

        def __init_subclass__(cls, total=True):
            pass

    class _LiteralValues:
        """``Literal["a", "b"]``, as ``get_args`` below, ``typing.get_type_hints`` and msgspec expect it."""

        def __init__(self, values):
            self.__args__ = values

        @property
        def __origin__(self):
            import typing

            return typing.Literal

        def __or__(self, other):
            return self.__origin__[self.__args__] | other

        def __ror__(self, other):
            return other | self.__origin__[self.__args__]

    class _Literal:
        def __getitem__(self, values):
            return _LiteralValues(values if type(values) is tuple else (values,))

    Literal = _Literal()

    def get_args(form):
        return form.__args__

    def NewType(_name, _base):
        return lambda value: value

    def TypeVar(name, *_bounds, **_options):
        return name

    ParamSpec = TypeVar

    def cast(_type, value):
        return value
