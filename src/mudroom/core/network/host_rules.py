"""Host rules, and the function that decides which hosts may be reached.

Rules: a deny beats an ask, and an ask beats an allow, whatever their order. A rule with ``only`` denies all requests to
its hosts that no such rule allows. A host without a rule is asked about if there is an approver, and denied otherwise.
Only canonical hosts (``core/network/host.py``) are compared. Without rules nothing is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mudroom.core.network.address import openable, refused, show_address, unreachable
from mudroom.core.network.host import HostName, parse_host, parse_port
from mudroom.core.network.host_pattern import (
    LOCALHOST,
    METADATA,
    PRESET,
    matches,
    network_of,
    parse_pattern,
    specificity,
)
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import Literal, NamedTuple

Action = Literal["allow", "ask", "deny"]

RuleWord = Literal["allow", "ask", "deny", "hold"]
"""Word before a rule's hosts; ``hold`` gives an allow that holds."""

_HELD = regex(r"PUT|PATCH|DELETE|POST=(?:[A-Za-z][A-Za-z0-9-]{0,63}|(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){1,8})")
"""A kind of request that a rule may hold."""
ASKED = "asked"
"""The source of a rule made from an answer. A reason may follow: ``asked, and nobody has answered in 55 s``."""
LATER = f"{ASKED}, and refused, as this command began before its pushes could be held"
"""The source of a rule made from the answer that holds a host from the next command on."""
SOME_REQUESTS, OTHER_REQUESTS = " allows only some requests there", " is for other methods or paths than "
"""Parts of the reason if rules for a host have methods or paths and none covers a request."""
_LONGEST_SHOWN = 200
"""Characters of a method and path that a reason shows."""
PUBLIC_ONLY = " allows public addresses only"
"""End of the reason if a preset's host has a private address and is refused; the preset's word is before it."""
USUAL = (80, 443)
"""The ports that an allow rule without ports covers."""


class HostRule(NamedTuple):
    action: Action
    pattern: str
    """``example.com``: that name; ``*.example.com``: names below it; ``**.example.com``: both; ``*``: every name. An
    address or a network in CIDR form matches clients that use addresses, and never a name; but it can deny the
    addresses that a name resolves to (``vet``)."""
    ports: tuple[int, ...] = ()
    """Empty: for an allow 80 and 443, since other ports need a rule that names them; for an ask and a deny every
    port."""
    methods: tuple[str, ...] = ()
    """Empty: all. Methods are known for plain and inspected HTTP only; an unknown method matches an ask or a deny, but
    no allow."""
    paths: tuple[str, ...] = ()
    """Prefixes in whole path parts; empty: all. An unknown path, or a path that servers may interpret differently, is
    treated like an unknown method."""
    private: bool = False
    """Whether the host may be in a private network or on loopback; never a metadata service or link-local."""
    inspect: bool = False
    source: str = ""
    """For people: ``policy.yaml:12``, ``preset npm``."""
    set_headers: tuple[tuple[str, str], ...] = ()
    """Pairs (name, value) set on inspected requests, replacing headers with that name."""
    remove_headers: tuple[str, ...] = ()
    """Headers that are removed from inspected requests."""
    only: bool = False
    """Requests to its hosts that no rule with ``only`` allows are denied, whatever other rules allow."""
    foreign: Literal["", "refuse", "strip"] = ""
    """``refuse`` or ``strip`` credentials in inspected requests that are not the user's (``foreign_credential.py``);
    empty: the host's credentials decide."""
    hold: bool = False
    """Pushes and publishes to its hosts wait for an apply, and all other requests that change something there are
    refused (``ext/effects``). Such a rule allows and inspects, too."""
    requests: tuple[str, ...] = ()
    """Requests that wait, too: ``PUT``, ``PATCH``, ``DELETE``, and ``POST=KEY`` if it has this key, which the server
    never takes twice: a header, or a field of its JSON body (``.order.id``)."""


class Request(NamedTuple):
    host: str
    """Canonical: ``str(parse_host(…))``."""
    port: int
    method: str = ""
    """Empty: not known."""
    path: str = ""


class HostDecision(NamedTuple):
    action: Action
    rule: HostRule | None
    reason: str


# --- the decision ---


def decide(request: Request, rules: Sequence[HostRule]) -> HostDecision:
    """Return the rules' decision about a request. Pure; their order does not matter.

    Raise ValueError if ``request.host`` is not canonical: a host that ``parse_host`` did not return is never compared.
    """
    host = parse_host(request.host.encode("utf-8", "surrogateescape"))
    if host.text != request.host:
        raise ValueError(f"{show(request.host.encode('utf-8', 'surrogateescape'))} is not in its canonical form")
    best: dict[Action, HostRule] = {}
    private = False
    for rule in rules:
        if _covers(rule, host, request):
            private |= rule.private and rule.action == "allow"
            previous = best.get(rule.action)
            if previous is None or _rank(rule) > _rank(previous):
                best[rule.action] = rule
    if "deny" in best:
        return HostDecision("deny", best["deny"], _reason(best["deny"]))
    metadata = METADATA.get(host.text)
    if metadata is not None:
        return HostDecision("deny", None, metadata)
    asks, allows = best.get("ask"), best.get("allow")
    bound = next((rule for rule in rules if rule.only and concerns(rule, host.text, request.port)), None)
    if bound is not None and not any(rule.only for rule in covering(request, rules)):
        return HostDecision("deny", bound, _label(bound) + SOME_REQUESTS)
    if host.kind != "name":
        network = network_of(host.text)
        named = private or (asks is not None and asks.private)
        reason = refused(network.prefix, private=named)
        if reason is not None:
            return HostDecision(
                "deny", None, f"{reason}; a rule that names the address opens it" if openable(network) else reason
            )
    if asks is not None:  # a yes also opens a private address that another rule permits: the question is not about that
        return HostDecision(
            "ask", asks._replace(private=asks.private or private), f"{_label(asks)} wants it asked about"
        )
    if allows is not None:  # a private address that one rule permits stays permitted if another rule allows the host
        return HostDecision("allow", allows._replace(private=private), _reason(allows))
    return HostDecision("ask", None, _no_rule(host, request, rules))


def covering(request: Request, rules: Sequence[HostRule]) -> list[HostRule]:
    """Return the rules that allow a request or ask about it."""
    host = parse_host(request.host.encode())
    return [rule for rule in rules if rule.action != "deny" and _covers(rule, host, request)]


def concerns(rule: HostRule, host: str, port: int) -> bool:
    """Return whether a rule applies to a host (canonical) and a port, for any request there."""
    request = Request(host, port)
    return _covers(rule._replace(methods=(), paths=()), parse_host(host.encode()), request)


def held(rule: HostRule) -> HostRule:
    """Return an allow rule as a rule that holds."""
    return rule._replace(hold=True, inspect=True)


def held_request(word: str) -> str:
    """Return the canonical form of a word for a kind of request that a rule may hold; "" for another word."""
    method, equals, key = word.partition("=")
    word = f"{method.upper()}{equals}{key}"
    return word if _HELD.fullmatch(word) else ""


def holding(rules: Sequence[HostRule], host: str, port: int) -> HostRule | None:
    """Return a rule that holds what is sent to a host (canonical), with the requests of all such rules; or None. Other
    rules that allow the host do not change it. Without ports it holds on every port, although it allows only the usual
    ones."""
    name = parse_host(host.encode())
    found = [r for r in rules if r.hold and matches(r.pattern, name) and (not r.ports or port in r.ports)]
    return found[0]._replace(requests=tuple(word for rule in found for word in rule.requests)) if found else None


def held_words(rule: HostRule) -> str:
    """Return words for what a rule holds. Mail has ports that are named."""
    kinds = ("pushes", "publishes", "mail") if set(rule.ports) - set(USUAL) else ("pushes", "publishes")
    return ", ".join((*kinds, *(word.replace("=", " with ") for word in rule.requests)))


def vet(
    decision: HostDecision,
    addresses: Sequence[bytes],
    own: Collection[bytes] = (),
    *,
    rules: Sequence[HostRule] = (),
    port: int = 0,
) -> str | None:
    """Return why none of the addresses that a host resolved to may be dialled, or None if all may.

    One refused address rejects the whole answer: a name with both an internet address and one of this machine is an
    attack (DNS rebinding), and picking the good addresses would hide it. ``own``: the addresses of this machine's
    interfaces. ``rules``, ``port``: a deny for an address or a network also holds for names that resolve there.
    ``decision`` is one that was allowed, by a rule or by an answer. Raise ValueError if an address is invalid.
    """
    if decision.action == "deny":
        return decision.reason
    if not addresses:
        return "it has no address"
    private = decision.rule is not None and decision.rule.private
    for packed in addresses:
        reason = refused(packed, own, private=private)
        if reason is not None:
            return f"{show_address(packed)} is {reason}{_public_only(decision.rule)}"
        address = HostName("ipv4" if len(packed) == 4 else "ipv6", show_address(packed))
        for rule in rules:
            if rule.action == "deny" and (not rule.ports or port in rule.ports) and matches(rule.pattern, address):
                return f"{address} is denied: {_label(rule)}"
    return None


def _public_only(rule: HostRule | None) -> str:
    """Return a clause that names the preset behind an allowing rule: the permission to open private addresses belongs
    to the whole preset (``allowing.py`` reads it). Such a rule's source ends with the word (``expand``)."""
    word = "" if rule is None or rule.private else rule.source.rpartition(" ")[2]
    return f"; {word}{PUBLIC_ONLY}" if word.startswith(PRESET) else ""


# --- rules as texts ---


def parse_rule(text: str, action: RuleWord, source: str = "", *, private: bool = False) -> HostRule:
    """Return the rule for ``host[:port[,port…]]``; an IPv6 address with ports is in brackets. An allow rule for a
    private address or network, or for ``localhost``, implies ``private``. ``hold``: the rule that allows and holds; the
    requests that it holds may follow, each after a space. Raise ValueError with a printable problem and the correct
    form."""
    if action == "hold":
        text, *words = text.split(" ")
        rule = held(parse_rule(text, "allow", source, private=private))
        return rule._replace(requests=_requests(rule.pattern, words))
    raw = text.encode("utf-8", "surrogateescape")
    if b"://" in raw:
        raise ValueError(f"this is a URL; write the host alone: {host_of_url(raw)}")
    pattern, ports = _split(raw)
    canonical, network = parse_pattern(pattern)
    never = METADATA.get(canonical) if network is None else unreachable(network)
    if never is not None and action != "deny":
        raise ValueError(f"{show(raw)} is {never}: no rule opens that")
    if action != "deny":
        private = private or canonical == LOCALHOST or (network is not None and openable(network))
    return HostRule(action, canonical, ports, private=private, source=source)


def _requests(pattern: str, words: Sequence[str]) -> tuple[str, ...]:
    wrong = next((word for word in words if not held_request(word)), None)
    if wrong is not None:
        what = show(wrong.encode("utf-8", "surrogateescape"))
        raise ValueError(f"{what} cannot be held; PUT, PATCH, DELETE, POST=Idempotency-Key (a header) or POST=.id can")
    if words and ("*" in pattern or "/" in pattern):
        raise ValueError(f"{pattern}: {words[0]} is held for a host that is named in full")
    return tuple(sorted(set(map(held_request, words))))


def show_rule(rule: HostRule) -> str:
    """Return the text that ``parse_rule`` reads as this rule."""
    ports = ",".join(map(str, rule.ports))
    pattern = f"[{rule.pattern}]" if ports and ":" in rule.pattern else rule.pattern
    return " ".join((f"{pattern}:{ports}" if ports else pattern, *rule.requests))


def _split(raw: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return the pattern without brackets, and the ports in order."""
    if raw.startswith(b"["):
        pattern, closed, rest = raw[1:].partition(b"]")
        if not closed or b":" not in pattern or (rest and not rest.startswith(b":")):
            raise ValueError(f"{show(raw)}: an IPv6 address stands in brackets, a port behind them: [2001:db8::1]:443")
        return pattern, _ports(raw, rest[1:]) if rest else ()
    if raw.count(b":") > 1:
        return raw, ()
    pattern, colon, ports = raw.partition(b":")
    return pattern, _ports(raw, ports) if colon else ()


def _ports(raw: bytes, ports: bytes) -> tuple[int, ...]:
    try:
        numbers = [parse_port(port) for port in ports.split(b",")]
    except ValueError as error:
        raise ValueError(f"{show(raw)}: {error}; write HOST:22 or HOST:80,443") from None
    return tuple(sorted(set(numbers)))


def host_of_url(raw: bytes) -> str:
    """Return a URL's host to print, without user and password; ``example.com`` if it has none."""
    host = raw.partition(b"://")[2].partition(b"/")[0].rpartition(b"@")[2]
    return show(host) or "example.com"


# --- matching ---


def _covers(rule: HostRule, host: HostName, request: Request) -> bool:
    return (
        matches(rule.pattern, host)
        and (request.port in (rule.ports or USUAL) if rule.action == "allow" or rule.ports else True)
        and (not rule.methods or _condition_holds(rule, request.method.isupper(), request.method in rule.methods))
        and (not rule.paths or _path_matches(rule, decoded(request.path)))
    )


def _path_matches(rule: HostRule, path: str | None) -> bool:
    return _condition_holds(rule, path is not None, _below(path, rule.paths))


def _condition_holds(rule: HostRule, is_known: bool, matched: bool) -> bool:
    """Return whether a condition matches. An unknown value allows nothing, and does not evade a deny."""
    return matched if is_known else rule.action != "allow"


def _below(path: str | None, prefixes: tuple[str, ...]) -> bool:
    return path is not None and any(
        path == prefix or path.startswith(prefix if prefix.endswith("/") else prefix + "/")
        for prefix in (decoded(prefix) or prefix for prefix in prefixes)
    )


def decoded(path: str) -> str | None:
    """Return a path without its query and with its escapes decoded; None if servers may interpret it differently.

    A path that is read in one way only has the characters of RFC 3986 3.3 but ``;``, no empty or dot segment, and
    escapes that are UTF-8 for characters that need one. An escaped character that a server could take for a dot, a
    slash or a control character, also after Unicode's compatibility mapping (NFKC), is none of these.
    """
    path = path.partition("?")[0]
    if not _SEGMENTS.fullmatch(path):
        return None
    try:
        path = _ESCAPES.sub(_unescaped, path)
    except ValueError:
        return None
    parts = path.split("/")[1:]
    return None if "" in parts[:-1] or any(part and not part.strip(" .") for part in parts) else path


def _unescaped(run: re.Match[str]) -> str:
    """Return a run of escapes decoded. Raise ValueError if servers may interpret it differently."""
    from unicodedata import category, normalize

    text = bytes.fromhex(run[0].replace("%", "")).decode()
    for character in text:
        is_letter = category(character)[0] in "LNM" and normalize("NFKC", character) == character
        if character not in _ESCAPED and (character.isascii() or not is_letter):
            raise ValueError(character)
    return text


_SEGMENTS = regex(r"/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*")
_ESCAPES = regex(r"(?:%[0-9A-Fa-f]{2})+")
_ESCAPED = frozenset(" !\"$&'()*+,:<=>@[]^`{|}")
"""ASCII characters that may be escaped in a path. The others need no escape, or separate."""


def _rank(rule: HostRule) -> tuple[bool, bool, bool, tuple[int, int], str, str]:
    """Return a sort key that selects the rule to name among rules with the same action: the rule that opens or inspects
    more, then the narrowest."""
    return rule.hold, rule.inspect, rule.private, specificity(rule.pattern), show_rule(rule), rule.source


def _reason(rule: HostRule) -> str:
    """Return why an allow or a deny decided. A rule that an answer made is told as the answer: the question may have
    ended without one."""
    if rule.source == ASKED:
        return f"{ASKED}, and {'allowed' if rule.action == 'allow' else 'refused'}"
    if rule.source.startswith(f"{ASKED}, "):
        return rule.source
    if rule.hold:
        return f"{_label(rule)} allows reading, holds {held_words(rule)} until the apply, and refuses other changes"
    return f"{_label(rule)} {'allows' if rule.action == 'allow' else 'denies'} it"


def _label(rule: HostRule) -> str:
    return f"{rule.source}: {show_rule(rule)}" if rule.source else show_rule(rule)


def _no_rule(host: HostName, request: Request, rules: Sequence[HostRule]) -> str:
    """Return the reason if no rule matches; it tells if only the port differs, or the method or path."""
    allows = [rule for rule in rules if rule.action == "allow" and matches(rule.pattern, host)]
    near = [rule for rule in allows if request.port in (rule.ports or USUAL)]
    if near and request.method:
        what = f"{request.method} {request.path}"[:_LONGEST_SHOWN]
        return _label(max(near, key=_rank)) + OTHER_REQUESTS + what
    near = [rule for rule in allows if request.port not in (rule.ports or USUAL)]
    if near:
        return f"no rule names port {request.port} of it; {_label(max(near, key=_rank))} is for other ports"
    return "no rule names it"
