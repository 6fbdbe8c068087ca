"""Presets are rules that hold: canonical, for registries, and for nothing wider than they say."""

from __future__ import annotations

import pytest

from mudroom.core.network.host_rules import Request, decide, show_rule
from mudroom.core.network.preset import PRESETS, preset_rules


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset(name: str) -> None:
    rules = preset_rules(name)
    assert [show_rule(rule) for rule in rules] == list(PRESETS[name].hosts)
    assert {rule.source for rule in rules} == {f"@{name}"}
    for rule in rules:
        is_here = rule.pattern == "localhost"
        assert (rule.action, rule.private, rule.inspect) == ("allow", is_here, False)
        assert is_here or rule.pattern.count(".") >= 1 + rule.pattern.startswith("*"), (
            "no wildcard over a whole top-level domain"
        )
    assert PRESETS[name].about
    assert PRESETS[name].source.startswith("https://")
    assert sorted(PRESETS) == list(PRESETS)


@pytest.mark.parametrize(
    ("name", "host", "port", "expected"),
    [
        ("npm", "registry.npmjs.org", 443, "allow"),
        ("npm", "npmjs.org", 443, "ask"),
        ("ollama", "127.0.0.1", 11434, "allow"),
        ("ollama", "localhost", 11434, "allow"),
        ("ollama", "127.0.0.1", 1234, "deny"),
        ("ollama", "10.0.0.1", 11434, "deny"),
        ("lmstudio", "::1", 1234, "allow"),
        ("npm", "registry.npmjs.org.evil.com", 443, "ask"),
        ("pypi", "files.pythonhosted.org", 443, "allow"),
        ("github", "github.com", 22, "allow"),
        ("github", "github.com", 443, "allow"),
        ("github", "gist.github.com", 443, "ask"),
        ("github", "github.com", 9418, "ask"),
        ("ubuntu", "de.archive.ubuntu.com", 80, "allow"),
        ("ubuntu", "archive.ubuntu.com", 80, "allow"),
        ("huggingface", "cdn-lfs-us-1.huggingface.co", 443, "allow"),
        ("huggingface", "cas-bridge.xethub.hf.co", 443, "allow"),
    ],
)
def test_what_presets_open(name: str, host: str, port: int, expected: str) -> None:
    assert decide(Request(host, port), preset_rules(name)).action == expected


def test_one_that_does_not_exist() -> None:
    with pytest.raises(KeyError):
        preset_rules("nmp")
