"""Edits of JSON with comments: the rest of the file keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.core.jsonc import APPEND, JsoncError, add, parse, remove, values_at
from tiers import each

COMMENTED = """\
{
    // the user's own
    "model": "opus", // not the small one
    "permissions": {
        "allow": ["Bash(ls:*)"], /* more to come */
    },
}
"""


def is_2(value: object) -> bool:
    return value == 2


def is_ours(value: object) -> bool:
    return value == "mudroom's"


VALUE = {"matcher": "*", "hooks": [{"type": "command"}]}


def test_a_new_member_keeps_comments_order_and_indentation() -> None:
    text = add(COMMENTED, ("hooks", "PreToolUse", APPEND), VALUE)
    assert text.startswith(COMMENTED[: COMMENTED.rindex("}")].rstrip())
    assert '\n    "hooks": {\n        "PreToolUse": [\n' in text
    assert values_at(parse(text), ("hooks", "PreToolUse", APPEND)) == [VALUE]
    assert remove(text, ("hooks", "PreToolUse", APPEND), lambda value: value == VALUE) == COMMENTED


def test_a_comment_behind_the_last_member_stays_with_it() -> None:
    text = '{\n  "a": 1 // first\n}\n'
    assert add(text, ("b",), 2) == '{\n  "a": 1, // first\n  "b": 2\n}\n'
    assert remove(add(text, ("b",), 2), ("b",), is_2) == text


def test_members_that_a_user_added_behind_it_stay() -> None:
    text = add('{\n  "a": 1\n}\n', ("env", "NAME"), "x").replace('"x"\n', '"x",\n    "MINE": "y"\n')
    assert json.loads(remove(text, ("env", "NAME"), lambda value: value == "x")) == {"a": 1, "env": {"MINE": "y"}}


def test_line_ends_and_byte_order_mark_are_kept() -> None:
    text = '\ufeff{\r\n\t"a": 1\r\n}\r\n'
    added = add(text, ("b", "c"), [1])
    assert added.count("\n") == added.count("\r\n")
    assert added.startswith("\ufeff")
    assert remove(added, ("b", "c"), lambda value: value == [1]) == text


def test_an_empty_file_becomes_an_object() -> None:
    assert json.loads(add("", ("a", APPEND), 1)) == {"a": [1]}


def test_what_is_set_to_something_else_is_refused() -> None:
    assert add('{"a": 1}', ("a",), 1) == '{"a": 1}'
    with pytest.raises(JsoncError, match="a is set already"):
        add('{"a": 1}', ("a",), 2)
    with pytest.raises(JsoncError, match=r"a\.b is not a list"):
        add('{"a": {"b": 1}}', ("a", "b", APPEND), 2)
    with pytest.raises(JsoncError, match="a is there 2 times"):
        add('{"a": {}, "a": {}}', ("a", "b"), 2)


@each(
    ("text", "message"),
    [
        ("{", "line 1: it ends too early"),
        ('{"a": }', "line 1: a value is missing"),
        ('{\n"a" 1}', "line 2: a colon is missing"),
        ('{"a": 1 "b": 2}', "line 1: a comma is missing"),
        ("{} {}", "line 1: there is more behind its end"),
        ("{/*", "line 1: a comment does not end"),
        ('{"a": 01}', "line 1: a comma is missing"),
        ("[" * 200, "line 1: it is nested too deeply"),
        ("{1: 2}", "line 1: the name of a member is not a text"),
    ],
)
def test_what_is_not_json_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(JsoncError, match=message):
        parse(text)


KEYS = st.sampled_from(["a", "b", "hooks", "env", "permissions"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\/é\n', max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple) | st.lists(KEYS, min_size=1, max_size=2).map(
    lambda keys: (*keys, APPEND)
)


def dressed(value: Any, indent: int | None, comment: str, comma: bool, newline: str) -> str:
    text = json.dumps(value, indent=indent)
    if comment:
        text = comment + newline + text
    if comma and value and text.endswith("\n}"):
        text = text[:-2] + ",\n}"
    return text.replace("\n", newline) + newline


DOCUMENTS = st.builds(
    dressed,
    OBJECTS,
    st.sampled_from([None, 2, 4]),
    st.sampled_from(["", "// first", "/* a\n b */"]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)


def is_free(value: Any, path: tuple[str, ...]) -> bool:
    """Return whether the path leads to nothing, or to a list, and meets no empty container on its way."""
    for key in path:
        if key == APPEND:
            return isinstance(value, list) and bool(value)
        if not isinstance(value, dict) or not value:
            return False
        if key not in value:
            return True
        value = value[key]
    return False


@given(DOCUMENTS, PATHS)
def test_removing_what_was_added_is_the_identity(text: str, path: tuple[str, ...]) -> None:
    before = parse(text).value
    if not is_free(before, path):
        return
    added = add(text, path, "mudroom's")
    after = parse(added).value
    assert after != before
    assert remove(added, path, is_ours) == text


@given(DOCUMENTS, PATHS)
def test_an_edit_changes_no_other_value(text: str, path: tuple[str, ...]) -> None:
    before = parse(text).value
    try:
        added = add(text, path, "mudroom's")
    except JsoncError:
        return
    removed = parse(remove(added, path, is_ours, keep_empty=9)).value
    assert json.dumps(pruned(removed, path)) == json.dumps(pruned(before, path))


def pruned(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value without containers on the path that are empty."""
    if isinstance(value, dict) and path and path[0] in value:
        inner = pruned(value[path[0]], path[1:])
        rest = {key: item for key, item in value.items() if key != path[0]}
        return rest if inner in ({}, []) else {key: inner if key == path[0] else item for key, item in value.items()}
    return value
