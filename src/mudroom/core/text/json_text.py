"""A value as JSON text, as ``json.dumps`` writes it, without importing ``json``: that compiles regular expressions for
reading, which most commands do not do."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.typing import Any

_make_encoder: Any
_quoted: Any
try:
    from _json import encode_basestring_ascii as _quoted
    from _json import make_encoder as _make_encoder
except ImportError:  # an interpreter without the accelerator
    _make_encoder = None


def to_json_text(value: Any, item: str = ", ", key: str = ": ") -> str:
    """Return ``json.dumps(value, separators=(item, key))``. Raise TypeError or ValueError as that does."""
    if _make_encoder is None:
        import json

        return json.dumps(value, separators=(item, key))
    encode = _encoder(item, key)
    return "".join(encode(value, 0))


def _encoder(item: str, key: str) -> Callable[[Any, int], tuple[str, ...]]:
    # json/encoder.py, JSONEncoder.iterencode: markers, default, encoder, indent, separators, sort_keys, skipkeys,
    # allow_nan. The markers find circular references.
    encode: Callable[[Any, int], tuple[str, ...]] = _make_encoder(
        {}, _refuse, _quoted, None, key, item, False, False, True
    )
    return encode


def _refuse(value: object) -> Any:
    raise TypeError(f"Object of type {value.__class__.__name__} is not JSON serializable")
