"""Images: own names, what engines say, users' files, Containerfiles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.containers.core.image import (
    LABEL,
    Image,
    User,
    bases,
    group,
    own_name_error,
    parse_inspected,
    passwd,
    shown_labels,
    volumes_in_memory,
)
from tiers import each

DIGEST = "sha256:" + "0a" * 32


def test_what_an_image_of_ones_own_may_be_called() -> None:
    assert own_name_error("mudroom-x:1") == own_name_error("team/x") == ""
    assert own_name_error("host") == "means the host's own toolchain"
    assert own_name_error("-x") == "is not the name of an image"
    for name in ("r.io:5000/x", DIGEST, f"x@{DIGEST}"):
        assert own_name_error(name) == "is not a name for an image of this machine"


def said(**more: Any) -> list[dict[str, Any]]:
    return [{"Id": DIGEST, "Os": "linux", "Architecture": "amd64", "Config": {"Env": ["PATH=/bin", "A=b=c"]}, **more}]


def test_what_an_engine_says() -> None:
    environment = ((b"PATH", b"/bin"), (b"A", b"b=c"))
    assert parse_inspected("x", said(), "x86_64") == Image("x", DIGEST, environment)
    assert parse_inspected("x", said(Config=None), "x86_64").environment == ()
    assert parse_inspected("x", said(Config={"Env": ["=x", "y", "Z="]}), "x86_64").environment == ((b"Z", b""),)
    assert parse_inspected("x", said(Id=DIGEST[7:]), "x86_64").identity == DIGEST, "as Podman has it"
    assert parse_inspected("x", said(Architecture="arm64"), "aarch64").identity == DIGEST


def test_volumes() -> None:
    volumes: dict[str, Any] = {"/b/../data/": {}, "//x": {}, "rel": {}, "/etc": {}, "/srv": {}, "/etc/passwd": {}}
    image = parse_inspected("x", said(Config={"Volumes": volumes}), "x86_64")
    assert image.volumes == (b"/data", b"/etc", b"/etc/passwd", b"/rel", b"/srv", b"/x")
    mounted = (b"/etc/passwd", b"/srv/shown")
    assert volumes_in_memory(image, (b"/work/p",), mounted) == (b"/data", b"/etc", b"/rel", b"/srv", b"/x")


@each(
    ("volume", "at"),
    [
        ("/", "/dev"), ("/work/p/sub", "/work/p"), ("/work", "/work/p"), ("/work/p", "/work/p"),
        ("/.mudroom/lib", "/.mudroom"), ("/.mudroom-door", "/.mudroom-door"), ("/x/../proc", "/proc"),
        ("/dev/shm", "/dev"), ("/srv/data/sub", "/srv/data"),
    ],
)  # fmt: skip
def test_a_volume_that_cannot_be_had(volume: str, at: str) -> None:
    image = parse_inspected("x", said(Config={"Volumes": {volume: {}}}), "x86_64")
    with pytest.raises(ValueError, match=f"^has a volume at /[^ ]*, and {at} is not its own$"):
        volumes_in_memory(image, (b"/work/p",), (b"/srv/data",))


def test_a_volume_that_no_engine_can_be_told() -> None:
    with pytest.raises(ValueError, match="engines cannot be told"):
        volumes_in_memory(Image("x", DIGEST, volumes=(b"/a:b",)), (), ())


@each(
    ("found", "why"),
    [
        (
            said(Config={"Env": ["LD_TRACE_LOADED_OBJECTS="]}),
            "sets LD_TRACE_LOADED_OBJECTS, with which no program of it runs",
        ),
        (said(Architecture="arm64"), "is made for arm64, this machine is amd64"),
        (said(Architecture=""), "is made for , this machine is amd64"),
        (said(Os="windows"), "is made for windows, not for Linux"),
        ([], "is described by the engine in a way that is not understood"),
        ({}, "is described by the engine in a way that is not understood"),
        ([{}], "is described by the engine in a way that is not understood"),
        ([1, 2], "is described by the engine in a way that is not understood"),
    ],
)
def test_an_image_that_is_of_no_use(found: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_inspected("x", found, "x86_64")


USER = User("u", 1000, 100, b"/home/u")


def test_the_user_has_the_first_entry() -> None:
    theirs = b"root:x:0:0:root:/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/bash\n"
    assert passwd(theirs, USER) == b"u:x:1000:100::/home/u:/bin/ash\n" + theirs
    assert passwd(b"", USER) == b"u:x:1000:100::/home/u:/bin/sh\n"
    assert passwd(b"\xff\n:::\nroot:x:0:0::/root:", USER).startswith(b"u:x:1000:100::/home/u:/bin/sh\n\xff")


def test_the_users_group_has_one() -> None:
    assert group(b"", USER) == b"u:x:100:\n"
    assert group(b"root:x:0:\n", USER) == b"u:x:100:\nroot:x:0:\n"
    assert group(b"users:x:100:\n", USER) == b"users:x:100:\n"


@given(st.text(max_size=20), st.binary(max_size=60))
def test_no_name_makes_another_entry(name: str, theirs: bytes) -> None:
    made = passwd(theirs, User(name, 1000, 100, b"/home/u"))
    line, _newline, rest = made.partition(b"\n")
    assert line.count(b":") == 6
    assert line.split(b":")[2:4] == [b"1000", b"100"]
    assert rest == theirs


def test_what_a_containerfile_builds_on() -> None:
    text = """\
# syntax=docker/dockerfile:1
FROM --platform=linux/amd64 debian:bookworm AS Base
RUN echo FROM nowhere
from base
FROM scratch
FROM \\
  alpine
COPY --from=base /a /b
FROM debian:bookworm
"""
    assert bases(text) == ("debian:bookworm", "alpine")
    assert bases("") == ()


@pytest.mark.parametrize(("text", "why"), [("FROM $X", r"\$X, which a variable"), ("FROM", "names nothing")])
def test_a_base_that_cannot_be_told(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bases(text)


def test_labels() -> None:
    assert shown_labels({LABEL: "host", f"{LABEL}.made": "now", "other": "x"}) == {"from": "host", "made": "now"}
