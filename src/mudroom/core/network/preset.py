"""Presets: named groups of hosts that one ecosystem's tools need, and no more; and model servers on this machine, at
the ports that they have unless configured otherwise: ``data/presets.txt``.

Rules:

1. A preset has no effect unless a rule names it: ``@npm`` among the hosts in a policy or in this machine's answers, or
   ``npm`` in ``network.presets``. Files keep the word, so that a rule follows a later version's table.
2. A word becomes rules for its hosts (``host_entry.py:expand``) where files become rules, before anything is decided:
   ``host_pattern.py`` refuses to compare a word with a host.
3. Presets are for reading. If a host also accepts uploads (a forge with a token, a registry with an account), ``takes``
   says so, since a command could then send away data that it can read; ``upload_host.py`` says which host takes which
   data. Object stores that serve any customer (storage.googleapis.com, amazonaws.com) are in no preset, although some
   registries redirect there.
4. A preset's first host is the one that its tool asks first: a question about that host offers the preset.
5. ``source`` is the page on which the host's maker names the hosts.
6. ``EFFECTS`` names the effects that wait under ``hold`` at known hosts. A preset that holds has the requests of its
   hosts, too, and hosts that only take uploads.
7. An agent's commands hold them also where a rule only allows the host, unless a rule of the user names it in full
   (``held_for_agent``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import LOCALHOST, PRESET, matches
from mudroom.core.network.host_rules import USUAL, HostRule, parse_rule
from mudroom.core.text.plural import counted
from mudroom.core.text.table import read_table
from mudroom.typing import Literal, NamedTuple


class Preset(NamedTuple):
    about: str
    """The tools that it is for."""
    hosts: tuple[str, ...]
    source: str
    takes: bool = False
    """Whether any account can also publish there."""


def _presets() -> Iterator[tuple[str, Preset]]:
    for row in read_table("presets"):
        name, about, takes, source, hosts = row.split(" | ")
        yield name, Preset(about, tuple(hosts.split()), source, takes == "takes")


PRESETS = dict(_presets())


class EffectHost(NamedTuple):
    """A host that takes changes, and the requests that a ``hold`` treats otherwise than at an unknown host."""

    holds: str
    """The effects that wait there; empty: none, all are refused."""
    requests: str = ""
    """As in ``HostRule``: requests that wait, too, under the rule of a preset or an answer."""
    reads: Mapping[str, Literal["always", "query"]] = {}
    """Paths to which a POST only reads: always, or if its body is a GraphQL document without a mutation."""
    preset: str = ""
    """The preset that has this host in a ``hold``, and not in an allow."""


_SSH = 22
_AUDITS: Mapping[str, Literal["always"]] = {
    "/-/npm/v1/security/advisories/bulk": "always",
    "/-/npm/v1/security/audits": "always",
    "/-/npm/v1/security/audits/quick": "always",
}
"""https://docs.npmjs.com/cli/commands/npm-audit"""
_DEVICE: Mapping[str, Literal["always"]] = {"/login/device/code": "always", "/login/oauth/access_token": "always"}
"""A login that the user confirms in a browser:
https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps#device-flow"""
EFFECTS: Mapping[str, EffectHost] = {
    # A forge opens no second pull request for a branch: its name is the key of that request.
    "api.bitbucket.org": EffectHost("changes", "DELETE PUT"),
    "api.github.com": EffectHost("changes", "DELETE PATCH POST=.head PUT", {"/graphql": "query"}),
    "bitbucket.org": EffectHost("pushes"),
    "codeberg.org": EffectHost("pushes and changes", "DELETE PATCH POST=.head PUT"),
    "crates.io": EffectHost("publishes"),
    "gist.github.com": EffectHost("pushes"),
    "github.com": EffectHost("pushes", reads=_DEVICE),
    "gitlab.com": EffectHost("pushes and changes", "DELETE PATCH POST=.source_branch PUT", {"/api/graphql": "query"}),
    "index.crates.io": EffectHost(""),  # it tells of the held versions
    "registry.npmjs.org": EffectHost("publishes", reads=_AUDITS),
    "registry.yarnpkg.com": EffectHost("publishes", reads=_AUDITS),
    "test.pypi.org": EffectHost("publishes"),
    "upload.pypi.org": EffectHost("publishes", preset="pypi"),
    "uploads.github.com": EffectHost(""),
}


# --- an agent's commands ---


def held_for_agent(rules: Sequence[HostRule]) -> Sequence[HostRule]:
    """Return the rules for an agent's command, which hold the effects at known hosts that a preset, a pattern, a
    profile or a card allows; the same object if there is none. ssh is asked about, since a hold there reads with the
    user's keys."""
    more: list[HostRule] = []
    for host, effects in EFFECTS.items():
        name = parse_host(host.encode())
        allows = [
            r for r in rules if r.action == "allow" and not r.methods and not r.paths and matches(r.pattern, name)
        ]
        ports = {port: rule for rule in reversed(allows) for port in rule.ports or USUAL}
        for rule in allows:
            if rule.hold or (rule.pattern == host and not _is_broad(rule)):
                decided = rule.ports or (tuple(ports) if rule.hold else USUAL)
                ports = {port: other for port, other in ports.items() if port not in decided}
        for port, rule in sorted(ports.items()):
            source = f"{rule.source or rule.pattern}, for agents"
            hold = parse_rule(f"{host}:{port} {effects.requests}".rstrip(), "hold", source, private=rule.private)
            ask = HostRule("ask", host, (port,), private=rule.private, source=source)
            more.append(ask if port == _SSH else hold)
    return (*rules, *more) if more else rules


def _is_broad(rule: HostRule) -> bool:
    """Return whether a rule is not the user's own word about its host, but a preset's, a profile's or a card's."""
    return rule.source.rpartition(" ")[2].startswith(PRESET) or rule.source.startswith(("profile ", "card "))


# --- words ---


def preset_rules(name: str) -> tuple[HostRule, ...]:
    """Return the rules for an allowed preset. Raise KeyError if there is no such preset."""
    return tuple(rules_of(HostRule("allow", PRESET + name)))


def rules_of(word: HostRule) -> Iterator[HostRule]:
    """Yield the rules for the hosts of the preset that a rule's word names (``host_entry.py:expand``). A deny or an ask
    covers every port; on this machine's loopback only the preset's own, since other programs may use the rest."""
    name = word.pattern[len(PRESET) :]
    hosts = PRESETS[name].hosts
    if word.hold:
        hosts += tuple(host for host, effects in EFFECTS.items() if effects.preset == name)
    for host in hosts:
        own = parse_rule(host, word.action, private=word.private)
        ports = own.ports if word.action == "allow" or own.pattern == LOCALHOST else ()
        source = f"{word.source} {word.pattern}".lstrip()
        effects = EFFECTS.get(own.pattern)
        requests = tuple(effects.requests.split()) if effects is not None and word.hold else ()
        yield word._replace(pattern=own.pattern, ports=ports, private=own.private, source=source, requests=requests)


def like_preset(rule: HostRule) -> str:
    """Return a warning about a rule for a host that is named like a preset, without the ``@``; empty for others."""
    if rule.pattern not in PRESETS or rule.ports:
        return ""
    return f'{rule.pattern} is a host here; the preset is "{PRESET}{rule.pattern}"'


def near_presets(name: str) -> tuple[str, ...]:
    """Return the presets that a wrong name may mean: those for a tool with that name, or one with a similar name."""
    by_tool = [preset for preset, row in PRESETS.items() if name in row.about.lower().replace(",", " ").split()]
    if by_tool:
        return tuple(by_tool)
    import difflib

    return tuple(difflib.get_close_matches(name, PRESETS, 1, 0.5))


# --- questions ---


def held_note(rule: HostRule) -> str:
    """Return the effects of a hold at a known host, as a sentence for the user; empty for other hosts."""
    if (effects := EFFECTS.get(rule.pattern)) is None:
        return ""
    requests = f" ({', '.join(rule.requests)})" if rule.requests else ""
    reads = "".join(f"; POST {path} reads ({how})" for path, how in effects.reads.items())
    return f"under hold, {effects.holds or 'no changes'}{requests} wait{reads}; all else that changes is refused"


class Offer(NamedTuple):
    """A rule that a question about a host offers beside those for this host and port."""

    rule: str
    """As it is shown and written: ``allow @npm``, ``hold github.com:443``."""
    label: str
    """Its first character is its key on a terminal."""
    words: str
    """For a button."""
    hosts: tuple[str, ...] = ()
    """Of a preset."""
    allows: bool = True
    """Whether the command that asks may go on to the host."""

    @property
    def key(self) -> str:
        return self.label[0]

    @property
    def entry(self) -> str:
        return self.rule.partition(" ")[2]


def offers(host: str, port: int, hold: str) -> list[Offer]:
    """Return the rules that a question about this canonical host and port offers. ``hold``: as in ``FlowQuestion``."""
    preset, effects = offer_for(host, port), EFFECTS.get(host)
    found = [preset] if preset is not None else []
    if effects is None or not effects.holds or not hold:
        return found
    rule, what = f"hold {host}:{port} {effects.requests}".rstrip(), f"Hold its {effects.holds}"
    if hold == "now":
        return [*found, Offer(rule, f"hold its {effects.holds}", f"{what} until the apply")]
    later = f"{what} from the next command on; this one"
    return [
        *found,
        Offer(rule, f"hold its {effects.holds} later, refuse now", f"{later} is refused it", allows=False),
        Offer(rule, "Hold later, allow now", f"{later} may change it"),
    ]


def offer_for(host: str, port: int) -> Offer | None:
    """Return the preset that a question about this canonical host and port offers; None if none has it. Among several,
    the preset that lists the host earliest wins. Model servers on this machine are not offered: another program may
    have the port."""
    parsed = parse_host(host.encode("utf-8", "surrogateescape"))
    found = [
        (index, name)
        for name, index, rule in _offered()
        if matches(rule.pattern, parsed) and port in (rule.ports or USUAL)
    ]
    if not found:
        return None
    name = min(found)[1]
    hosts = PRESETS[name].hosts
    label = f"preset {name}: {counted(len(hosts), 'host')}"
    return Offer(f"allow {PRESET}{name}", label, f"Always allow the {label}", hosts)


@lru_cache(maxsize=1)
def _offered() -> tuple[tuple[str, int, HostRule], ...]:
    """Return the rules for offers, each with its preset and its position there. Cached, because the gate looks at them
    for each refused request."""
    rows = [(name, index, rule) for name in PRESETS for index, rule in enumerate(preset_rules(name))]
    return tuple(row for row in rows if row[2].pattern != LOCALHOST)
