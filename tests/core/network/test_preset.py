"""Presets are rules that hold: canonical, for registries, and for nothing wider than they say."""

from __future__ import annotations

import pytest

from mudroom.cli.terminal.asking import answers_to
from mudroom.core.network.flow import FlowAnswer
from mudroom.core.network.host_entry import expand, parse_entry, preset_of
from mudroom.core.network.host_rules import Request, decide, parse_rule, show_rule
from mudroom.core.network.preset import PRESETS, offer_for, preset_rules
from tiers import each


@each("name", PRESETS)
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


@each(
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


@each(
    ("host", "port", "expected"),
    [
        ("registry.npmjs.org", 443, "npm: 3 hosts"),
        ("registry.yarnpkg.com", 443, "yarn: 3 hosts"),
        ("nodejs.org", 443, "node: 1 host"),
        ("files.pythonhosted.org", 443, "pypi: 2 hosts"),
        ("github.com", 22, "github: 8 hosts"),
        ("github.com", 9418, ""),
        ("ghcr.io", 443, "ghcr: 2 hosts"),
        ("de.archive.ubuntu.com", 80, "ubuntu: 3 hosts"),
        ("cas-bridge.xethub.hf.co", 443, "huggingface: 3 hosts"),
        ("a.example", 443, ""),
        ("registry.npmjs.org.evil.example", 443, ""),
        ("localhost", 11434, ""),
        ("127.0.0.1", 8000, ""),
        ("::1", 443, ""),
    ],
)
def test_a_question_offers_the_preset_of_its_host(host: str, port: int, expected: str) -> None:
    offer = offer_for(host, port)
    assert (offer.about if offer is not None else "") == expected


def test_an_answer_to_a_question_that_offers_a_preset() -> None:
    answers, choices = answers_to("pypi.org", 443)
    assert answers["p"] == FlowAnswer(True, keep=True, preset="@pypi")
    assert choices.endswith("  [p]reset pypi: 2 hosts")
    assert "p" not in answers_to("a.example", 443)[0]


@each("name", PRESETS)
def test_a_denied_preset_is_denied_on_every_port(name: str) -> None:
    rules = list(expand([parse_entry(f"@{name}", "deny", "policy.yaml:3")]))
    assert {rule.source for rule in rules} == {f"policy.yaml:3 @{name}"}
    assert {preset_of(rule) for rule in rules} == {name}
    for rule in rules:
        host = rule.pattern.replace("**.", "").replace("*.", "a.")
        for port in rule.ports or (22, 80, 443, 8080):
            assert decide(Request(host, port), [*preset_rules(name), *rules]).action == "deny"


def test_a_word_is_never_compared_with_a_host() -> None:
    """An unexpanded deny would hold for no host."""
    with pytest.raises(ValueError, match="@npm stands for other rules"):
        decide(Request("registry.npmjs.org", 443), [parse_entry("@npm", "deny")])


def test_no_host_is_a_word() -> None:
    with pytest.raises(ValueError, match="user before the host"):
        parse_rule("@npm", "allow")


def test_one_that_does_not_exist() -> None:
    with pytest.raises(KeyError):
        preset_rules("nmp")
