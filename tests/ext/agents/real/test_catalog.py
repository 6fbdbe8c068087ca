"""The profiles that mudroom brings, and those of the user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_pages import PAGES, ROOT, pages

import mudroom.ext.agents.core.profile as module
from mudroom.core.tree.credential_stores import AGENTS, STORES
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.ext.agents.catalog import OWN, Catalog, read_profile
from mudroom.ext.agents.core.profile import AgentProfile

BUILT_IN = Catalog()
GOOD = 'format = 1\nname = "mine"\nprograms = ["mine"]\n'


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    return tmp_path


def write(user: Path, text: str, name: str = "mine") -> Catalog:
    (user / "agents" / f"{name}.toml").write_text(text)
    return Catalog(bytes(user))


def test_the_agents_of_the_house() -> None:
    assert BUILT_IN.names() == [
        "aider", "amp", "claude", "cline", "cn", "codex", "copilot", "crush", "cursor-agent", "gemini", "goose",
        "gptme", "kilo", "kimi", "mini-swe-agent", "opencode", "openhands", "pi", "qwen",
    ]  # fmt: skip
    assert sorted(BUILT_IN.profile(name).store for name in BUILT_IN.names()) == sorted(AGENTS)
    assert not any(BUILT_IN.is_users(name) for name in BUILT_IN.names())


@pytest.mark.parametrize("name", BUILT_IN.names())
def test_a_profile_is_whole(name: str) -> None:
    profile = BUILT_IN.profile(name)
    assert profile.about
    assert profile.install
    assert profile.network.allow
    assert not set(profile.network.allow) & set(profile.network.deny)
    store = STORES[profile.store]
    assert profile.agent_store.places == (*store.directories, *store.files)
    places = profile.agent_store.places
    for pattern in (*profile.state, *profile.transcripts):
        assert any(is_below(pattern.encode(), place) for place in places), pattern
    for token in profile.tokens:
        assert not any(pattern.encode() == token for pattern in profile.state)


def test_a_program_finds_its_profile() -> None:
    assert found("claude").name == "claude"
    assert found("mini").name == "mini-swe-agent"
    assert found("mini-swe-agent").name == "mini-swe-agent"
    for word in ("nonesuch", "", ".", "..", "../claude", "profiles/claude", "/etc/passwd"):
        assert BUILT_IN.of_program(word) is None
    store = BUILT_IN.of_store("cursor")
    assert store is not None
    assert store.name == "cursor-agent"


def found(program: str) -> AgentProfile:
    profile = BUILT_IN.of_program(program)
    assert profile is not None
    return profile


def test_a_profile_of_the_users_replaces_that_of_the_house(user: Path) -> None:
    catalog = write(user, GOOD.replace("mine", "claude") + 'about = "ours"\n', "claude")
    assert catalog.profile("claude").about == "ours"
    assert catalog.is_users("claude")
    assert catalog.names() == BUILT_IN.names()
    assert write(user, GOOD).names() == sorted((*BUILT_IN.names(), "mine"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = 2\n" + GOOD[11:], "format is not 1"),
        (GOOD[11:], "format is not 1"),
        ('format = 1\nname = "mine"\n', "programs is missing"),
        ('format = 1\nprograms = ["mine"]\n', "name is missing"),
        (GOOD.replace('"mine"\n', '"other"\n'), "name is 'other'"),
        (GOOD + "nam = 1\n", "unknown key 'nam'"),
        (GOOD + "store = 'claud'\n", "did you mean claude?"),
        (GOOD + "store = 'claude'\ntokens = ['~/.ssh/id']\n", "~/.ssh/id is not in the store"),
        (GOOD + "tokens = ['/etc/shadow']\n", "is not a path in the home"),
        (GOOD + "state = ['/x/**']\n", "is not in the home"),
        (GOOD + "programs2 = 1\n", "did you mean programs?"),
        (GOOD.replace('["mine"]', '["bin/mine"]'), "is not the name of a program"),
        (GOOD + "[network]\nallow = true\n", "allow is true or false"),
        (GOOD + "[network]\nallow = ['http://x']\n", "allow:"),
        (GOOD + "[environment]\nset = { 'A-B' = '1' }\n", "is not the name of a variable"),
        (GOOD + "[environment]\nset = { AB = 1 }\n", "set is a number"),
        (GOOD + "about = 'a\\u001b'\n".replace("'", '"'), "cannot be shown"),
        (GOOD + "= 1\n", "this is not TOML"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_profile_that_is_wrong_is_named_in_one_line(user: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        write(user, text).profile("mine")
    whole = f"{caught.value.message} ({caught.value.hint})"
    assert message in whole
    assert "mine.toml" in whole
    assert "\n" not in whole


def test_a_file_that_cannot_be_read(user: Path) -> None:
    path = user / "agents/mine.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_profile(bytes(path))
    path.write_bytes(b"#" * (1 << 19))
    with pytest.raises(UsageError, match="larger"):
        read_profile(bytes(path))
    path.unlink()
    with pytest.raises(UsageError, match="No such file"):
        read_profile(bytes(path))
    with pytest.raises(UsageError, match="no profile of an agent 'mine'"):
        Catalog(bytes(user)).profile("mine")


def test_the_card_of_a_profile_asks_for_no_host_and_no_whole_store() -> None:
    card = BUILT_IN.profile("claude").card(1)
    assert (card.agent, card.level, card.digest) == ("claude", 1, "profile:claude")
    assert card.needs.oauth is False
    assert card.needs.network is None
    assert card.store is not None
    assert card.store.tokens == (b".claude/.credentials.json",)
    assert OWN.endswith(b"profiles")


def test_the_pages_are_made_of_the_profiles() -> None:
    made = {path: path.read_text() for path in PAGES.glob("*.md")}
    assert made == pages(), "python tests/ext/agents/real/agent_pages.py"


def test_the_schema_has_the_same_keys() -> None:
    schema = json.loads((ROOT / "docs/profile.schema.json").read_text())
    assert list(schema["properties"]) == list(module._FIELDS)
    tables = {"network": module._NETWORK, "environment": module._ENVIRONMENT, "sandbox": module._SANDBOX}
    for name, table in tables.items():
        assert list(schema["properties"][name]["properties"]) == list(table)
    assert schema["properties"]["store"]["enum"] == sorted(STORES)
    assert schema["properties"]["format"]["const"] == module.FORMAT
