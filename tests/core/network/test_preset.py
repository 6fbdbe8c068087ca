"""Presets are rules that hold: canonical, for registries, and for nothing wider than they say."""

from __future__ import annotations

from typing import cast

import pytest

from mudroom.cli.terminal.asking import answers_to
from mudroom.core.network.flow import FlowAnswer, FlowQuestion, Hold
from mudroom.core.network.host_entry import expand, offered_rule, parse_entry, preset_of
from mudroom.core.network.host_rules import HostRule, Request, RuleWord, decide, decoded, holding, parse_rule, show_rule
from mudroom.core.network.preset import EFFECTS, PRESETS, held_for_agent, offer_for, offers, preset_rules
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
    assert (offer.label.removeprefix("preset ") if offer is not None else "") == expected


def test_an_answer_to_a_question_that_offers_a_preset() -> None:
    answers, choices, more = answers_to(FlowQuestion(1, "pypi.org", 443, "tls"))
    assert answers["p"] == FlowAnswer(True, keep=True, rule="allow @pypi")
    assert choices.endswith("  [p]reset pypi: 2 hosts")
    assert more == "; p: Always allow the preset pypi: 2 hosts (allow @pypi)"
    assert "p" not in answers_to(FlowQuestion(1, "a.example", 443, "tls"))[0]


NOW, LATER = ["hold its pushes"], ["hold its pushes later, refuse now", "Hold later, allow now"]


@pytest.mark.parametrize(
    ("host", "hold", "rule", "labels"),
    [
        ("github.com", "now", "hold github.com:443", NOW),
        ("github.com", "later", "hold github.com:443", LATER),
        ("github.com", "", "", []),
        ("api.github.com", "now", "hold api.github.com:443 DELETE PATCH POST=.head PUT", ["hold its changes"]),
        ("registry.npmjs.org", "now", "hold registry.npmjs.org:443", ["hold its publishes"]),
        ("crates.io", "now", "hold crates.io:443", ["hold its publishes"]),
        ("index.crates.io", "now", "", []),
        ("a.example", "now", "", []),
    ],
)
def test_a_question_offers_to_hold_what_its_host_takes(host: str, hold: Hold, rule: str, labels: list[str]) -> None:
    """Each answer's rule is the one that is shown, and it is the one that is written."""
    question = FlowQuestion(1, host, 443, "tls", hold=hold)
    holds = [offer for offer in offers(host, 443, hold) if offer.key in "hH"]
    assert [offer.label for offer in holds] == labels
    assert {offer.rule for offer in holds} == ({rule} if rule else set())
    answers, choices, _more = answers_to(question)
    assert all(f"  [{label[0]}]{label[1:]}" in choices for label in labels)
    assert [answers[offer.key] for offer in holds] == [FlowAnswer(one.allows, True, rule=one.rule) for one in holds]
    for offer in holds:
        written = offered_rule(offer.rule)
        assert written.hold
        assert f"hold {show_rule(written)}" == rule


@each("host", EFFECTS)
def test_a_host_with_effects(host: str) -> None:
    effects = EFFECTS[host]
    rule = parse_rule(f"{host} {effects.requests}".rstrip(), "hold")
    assert show_rule(rule) == f"{host} {effects.requests}".rstrip(), "canonical, in order"
    assert all(decoded(path) == path and "?" not in path for path in effects.reads)
    assert not effects.preset or host not in [name.partition(":")[0] for name in PRESETS[effects.preset].hosts]
    assert sorted(EFFECTS) == list(EFFECTS)


def test_a_preset_that_holds_has_its_requests_and_the_hosts_that_only_take() -> None:
    def shown(text: str, action: RuleWord) -> list[str]:
        rules = list(expand([parse_entry(text, action, "policy.yaml:3")]))
        assert {rule.hold for rule in rules} == {action == "hold"}
        return [show_rule(rule) for rule in rules]

    assert shown("@pypi", "allow") == ["pypi.org", "files.pythonhosted.org"]
    assert shown("@pypi", "hold") == ["pypi.org", "files.pythonhosted.org", "upload.pypi.org"]
    assert "api.github.com DELETE PATCH POST=.head PUT" in shown("@github", "hold")
    assert "api.github.com" in shown("@github", "allow")
    assert shown("@gitlab", "hold") == ["gitlab.com:22,80,443 DELETE PATCH POST=.source_branch PUT"]


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


@pytest.mark.parametrize(
    ("rules", "held", "asked"),
    [
        (["policy:1 allow @npm"], "registry.npmjs.org:443 registry.npmjs.org:80 registry.yarnpkg.com:443", ""),
        (["policy:1 allow @github"], "github.com:443 api.github.com:443", "github.com:22"),
        (["policy:1 allow @pypi"], "", ""),
        (["policy:1 allow @crates"], "crates.io:443", ""),
        (["policy:1 allow *.github.com"], "api.github.com:443 gist.github.com:80", ""),
        (["policy:1 allow *"], "gitlab.com:443 upload.pypi.org:443", ""),
        (["profile copilot allow github.com"], "github.com:443", ""),
        (["card helper allow github.com:443,22"], "github.com:443", "github.com:22"),
        (["policy:1 allow github.com"], "", ""),
        (["policy:1 allow @github", "asked allow github.com:443"], "github.com:80 api.github.com:443", "github.com:22"),
        (["policy:1 allow @github", "policy:2 allow github.com:22"], "github.com:443", ""),
        (["policy:1 allow @github", "policy:2 hold github.com"], "api.github.com:443", ""),
        (["policy:1 allow @github", "policy:2 deny github.com"], "api.github.com:443", ""),
        (["policy:1 ask github.com"], "", ""),
    ],
)
def test_what_an_agent_may_reach_without_a_word_of_the_user_about_it_is_held(
    rules: list[str], held: str, asked: str
) -> None:
    """The rules decide about no request otherwise but that they hold or ask."""
    given: list[HostRule] = []
    for text in rules:
        source, word, host = text.rsplit(" ", 2)
        given += expand([parse_entry(host, cast("RuleWord", word), source)])
    found = held_for_agent(given)
    assert (found is given) is (not held and not asked)
    for host in EFFECTS:
        for port in (22, 80, 443, 8443):
            before, after = (decide(Request(host, port), rules) for rules in (given, found))
            named = f"{host}:{port}"
            if named in asked.split():
                assert (before.action, after.action) == ("allow", "ask")
                continue
            assert before.action == after.action, named
            if named in held.split():
                assert after.rule is not None
                assert after.rule.hold, named
                assert holding(found, host, port) is not None
            elif not held:
                assert holding(found, host, port) == holding(given, host, port)
