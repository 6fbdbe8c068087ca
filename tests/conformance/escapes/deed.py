"""Bodies of attempts that any system can run. Certification tries the same ones (``mudroom/ext/certify/deed.py``, which
stands alone, as this suite does); tests/ext/certify/test_deed.py compares them."""

from __future__ import annotations

import os

from .attempt import World

UP = "../" * 30


def put(path: str, place: World) -> None:
    """Write the mark over the file's content."""
    with open(path, "w") as stream:
        stream.write(place.mark)


def get(path: str) -> str:
    """Return a file's content, without waiting for pipes and devices."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        return os.read(descriptor, 1 << 16).decode("latin-1")
    finally:
        os.close(descriptor)


def plain_write(place: World) -> None:
    put(f"{place.outside}/target", place)


def plain_read(place: World) -> str:
    return get(f"{place.outside}/secret")


def plain_create(place: World) -> None:
    put(f"{place.outside}/new", place)


def truncate(place: World) -> None:
    os.truncate(f"{place.outside}/target", 0)


def unlink(place: World) -> None:
    os.unlink(f"{place.outside}/target")


def rmdir(place: World) -> None:
    os.rmdir(f"{place.outside}/d")


def mkdir(place: World) -> None:
    os.mkdir(f"{place.outside}/new")


def symlink(place: World) -> None:
    os.symlink("x", f"{place.outside}/new")


def mkfifo(place: World) -> None:
    os.mkfifo(f"{place.outside}/new")


def symlink_write(place: World) -> None:
    os.symlink(f"{place.outside}/target", "symlink_write")
    put("symlink_write", place)


def symlink_read(place: World) -> str:
    os.symlink(f"{place.outside}/secret", "symlink_read")
    return get("symlink_read")


def symlink_chain(place: World) -> None:
    os.symlink(place.outside, "chain1")
    os.symlink("chain1", "chain2")
    os.symlink("./chain2/d/..", "chain3")
    put("chain3/new", place)


def ancestor_replaced(place: World) -> None:
    os.mkdir("ancestor")
    os.rename("ancestor", "ancestor-away")
    os.symlink(place.outside, "ancestor")
    put("ancestor/target", place)


def hard_link(place: World) -> None:
    os.link(f"{place.outside}/target", "hard_link")
    put("hard_link", place)


def hard_link_read(place: World) -> str:
    os.link(f"{place.outside}/secret", "hard_link_read")
    return get("hard_link_read")


def rename_out(place: World) -> None:
    put("rename_out", place)
    os.rename("rename_out", f"{place.outside}/new")


def rename_in(place: World) -> None:
    os.rename(f"{place.outside}/target", "rename_in")


def rename_parent(place: World) -> None:
    os.rename(f"{place.outside}/d", f"{place.outside}/moved")


def dots(place: World) -> None:
    put(UP + place.outside.lstrip("/") + "/target", place)
