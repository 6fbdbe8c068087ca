"""JSON text without ``json``: the same text and the same errors."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.text import json_text
from mudroom.core.text.json_text import to_json_text
from mudroom.core.text.sha256 import sha256_hex

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner) | st.tuples(inner),
)


@given(VALUES)
def test_the_text_is_that_of_json(value: Any) -> None:
    assert to_json_text(value) == json.dumps(value)
    assert to_json_text(value, ",", ":") == json.dumps(value, separators=(",", ":"))


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, {(1, 2): 3}, {"x": [object()]}, circular()])
def test_the_errors_are_those_of_json(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as ours:
        to_json_text(value)
    with pytest.raises((TypeError, ValueError)) as theirs:
        json.dumps(value)
    assert ours.type is theirs.type


def test_it_works_without_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_make_encoder", None)
    assert to_json_text({"a": [1, "é"]}, ",", ":") == '{"a":[1,"\\u00e9"]}'


@given(st.binary())
def test_the_digest_is_that_of_hashlib(data: bytes) -> None:
    assert sha256_hex(data) == hashlib.sha256(data).hexdigest()
