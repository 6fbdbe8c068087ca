"""What has changed in the copy of an agent's store, and what of it counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.core.home_change import HomeFile, changed_keys, changed_members, home_changes, with_keys
from tiers import each

A, B, C = (HomeFile(digest, 0o644) for digest in "abc")
KEYS = ("mcpServers", "projects.*.allowedTools", "env.PATH")


@each(
    ("base", "staged", "host", "change"),
    [
        (A, A, A, None),
        (A, B, A, ("changed", False)),
        (A, B, B, None),  # the host has it already
        (A, B, C, ("changed", True)),
        (A, A, B, None),
        (None, A, None, ("new", False)),
        (None, A, B, ("new", True)),
        (None, A, A, None),
        (A, None, A, ("removed", False)),
        (A, None, B, ("removed", True)),
        (A, None, None, None),
        (A, HomeFile("a", 0o755), A, ("changed", False)),
    ],
)
def test_three_sides(
    base: HomeFile | None, staged: HomeFile | None, host: HomeFile | None, change: tuple[str, bool] | None
) -> None:
    sides = [{b"d/f": side} if side else {} for side in (base, staged, host)]
    found = home_changes(sides[0], sides[1], sides[2], ("d/state/**",))
    assert [(one.change, one.conflict) for one in found] == ([change] if change else [])


def test_state_is_not_shown() -> None:
    staged = {b".x/projects/p/t.jsonl": A, b".x/settings.json": A, b".x/projectsx": B}
    assert [one.path for one in home_changes({}, staged, {}, (".x/projects/**",))] == [
        b".x/projectsx",
        b".x/settings.json",
    ]


@each(
    ("before", "after", "names"),
    [
        ({"n": 1}, {"n": 2}, ()),
        ({}, {"mcpServers": {"a": 1}}, ("mcpServers",)),
        ({"mcpServers": 1}, {}, ("mcpServers",)),
        ({"projects": {"/p": {"cost": 1}}}, {"projects": {"/p": {"cost": 2}}}, ()),
        ({}, {"projects": {"/p": {"allowedTools": ["Bash"]}}}, ("projects./p.allowedTools",)),
        ({"env": {"PATH": "a"}}, {"env": {"PATH": "b", "X": "c"}}, ("env.PATH",)),
        ({"env": 1}, {"env": []}, ()),
    ],
)
def test_parts_of_a_file(before: object, after: object, names: tuple[str, ...]) -> None:
    old, new = json.dumps(before).encode(), json.dumps(after).encode()
    assert changed_keys(old, new, KEYS) == names
    landed = with_keys(old, new, names, KEYS)
    assert changed_keys(landed, new, KEYS) == ()
    if isinstance(before, dict) and "n" in before:
        assert json.loads(landed)["n"] == 1


@each("text", [b"", b"[]", b"\xff", b"{", b"[" * 100_000])
def test_a_text_that_is_no_object_has_no_parts(text: bytes) -> None:
    assert changed_keys(b"{}", text, KEYS) == ()
    with pytest.raises(ValueError, match="no JSON object"):
        with_keys(b"{}", text, (), KEYS)


VALUES = st.recursive(
    st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(st.sampled_from("ab.*"), inner, max_size=3)
)


@given(
    st.dictionaries(st.sampled_from("ab.*"), VALUES, max_size=3),
    st.dictionaries(st.sampled_from("ab.*"), VALUES, max_size=3),
)
def test_what_has_landed_has_landed(before: dict[str, object], after: dict[str, object]) -> None:
    keys = ("a", "b.*.a")
    old, new = json.dumps(before).encode(), json.dumps(after).encode()
    names = changed_keys(old, new, keys)
    assert changed_keys(with_keys(old, new, names, keys), new, keys) == ()


@each(
    ("name", "before", "after", "members"),
    [
        ("a.json", '{"model": 1}', '{"model": 1, "hooks": {}} // "x": 1', ("hooks",)),
        ("a.json", "", "[1] // x", ()),
        ("a.jsonc", "{}", '{/* x */ "mcp": {},}', ("mcp",)),
        ("a.toml", "a = 1", "a = 1\n[mcp_servers.x]\n", ("mcp_servers",)),
        ("a.yaml", "a: 1\nb:\n  c: 1\n", "a: 1\nb:\n  c: 2\n'd-e': 3\n", ("b", "d-e")),
        (".env", "A=1\n", "A=1\nexport PATH=/x\n# B=2\n", ("PATH",)),
        ("a.md", "x", "hooks: y", ()),
        ("a.json", "{", "{" * 100_000, ()),
        ("a.json", "{}", "{/*" + " " * (1 << 20) + '*/"hooks": 1}', ()),
    ],
)
def test_members_that_differ(name: str, before: str, after: str, members: tuple[str, ...]) -> None:
    assert changed_members(name.encode(), before.encode(), after.encode()) == members
