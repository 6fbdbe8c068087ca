"""Which hosts may be reached: rules, and the one function that decides.

Rules of this file: a deny beats an ask beats an allow, whatever their order. What no rule matches is asked about where
somebody can be asked, and denied else. Only canonical hosts (``core/network/host.py``) are ever compared. Without any
rules nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from mudroom.core.network.address import openable, refused, show_address, unreachable
from mudroom.core.network.host import HostName, parse_host, parse_port
from mudroom.core.network.host_pattern import METADATA, matches, narrowness, network_of, parse_pattern
from mudroom.core.tree.path import show

Action = Literal["allow", "ask", "deny"]

USUAL = (80, 443)
"""The ports that an allow without ports opens."""


class HostRule(NamedTuple):
    action: Action
    pattern: str
    """``example.com`` itself, ``*.example.com`` what is below it, ``**.example.com`` both, ``*`` every name; or an
    address or a network in CIDR form, which is for those who use addresses: names never match it. But what a name
    leads to may be denied by it (``vet``)."""
    ports: tuple[int, ...] = ()
    """Empty: of an allow 80 and 443, other ports are opened only by a rule that names them; of an ask and a deny
    every port."""
    methods: tuple[str, ...] = ()
    """Empty: all. Known of plain and of inspected HTTP only; what is not known an allow does not match, and an ask or a
    deny does."""
    paths: tuple[str, ...] = ()
    """Prefixes, of whole parts; empty: all. As for the methods; so, too, for a path that could be read in two ways."""
    private: bool = False
    """The host may be in a private network or on loopback; never a metadata service or link-local."""
    inspect: bool = False
    source: str = ""
    """For people: ``policy.yaml:12``, ``preset npm``."""
    set_headers: tuple[tuple[str, str], ...] = ()
    """(name, value) that inspected requests get, in place of those of that name."""
    remove_headers: tuple[str, ...] = ()
    """Names of headers that inspected requests lose."""


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
    """What the rules say about a request. Pure, and the same whatever the order of the rules.

    Raises ValueError if ``request.host`` is not canonical: what was not read by ``parse_host`` is never compared."""
    host = parse_host(request.host.encode("utf-8", "surrogateescape"))
    if host.text != request.host:
        raise ValueError(f"{show(request.host.encode('utf-8', 'surrogateescape'))} is not in its canonical form")
    found: dict[Action, HostRule] = {}
    private = False
    for rule in rules:
        if _covers(rule, host, request):
            private |= rule.private and rule.action == "allow"
            other = found.get(rule.action)
            if other is None or _rank(rule) > _rank(other):
                found[rule.action] = rule
    if "deny" in found:
        return HostDecision("deny", found["deny"], f"{_named(found['deny'])} denies it")
    metadata = METADATA.get(host.text)
    if metadata is not None:
        return HostDecision("deny", None, metadata)
    asks, allows = found.get("ask"), found.get("allow")
    if host.kind != "name":
        network = network_of(host.text)
        named = private or (asks is not None and asks.private)
        why = refused(network.prefix, private=named)
        if why is not None:
            return HostDecision(
                "deny", None, f"{why}; a rule that names the address opens it" if openable(network) else why
            )
    if asks is not None:  # a yes opens what another rule says may be private: where it may be is not asked about
        return HostDecision(
            "ask", asks._replace(private=asks.private or private), f"{_named(asks)} wants it asked about"
        )
    if allows is not None:  # what one rule permits, another that allows the same does not take away
        return HostDecision("allow", allows._replace(private=private), f"{_named(allows)} allows it")
    return HostDecision("ask", None, _no_rule(host, request, rules))


def concerns(rule: HostRule, host: str, port: int) -> bool:
    """Whether a rule is about a host, which is canonical, and a port, whatever is requested there."""
    request = Request(host, port)
    return _covers(rule._replace(methods=(), paths=()), parse_host(host.encode()), request)


def vet(
    decision: HostDecision,
    addresses: Sequence[bytes],
    own: Collection[bytes] = (),
    *,
    rules: Sequence[HostRule] = (),
    port: int = 0,
) -> str | None:
    """Why none of the addresses that a host resolved to may be dialled; None: every one of them may.

    One that is refused spoils the whole answer: a name that is of the internet here and of this machine there is a
    trick (rebinding), and to pick the good ones would hide it. ``own``: the addresses of this machine's interfaces.
    ``rules``, ``port``: a deny of an address or a network holds for names that lead there, too. The decision is one
    that was allowed, by a rule or by an answer. Raises ValueError if an address is none."""
    if decision.action == "deny":
        return decision.reason
    if not addresses:
        return "it has no address"
    private = decision.rule is not None and decision.rule.private
    for packed in addresses:
        why = refused(packed, own, private=private)
        if why is not None:
            return f"{show_address(packed)} is {why}"
        address = HostName("ipv4" if len(packed) == 4 else "ipv6", show_address(packed))
        for rule in rules:
            if rule.action == "deny" and (not rule.ports or port in rule.ports) and matches(rule.pattern, address):
                return f"{address} is denied: {_named(rule)}"
    return None


# --- rules as texts ---


def parse_rule(text: str, action: Action, source: str = "", *, private: bool = False) -> HostRule:
    """``host[:port[,port…]]``; an IPv6 address with ports in brackets. A rule that allows an address or a network that
    is private means just that. Raises ValueError, printable, that says what is wrong with it and what is right."""
    raw = text.encode("utf-8", "surrogateescape")
    if b"://" in raw:
        raise ValueError(f"this is a URL; write the host alone: {_host_of_url(raw)}")
    pattern, ports = _split(raw)
    canonical, network = parse_pattern(pattern)
    never = METADATA.get(canonical) if network is None else unreachable(network)
    if never is not None and action != "deny":
        raise ValueError(f"{show(raw)} is {never}: no rule opens that")
    if network is not None and action != "deny":
        private = private or openable(network)
    return HostRule(action, canonical, ports, private=private, source=source)


def show_rule(rule: HostRule) -> str:
    """The text that ``parse_rule`` reads as this rule."""
    ports = ",".join(map(str, rule.ports))
    pattern = f"[{rule.pattern}]" if ports and ":" in rule.pattern else rule.pattern
    return f"{pattern}:{ports}" if ports else pattern


def rule_for(host: str, port: int, action: Action, source: str) -> HostRule:
    """The narrowest rule that decides about this host and port: what an answer to a question is kept as."""
    pattern = f"[{host}]" if ":" in host else host
    return parse_rule(pattern if port in USUAL and action == "allow" else f"{pattern}:{port}", action, source)


def _split(raw: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The pattern without brackets, and the ports in order."""
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
        found = [parse_port(one) for one in ports.split(b",")]
    except ValueError as error:
        raise ValueError(f"{show(raw)}: {error}; write HOST:22 or HOST:80,443") from None
    return tuple(sorted(set(found)))


def _host_of_url(raw: bytes) -> str:
    host = raw.partition(b"://")[2].partition(b"/")[0].rpartition(b"@")[2]
    return show(host) or "example.com"


# --- matching ---


def _covers(rule: HostRule, host: HostName, request: Request) -> bool:
    return (
        matches(rule.pattern, host)
        and (request.port in (rule.ports or USUAL) if rule.action == "allow" or rule.ports else True)
        and (not rule.methods or _says(rule, request.method.isupper(), request.method in rule.methods))
        and (not rule.paths or _says(rule, _is_plain(request.path), _below(request.path, rule.paths)))
    )


def _says(rule: HostRule, known: bool, matched: bool) -> bool:
    """What cannot be told is no reason to allow anything, and no way round a deny."""
    return matched if known else rule.action != "allow"


def _below(path: str, prefixes: tuple[str, ...]) -> bool:
    path = path.partition("?")[0]
    return any(path == one or path.startswith(one if one.endswith("/") else one + "/") for one in prefixes)


def _is_plain(path: str) -> bool:
    """Whether every server understands the very path that is written."""
    path = path.partition("?")[0].lower()
    parts = path.split("/")
    return (
        path.startswith("/")
        and path.isascii()
        and path.isprintable()
        and "" not in parts[1:-1]
        and {".", ".."}.isdisjoint(parts)
        and not any(one in path for one in ("\\", "%2e", "%2f", "%5c", "%00", "%25", ";", "#"))
    )


def _rank(rule: HostRule) -> tuple[bool, bool, tuple[int, int], str, str]:
    """Of rules that say the same the one that is named: the one that opens or looks at more, then the narrowest."""
    return rule.inspect, rule.private, narrowness(rule.pattern), show_rule(rule), rule.source


def _named(rule: HostRule) -> str:
    return f"{rule.source}: {show_rule(rule)}" if rule.source else show_rule(rule)


def _no_rule(host: HostName, request: Request, rules: Sequence[HostRule]) -> str:
    """Nothing matches; if it is only for the port, that is worth knowing."""
    near = [
        rule
        for rule in rules
        if rule.action == "allow" and matches(rule.pattern, host) and request.port not in (rule.ports or USUAL)
    ]
    if near:
        return f"no rule names port {request.port} of it; {_named(max(near, key=_rank))} is for other ports"
    return "no rule names it"
