"""What pairs achieve in mudroom, by way of confinement, and the reason; docs/THREATS.md says the same in words."""

from __future__ import annotations

from collections.abc import Mapping

_READ_ONLY = (
    "a lock, or an event, on a file that both can read and neither can write: flock(2) and inotify(7) need no more. A "
    "few bits pass, no descriptor and no file"
)
_HOSTS = "level 0 isolates nothing: the network and the IPC objects are the host's. Data pass, no descriptor"
_VISIBLE = "Landlock has no rule for what appears later: /proc is readable, so arguments of processes are visible"
_SOCKETS = (
    "level 0 without namespaces: Landlock of this kernel does not mediate connect(2) to a pathname socket, and the "
    "directories of the other fork have a path on the host"
)
_STORE = "a store that the user opens to both is one directory of the host, writable by both"

_SYSTEM = {f"{kind}_{ground}": _READ_ONLY for kind in ("flock", "ranges", "events") for ground in ("usr", "etc")}
_LOWER = {f"{kind}_lower": _READ_ONLY for kind in ("flock", "ranges", "events")}
_WIRES = dict.fromkeys(("tcp", "tcp_elsewhere", "tcp6", "udp", "multicast"), _HOSTS)
_OBJECTS = dict.fromkeys(("sysv_shm", "sysv_msg", "sysv_sem", "posix_mq"), _HOSTS)
_OPEN_STORE = {f"{kind}_store": _STORE for kind in ("stream", "seqpacket", "dgram", "fifo", "file")}
_CARRIED = ("file", "memfd", "socket", "pipe", "proc")
_BARE_SOCKETS = {
    **{f"{kind}_own_{place}": _SOCKETS for kind in ("stream", "seqpacket") for place in ("tmp", "project")},
    **{f"descriptor_{kind}": _SOCKETS for kind in _CARRIED},
}
_THROUGH_STORE = {
    f"descriptor_{kind}": _STORE for kind in (*_CARRIED, "path", "directory", "climb", "terminal")
}  # fmt: skip

NOT_HELD: Mapping[str, Mapping[str, str]] = {
    "1, overlay": _SYSTEM,
    "1, copy": _SYSTEM,
    "1, no namespaces": {**_SYSTEM, "process_arguments": _VISIBLE},
    "0, overlay": {**_SYSTEM, **_WIRES, **_OBJECTS},
    "0, copy": {**_SYSTEM, **_WIRES, **_OBJECTS},
    "0, no namespaces": {**_SYSTEM, **_LOWER, **_WIRES, **_BARE_SOCKETS, "process_arguments": _VISIBLE},
    "1, an open store": {**_SYSTEM, **_OPEN_STORE, **_THROUGH_STORE},
    "0, an open store": {**_SYSTEM, **_WIRES, **_OBJECTS, **_OPEN_STORE, **_THROUGH_STORE},
}  # fmt: skip
"""By ``backend.BACKENDS``. What is not named here is held."""

_UNSEEN = "export and import"
"""Nobody looks at the fork before the export, so what the accomplice has changed until then is in it. It is what the
review of the imported fork shows."""
LANDS: Mapping[tuple[str, str], str] = {
    ("1, an open store", _UNSEEN): f"{_STORE}: a socket in it carries descriptors",
    ("0, an open store", _UNSEEN): f"{_STORE}: a socket in it carries descriptors",
    ("0, no namespaces", _UNSEEN): _SOCKETS,
}
"""(backend, way) on which an accomplice changes what lands, with the reason."""
