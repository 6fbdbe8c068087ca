"""The environment in an image: its own variables, and of the host only what is named."""

from __future__ import annotations

from mudroom.ext.containers.core.container import select_image_variables
from test_environment import LEAKS, OURS, PROXIES
from tiers import each


def inside(
    image: dict[bytes, bytes], environ: dict[bytes, bytes], *extra: bytes, proxy: bytes = b""
) -> dict[bytes, bytes]:
    return select_image_variables(image, environ, home=b"/home/u", cwd=b"/p", user=b"u", proxy=proxy, extra=extra)


def test_an_image_has_its_own_variables_and_of_the_hosts_only_the_terminals() -> None:
    host = {
        b"PATH": b"/host",
        b"LANG": b"de",
        b"VIRTUAL_ENV": b"/v",
        b"PYTHONPATH": b"/x",
        b"TERM": b"xterm",
        b"CI": b"1",
    }
    image = {b"PATH": b"/image", b"JAVA_HOME": b"/j", b"HOME": b"/root", b"USER": b"root", b"TERM": b"dumb"}
    assert inside(image, host) == OURS | {
        b"PATH": b"/image", b"JAVA_HOME": b"/j", b"USER": b"u", b"LOGNAME": b"u", b"TERM": b"xterm", b"CI": b"1",
    }  # fmt: skip


def test_an_image_that_says_nothing_has_the_usual_path() -> None:
    assert inside({}, {b"PATH": b"/host"})[b"PATH"] == b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@each("name", PROXIES)
def test_an_images_proxies_are_not_the_gates(name: bytes) -> None:
    assert name not in inside({name: b"http://corp"}, {name: b"http://host"})
    found = inside({name: b"http://corp"}, {}, proxy=b"http://127.0.0.1:3128")
    assert found.get(name) in (None, b"http://127.0.0.1:3128", b"localhost,127.0.0.1,::1")


def test_what_is_asked_for_counts_before_the_image() -> None:
    found = inside({b"A": b"1", b"B": b"2"}, {b"A": b"host", b"T": b"secret"}, b"A", b"B=3", b"T", b"NONE")
    assert (found[b"A"], found[b"B"], found[b"T"]) == (b"host", b"3", b"secret")
    assert b"NONE" not in found


@each("name", LEAKS)
def test_what_of_the_host_is_not_in_an_image(name: bytes) -> None:
    assert name not in inside({}, {name: b"secret"})
