"""Netlink messages for the kernel's network configuration: routes (rtnetlink(7)) and a redirection (nftables).

A netlink attribute is a 16 bit length and a 16 bit type before its value, padded to four bytes. Numbers in nftables
messages are big-endian (include/uapi/linux/netfilter/nf_tables.h); in route messages they are in the machine's byte
order. The launcher sends the messages (``src/native/launcher/listener.c``).
"""

from __future__ import annotations

import functools

AF_INET, AF_INET6 = 2, 10
IFF_UP = 1
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE, _NLM_F_APPEND = 1, 4, 0x200, 0x400, 0x800
_NLA_F_NESTED = 0x8000

_RTM_NEWLINK = 16
_RTM_NEWROUTE, _RT_TABLE_LOCAL, _RTPROT_BOOT, _RT_SCOPE_HOST, _RTN_LOCAL, _RTA_OIF = 24, 255, 3, 254, 2, 4
_LOOPBACK = 1
"""The index of ``lo`` in every network namespace (LOOPBACK_IFINDEX in include/net/flow.h)."""

_NFNL_BEGIN, _NFNL_END, _NFTABLES, _NFPROTO_INET = 0x10, 0x11, 10, 1
_NEWTABLE, _NEWCHAIN, _NEWRULE = 0, 3, 6
_LOCAL_OUT, _NAT_PRIORITY = 3, -100
_META_L4PROTO, _META_NFPROTO, _NETWORK_HEADER, _TRANSPORT_HEADER = 16, 15, 1, 2
_EQUAL, _NOT_EQUAL, _ACCEPT, _TCP = 0, 1, 1, 6


def attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return length.to_bytes(2, "little") + kind.to_bytes(2, "little") + value + bytes(-length % 4)


def message(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    """Return a netlink message. struct nlmsghdr: length, type, flags, sequence, port."""
    head = (16 + len(payload)).to_bytes(4, "little") + kind.to_bytes(2, "little")
    return head + (flags | _NLM_F_REQUEST).to_bytes(2, "little") + sequence.to_bytes(4, "little") + bytes(4) + payload


def bring_loopback_up(sequence: int) -> bytes:
    """Return the message for ``ip link set lo up``. struct ifinfomsg: family, type, index, flags and the mask for the
    flags that change (rtnetlink(7))."""
    link = bytes(4) + _LOOPBACK.to_bytes(4, "little") + 2 * IFF_UP.to_bytes(4, "little")
    return message(_RTM_NEWLINK, _NLM_F_ACK, sequence, link)


def route_everything_here(family: int, sequence: int = 1) -> bytes:
    """Return the message for ``ip route add local default dev lo``: every address is local, so a connection to any
    address reaches the listeners here (AnyIP in Documentation/networking/ip-sysctl.rst)."""
    route = bytes((family, 0, 0, 0, _RT_TABLE_LOCAL, _RTPROT_BOOT, _RT_SCOPE_HOST, _RTN_LOCAL)) + bytes(4)
    payload = route + attribute(_RTA_OIF, _LOOPBACK.to_bytes(4, "little"))
    return message(_RTM_NEWROUTE, _NLM_F_ACK | _NLM_F_CREATE | _NLM_F_EXCL, sequence, payload)


@functools.cache
def routes() -> bytes:
    """Return the messages that bring ``lo`` up and route every address of both families to this namespace. The last
    may fail: without IPv6 in the kernel no process can use it."""
    return bring_loopback_up(1) + route_everything_here(AF_INET, 2) + route_everything_here(AF_INET6, 3)


@functools.cache
def redirect_to(port: int) -> bytes:
    """Return a batch, applied as a whole or not at all, that redirects every outgoing TCP connection to the local
    ``port``, except those to loopback and to DNS. In nft(8) language::

        table inet mudroom { chain out { type nat hook output priority -100
            meta nfproto ipv4 @nh,128,8 0x7f accept
            meta nfproto ipv6 ip6 daddr ::1 accept
            meta l4proto tcp tcp dport != 53 redirect to :PORT } }
    """
    table, chain = b"mudroom\0", b"out\0"
    hook = attribute(1, _be32(_LOCAL_OUT)) + attribute(2, _be32(_NAT_PRIORITY))
    of_chain = [(1, table), (3, chain), (4 | _NLA_F_NESTED, hook), (7, b"nat\0")]
    ipv4, ipv6 = ([_meta(_META_NFPROTO), _compare(bytes([family]))] for family in (AF_INET, AF_INET6))
    rules = (
        [*ipv4, _payload(_NETWORK_HEADER, 16, 1), _compare(b"\x7f"), _ACCEPTED],
        [*ipv6, _payload(_NETWORK_HEADER, 24, 16), _compare(bytes(15) + b"\x01"), _ACCEPTED],
        [
            _meta(_META_L4PROTO),
            _compare(bytes([_TCP])),
            _payload(_TRANSPORT_HEADER, 2, 2),
            _compare((53).to_bytes(2, "big"), _NOT_EQUAL),
            _immediate(port.to_bytes(2, "big")),
            _expression(b"redir", (1, _be32(1))),
        ],
    )
    bodies = [(_NEWTABLE, [(1, table)]), (_NEWCHAIN, of_chain)]
    bodies += [(_NEWRULE, [(1, table), (2, chain), (4 | _NLA_F_NESTED, b"".join(rule))]) for rule in rules]
    batch = [_batch(_NFNL_BEGIN, 1)]
    for sequence, (kind, attributes) in enumerate(bodies, 2):
        payload = bytes((_NFPROTO_INET, 0, 0, 0)) + b"".join(attribute(key, value) for key, value in attributes)
        flags = _NLM_F_ACK | _NLM_F_CREATE | (_NLM_F_APPEND if kind == _NEWRULE else 0)
        batch.append(message(_NFTABLES << 8 | kind, flags, sequence, payload))
    return b"".join((*batch, _batch(_NFNL_END, len(batch) + 1)))


def _batch(kind: int, sequence: int) -> bytes:
    return message(kind, 0, sequence, bytes((0, 0)) + _NFTABLES.to_bytes(2, "big"))


def _be32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def _expression(name: bytes, *attributes: tuple[int, bytes]) -> bytes:
    data = b"".join(attribute(kind, value) for kind, value in attributes)
    return attribute(1 | _NLA_F_NESTED, attribute(1, name + b"\0") + attribute(2 | _NLA_F_NESTED, data))


def _meta(key: int) -> bytes:
    """Load into register 1, as the other expressions do: one value is compared at a time."""
    return _expression(b"meta", (1, _be32(1)), (2, _be32(key)))


def _payload(base: int, offset: int, length: int) -> bytes:
    return _expression(b"payload", (1, _be32(1)), (2, _be32(base)), (3, _be32(offset)), (4, _be32(length)))


def _compare(value: bytes, operation: int = _EQUAL) -> bytes:
    return _expression(b"cmp", (1, _be32(1)), (2, _be32(operation)), (3 | _NLA_F_NESTED, attribute(1, value)))


def _immediate(value: bytes) -> bytes:
    return _expression(b"immediate", (1, _be32(1)), (2 | _NLA_F_NESTED, attribute(1, value)))


_ACCEPTED = _expression(
    b"immediate", (1, _be32(0)), (2 | _NLA_F_NESTED, attribute(2 | _NLA_F_NESTED, attribute(1, _be32(_ACCEPT))))
)
