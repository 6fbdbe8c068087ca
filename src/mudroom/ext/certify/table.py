"""Certification rows for macOS, Linux and Windows: acts that a sandbox has to refuse, or to permit. Data only.

A row holds if its deed works unconfined (the control), is refused confined with EPERM or EACCES, leaves no trace
outside, and if its twin, the same deed where it is permitted, works in the same process. So a sandbox that starts
nothing, and a sandbox that refuses everything, hold no row. In the class ``works`` the deed is permitted, and its own
word counts.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from mudroom.ext.certify.row import CanaryKind, Certificate, Closes, TrialRow

_FILES = (
    TrialRow("plain_write", "files", "a file beside the project is written", "plain_write", "tree"),
    TrialRow("plain_read", "files", "a file beside the project is read", "plain_read", "secret"),
    TrialRow("plain_create", "files", "a file is made beside the project", "plain_create", "tree"),
    TrialRow("truncate", "files", "a file beside the project is emptied by truncate(2)", "truncate", "tree"),
    TrialRow("chmod", "files", "the mode of a file beside the project is changed", "chmod", "tree"),
    TrialRow("set_times", "files", "the times of a file beside the project are changed", "set_times", "tree"),
    TrialRow("unlink", "files", "a file beside the project is removed", "unlink", "tree"),
    TrialRow("rmdir", "files", "a directory beside the project is removed", "rmdir", "tree"),
    TrialRow("mkdir", "files", "a directory is made beside the project", "mkdir", "tree"),
    TrialRow("symlink", "files", "a symbolic link is made beside the project", "symlink", "tree"),
    TrialRow("mkfifo", "files", "a FIFO is made beside the project", "mkfifo", "tree"),
    TrialRow("listing", "files", "a directory beside the project is listed", "listing", "secret"),
    TrialRow("symlink_write", "files", "a link in the copy leads out; it is written through", "symlink_write", "tree"),
    TrialRow("symlink_read", "files", "a link in the copy leads out; it is read through", "symlink_read", "secret"),
    TrialRow("symlink_chain", "files", "a directory outside, by way of three links", "symlink_chain", "tree"),
    TrialRow("ancestor_replaced", "files", "a directory is replaced by a link out", "ancestor_replaced", "tree"),
    TrialRow("hard_link", "files", "a file outside is linked into the copy, and written there", "hard_link", "tree",
        twin="plain_write"),
    TrialRow("hard_link_read", "files", "a secret is linked into the copy, and read there", "hard_link_read", "secret",
        twin="plain_read"),
    TrialRow("rename_out", "files", "a file of the copy is renamed to a place outside", "rename_out", "tree"),
    TrialRow("rename_in", "files", "a file outside is renamed into the copy", "rename_in", "tree"),
    TrialRow("rename_parent", "files", "a directory above what is protected is renamed", "rename_parent", "tree"),
    TrialRow("rename_copy", "files", "the copy itself is renamed", "rename_root", "root"),
    TrialRow("dots", "files", "up by .. more often than there are directories", "dots", "tree"),
    TrialRow("project_write", "files", "the real project is written", "plain_write", "tree", where="project"),
    TrialRow("project_read", "files", "the real project is read", "plain_read", "secret", where="project"),
    TrialRow("policy_write", "files", "a policy file in the copy is written", "plain_write", "tree", where="policy"),
    TrialRow("policy_create", "files", "a policy file in the copy is made", "plain_create", "tree", where="policy"),
    TrialRow("set_uid", "files", "a set-user-id program is made in the copy", "set_uid", "tree", where="copy",
        twin="chmod"),
    TrialRow("masked_read", "files", "a credential among toolchains is read", "plain_read", "secret", where="mask"),
)  # fmt: skip
_BESIDE_A_GATE: Sequence[tuple[str, str, str, CanaryKind]] = (
    ("ipv6", "another port is reached by IPv6", "connect_ipv6", "connection"),
    ("lan", "another port is reached at another address", "connect_other", "connection"),
    ("udp", "a server of the host is reached by UDP", "send_udp", "connection"),
    ("dns_udp", "a name is asked for by UDP, at port 53", "dns_udp", "claim"),
    ("dns_tcp", "a name is asked for by TCP, at port 53", "dns_tcp", "claim"),
    ("multicast", "a name is asked for by multicast (mDNS)", "send_multicast", "connection"),
    ("resolver", "the system's resolver of names is asked", "ask_resolver", "resolver"),
    ("unix", "a unix socket of the host is connected to", "connect_unix", "connection"),
)
# EHOSTUNREACH of lan and multicast: macOS 15 and newer refuse it to programs without the permission "Local Network"
# (Apple, TN3179). Seatbelt has to refuse it all the same, by EPERM.
_NETWORK = (
    TrialRow("tcp", "network", "a server of the host is reached by TCP", "connect_tcp", "connection", "network",
        twin="plain_write"),
    TrialRow("udp", "network", "a server of the host is reached by UDP", "send_udp", "connection", "network",
        twin="plain_write"),
    TrialRow("listen", "network", "a port of the host is listened at", "listen_tcp", "claim", "network",
        twin="plain_write"),
    TrialRow("unix", "network", "a unix socket of the host is connected to", "connect_unix", "connection",
        twin="connect_unix"),
    TrialRow("unix_bind", "network", "a unix socket is made outside", "bind_unix", "tree"),
    TrialRow("ipv6", "network", "a server of the host is reached by IPv6", "connect_ipv6", "connection", "network",
        twin="plain_write"),
    TrialRow("lan", "network", "a server is reached at another address of this machine", "connect_other", "connection",
        "network", twin="plain_write", nobody=(errno.EHOSTUNREACH,)),
    TrialRow("dns_udp", "network", "a name is asked for by UDP, at port 53", "dns_udp", "claim", "network",
        twin="plain_write"),
    TrialRow("dns_tcp", "network", "a name is asked for by TCP, at port 53", "dns_tcp", "claim", "network",
        twin="plain_write"),
    TrialRow("multicast", "network", "a name is asked for by multicast (mDNS)", "send_multicast", "connection",
        "network", twin="plain_write", nobody=(errno.EHOSTUNREACH,)),
    TrialRow("resolver", "network", "the system's resolver of names is asked", "ask_resolver", "resolver", "network",
        twin="connect_unix"),
    TrialRow("gate_port", "network", "another port than the gate's is reached", "connect_tcp", "connection", "gate",
        way="gate", twin="connect_tcp"),
    *(
        TrialRow(f"gate_{name}", "network", f"with a gate, {tries}", deed, canary, "gate", way="gate",
            twin="connect_tcp", nobody=(errno.EHOSTUNREACH,) if name in ("lan", "multicast") else ())
        for name, tries, deed, canary in _BESIDE_A_GATE
    ),
    TrialRow("gate_address", "network", "the gate's port at another address of this machine is reached",
        "connect_other", "connection", "addresses", way="gate", twin="connect_tcp", has_port_of_gate=True),
)  # fmt: skip
_PROCESSES = (
    TrialRow("kill", "processes", "a process of the host is ended", "kill", "death", twin="plain_write"),
    TrialRow("leftover", "processes", "a daemon outlives its command", "daemon", "process", "leftovers",
        where="copy", twin="plain_write"),
)  # fmt: skip
_SERVICES = tuple(
    TrialRow(name, "services", f"{tries} ({service})", "look_up", "service", twin="look_up_permitted", service=service)
    for name, tries, service in (
        ("pasteboard", "the user's clipboard is asked for", "com.apple.pasteboard.1"),
        ("open", "the service that starts programs is asked for", "com.apple.coreservices.launchservicesd"),
        ("apple_events", "the service that controls other programs is asked for", "com.apple.coreservices.appleevents"),
        ("keychain", "the keychain is asked for", "com.apple.SecurityServer"),
        ("preferences", "the settings of all programs are asked for", "com.apple.cfprefsd.daemon"),
        ("file_events", "the changes of all files are asked for", "com.apple.FSEvents"),
    )
)
_TERMINALS = (
    TrialRow("terminal", "services", "a text is written to another terminal of the user", "write_terminal", "terminal",
        twin="own_terminal"),
    TrialRow("arguments", "services", "the arguments of another process are read", "arguments", "arguments",
        twin="plain_write"),
)  # fmt: skip
_LIMITS = (
    TrialRow("open_files", "limits", "more files are opened than the limit", "open_many", "claim", "limits",
        where="copy", twin="plain_write", errors=(errno.EMFILE,)),
    TrialRow("file_size", "limits", "a file grows beyond the limit", "write_long", "claim", "limits", where="copy",
        twin="plain_write", errors=(errno.EFBIG,)),
)  # fmt: skip
_WORKS = (
    TrialRow("shell", "works", "a shell starts, and ends by exit", "shell", "works", where="copy", twin="plain_write"),
    TrialRow("git", "works", "git starts, and ends by exit", "git", "works", "tools", where="copy", twin="plain_write"),
)  # fmt: skip
_LEVEL_0 = (
    TrialRow("store_read", "level 0", "a hidden store is read", "plain_read", "secret", "level 0", "store", "level 0"),
    TrialRow("store_write", "level 0", "a hidden store is written", "plain_write", "tree", "level 0", "store",
        "level 0"),
    TrialRow("store_listing", "level 0", "a hidden store is listed", "listing", "secret", "level 0", "store",
        "level 0"),
    TrialRow("project_read_0", "level 0", "the real project is read", "plain_read", "secret", "level 0", "project",
        "level 0"),
    TrialRow("policy_write_0", "level 0", "a policy file in the copy is written", "plain_write", "tree", "level 0",
        "policy", "level 0"),
    TrialRow("pasteboard_0", "level 0", "the user's clipboard is asked for, with the host's network", "look_up",
        "service", "level 0", way="level 0", twin="look_up_permitted", service="com.apple.pasteboard.1"),
    TrialRow("host_write", "level 0", "a file of the host is written", "plain_write", "tree", "level 0", way="level 0"),
)  # fmt: skip
_LANGUAGE = (
    TrialRow("exception", "language", "an exception after a permission decides", "plain_read", "secret", where="copy",
        way="language"),
    TrialRow("quoting", "language", "a name with a quote and a backslash is refused", "plain_read", "secret",
        where="copy", way="language"),
    TrialRow("accent", "language", "a name with an accent is refused", "plain_read", "secret", "names", "copy",
        "language"),
    TrialRow("itself", "language", "a rule for a directory is for the directory itself", "listing", "secret",
        where="copy", way="language"),
    TrialRow("precedence", "language", "rules decide by a known order", "reading", "reading", where="copy",
        way="language", twin="plain_write"),
)  # fmt: skip
_OF_THE_VAULT: Sequence[tuple[str, Closes, str]] = (
    ("copy_apart", "platform", "a copy of a file is written, and the file itself is read"),
    ("no_replace", "platform", "a file is renamed to a name that is taken"),
    ("swap", "platform", "two files are swapped"),
    ("kill_9", "platform", "an apply is killed in each of its states, recovered and undone"),
    ("clone", "clones", "a file is cloned"),
    ("one_step", "renames", "files are swapped, and renamed without replacing, by one call each"),
    ("flush", "flush", "a file is flushed to the disk"),
)
_VAULT = tuple(
    TrialRow(name, "vault", tries, name, "claim", closes, way="vault") for name, closes, tries in _OF_THE_VAULT
)
"""Tried by ``volume.py``: a reported success must have its effect, and no data may be lost by it."""
KINDS: Mapping[str, str] = {
    "works": "a shell and git start in the sandbox",
    "files": "files beside the copy, the project and the policy are out of reach",
    "network": "servers of this machine, of its network and of names are out of reach",
    "services": "other terminals, services and arguments of processes are out of reach",
    "rights": "no right and no handle is left to the command",
    "processes": "no other process is ended, and none outlives its command",
    "limits": "limits of a command are kept",
    "level 0": "at level 0, credentials cannot be read and files cannot be written",
    "language": "the rules of the sandbox are read as they are meant",
    "vault": "copies, renames, apply and undo lose no file, even after kill -9",
}
"""The meaning of a class whose rows all held, in words for people."""
READINGS: Mapping[str, str] = {
    "0000": "the last rule",
    "1000": "a rule that names the operation",
    "0110": "a rule with a filter",
    "1100": "a rule that names the operation, then one with a filter",
    "1110": "a rule with a filter, then one that names the operation",
}
"""Which rule decides if several match, by the acts that the deed ``reading`` may do. A profile from
``macos/seatbelt.py`` decides alike in each order listed here; in another order it may not."""

MACOS: Sequence[TrialRow] = (
    *_WORKS, *_FILES, *_NETWORK, *_SERVICES, *_TERMINALS, *_PROCESSES, *_LIMITS, *_LEVEL_0, *_LANGUAGE, *_VAULT,
)  # fmt: skip
_ABSENT = (
    0, errno.EPERM, errno.EACCES, errno.ENOENT, errno.EROFS, errno.EBUSY, errno.EXDEV, errno.ESRCH, errno.ECONNREFUSED,
    errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENODEV, errno.EAFNOSUPPORT,
)  # fmt: skip
"""Error numbers in a view where the deed's aim is not there, because the command has its own place, processes or
network. 0: the deed had its effect there, and none outside."""
_NOT_LINUX = ("listen", "set_uid", "unix_bind", "dns_udp", "dns_tcp", "resolver")
"""Permitted there: a command has its own loopback, with its own port 53, and set-user-id bits have no effect in a
sandbox. A socket that is made outside is an escape suite row."""
LINUX: Sequence[TrialRow] = (
    *(
        row if row.canary == "works" or row.kind == "limits" else row._replace(errors=_ABSENT)
        for row in (*_WORKS, *_FILES, *_NETWORK, *_TERMINALS, *_PROCESSES, *_LIMITS)
        if row.way == "level 1" and row.name not in _NOT_LINUX
    ),
    *_VAULT,
)
"""Rows for Linux: the same deeds. They open nothing there: the kernel's promises and the escape suite do."""
KNOWN = frozenset(("policy_write", "policy_create", "unix", "terminal", "arguments"))
"""Rows that do not hold on Linux without namespaces: nothing is mounted read-only in the copy (changes to ``.mudroom``
are never applied), no unix socket can be connected to and no terminal be made by its path, /proc is the host's."""


def expected(platform: str, certificate: Certificate) -> Sequence[TrialRow]:
    """Return the rows that have to hold before commands can be said to be confined."""
    table = TABLES[platform]
    if platform == "linux" and certificate.system.endswith("without namespaces"):
        return tuple(row for row in table if row.name not in KNOWN)
    return table


_DROPPED = (errno.ETIMEDOUT, 10060)
"""Error numbers of a connection whose packets are dropped where they arrive: so the firewall keeps an AppContainer from
the host's loopback, and the host from a server in it. 10060 is WSAETIMEDOUT."""
_CONTAINER = (errno.EPERM, errno.EACCES, 10013)
"""Error numbers by which an AppContainer refuses; 10013 is WSAEACCES, for sockets."""
CLIPBOARD = "the clipboard"
"""Service for a row that needs something in the clipboard."""
_NO_PRIVILEGE = 1314
"""ERROR_PRIVILEGE_NOT_HELD: symbolic links are for administrators and for machines in developer mode."""
_BESIDE_A_BRIDGE: Sequence[tuple[str, str, str, CanaryKind]] = (
    ("bridge", "another port than the bridge's is reached", "connect_tcp", "connection"),
    ("bridge_address", "the gate's listener is reached without the bridge", "gate_itself", "listener"),
    ("bridge_pipe", "another container connects to the bridge's pipe", "open_pipe", "pipe"),
)
_WINDOWS_ROWS: Sequence[TrialRow] = (
    TrialRow("cmd", "works", "cmd.exe starts, and ends by exit", "command_shell", "works", where="copy",
        twin="plain_write"),
    TrialRow("python", "works", "its own Python starts", "own_python", "works", where="copy", twin="plain_write"),
    TrialRow("nul", "works", "NUL can be opened", "open_null", "works", "tools", where="copy", twin="plain_write"),
    TrialRow("final_path", "works", "GetFinalPathNameByHandle answers", "final_path", "works", "tools",
        where="copy", twin="plain_write"),
    TrialRow("write", "files", "a file beside the project is written", "plain_write", "tree"),
    TrialRow("read", "files", "a file beside the project is read", "plain_read", "secret"),
    TrialRow("create", "files", "a file is made beside the project", "plain_create", "tree"),
    TrialRow("unlink", "files", "a file beside the project is removed", "unlink", "tree"),
    TrialRow("mkdir", "files", "a directory is made beside the project", "mkdir", "tree"),
    TrialRow("listing", "files", "a directory beside the project is listed", "listing", "secret"),
    TrialRow("rename", "files", "a file outside is renamed into the copy", "rename_in", "tree"),
    TrialRow("link", "files", "a hard link to a file outside is made", "hard_link", "tree", twin="plain_write"),
    TrialRow("project", "files", "the real project is written", "plain_write", "tree", where="project"),
    TrialRow("policy", "files", "a policy file in the copy is written", "plain_write", "tree", where="policy"),
    TrialRow("loopback", "network", "the host's loopback is reached", "connect_tcp", "connection", "network",
        twin="plain_write", errors=_DROPPED),
    TrialRow("tcp", "network", "a server is reached at another address of this machine", "connect_other",
        "connection", "network", twin="plain_write", errors=_DROPPED),
    TrialRow("udp", "network", "a server of the host is reached by UDP", "send_udp", "connection", "network",
        twin="plain_write", errors=(0,)),
    TrialRow("served", "network", "a program of the host is served from inside", "serve", "caller", "network",
        twin="plain_write", errors=_DROPPED),
    TrialRow("kill", "processes", "a process of the host is ended", "kill", "death", twin="plain_write"),
    TrialRow("restricted", "level 0", "a file of the user is written", "plain_write", "tree", "level 0",
        way="level 0"),
    TrialRow("users", "level 0", "what all users may write is written", "plain_write", "tree", "level 0", "users",
        "level 0"),
    TrialRow("policy_0", "level 0", "a policy file in the copy is written", "plain_write", "tree", "level 0", "policy",
        "level 0"),
    TrialRow("local_pipe", "works", "a pipe below \\\\.\\pipe\\LOCAL can be made", "local_pipe", "works", "tools",
        where="copy", twin="plain_write"),
    TrialRow("junction", "files", "a junction is put in place of a directory of the copy", "junction", "tree",
        twin="plain_write"),
    TrialRow("symlink", "files", "a symbolic link is put in place of a directory of the copy", "symbolic_link", "tree",
        twin="plain_write", errors=(_NO_PRIVILEGE,), nobody=(_NO_PRIVILEGE,)),
    TrialRow("stream", "files", "an alternate data stream is written", "stream", "tree"),
    TrialRow("other_container", "files", "the files of another container are read", "plain_read", "secret",
        where="container"),
    TrialRow("share", "files", "\\\\localhost is opened, this machine as a server of files", "share", "claim",
        twin="plain_write", errors=(errno.ENOENT, errno.EINVAL)),
    TrialRow("handles", "rights", "a file is written through a handle of mudroom's", "handles", "handle",
        twin="plain_write"),
    TrialRow("privileges", "rights", "a privilege is enabled", "privileges", "claim", twin="plain_write"),
    TrialRow("integrity", "rights", "the integrity is raised", "integrity", "claim", twin="plain_write"),
    TrialRow("container", "rights", "the token is of no container", "container", "claim", twin="plain_write"),
    TrialRow("registry", "rights", "a key of the user's registry is written", "registry", "key", twin="plain_write"),
    TrialRow("clipboard", "services", "the clipboard is read", "clipboard", "claim", twin="plain_write",
        service=CLIPBOARD),
    TrialRow("wmi", "services", "WMI, which starts processes, is connected to", "wmi", "claim", twin="plain_write"),
    TrialRow("tasks", "services", "the task scheduler is connected to", "tasks", "claim", twin="plain_write"),
    TrialRow("com", "services", "a COM server is started", "com", "claim", twin="plain_write"),
    TrialRow("pipe_squat", "services", "the pipe of another program is made first", "pipe_squat", "claim",
        twin="plain_write"),
    TrialRow("breakaway", "processes", "a process leaves the job", "breakaway", "claim", twin="child",
        nobody=(errno.EACCES,)),
    TrialRow("nested", "processes", "a process outlives its command in a nested job", "nested", "process", "leftovers",
        where="copy", twin="plain_write"),
    TrialRow("memory", "limits", "more memory is committed than the limit", "memory", "claim", "limits", where="copy",
        twin="plain_write", errors=(errno.ENOMEM,)),
    TrialRow("processes", "limits", "more processes start than the limit", "processes", "claim", "limits",
        where="copy", twin="plain_write", errors=(errno.ENOMEM,)),
)  # fmt: skip
_FROM_WINDOWS: Sequence[TrialRow] = tuple(
    row if row.kind == "limits" else row._replace(errors=(*_CONTAINER, *row.errors)) for row in _WINDOWS_ROWS
)
_GATE_ON_WINDOWS: Sequence[TrialRow] = (
    *(
        TrialRow(name, "network", tries, deed, canary, "gate", way="gate", twin="through_bridge",
            has_port_of_gate=canary == "listener", errors=(*_CONTAINER, *_DROPPED))
        for name, tries, deed, canary in _BESIDE_A_BRIDGE
    ),
)  # fmt: skip
_VAULT_ON_WINDOWS = tuple(
    TrialRow(name, "vault", tries, name, "claim", way="vault")
    for name, tries in (
        ("sharing", "a file that is held open is replaced"),
        ("reparse", "a junction on the way to a file is followed"),
    )
)
WINDOWS: Sequence[TrialRow] = (*_FROM_WINDOWS, *_VAULT_ON_WINDOWS, *_VAULT, *_GATE_ON_WINDOWS)
"""Rows for Windows. The gate's rows come last: a relay that does not start takes time, which the rows without a gate
must not lack. There is no row for files that Everyone may write: they are writable at level 0, which each command there
is told (``ext/windows/sandbox/plan.py``). A datagram to the host's loopback is dropped where it arrives, so ``udp`` is
refused without an error. A container may listen, as the relay does; ``served`` is about who reaches it.

The tests' stand-in confines on Linux, and Wine confines nothing: only a record from a real Windows opens anything.
"""
TABLES: Mapping[str, Sequence[TrialRow]] = {"darwin": MACOS, "linux": LINUX, "win32": WINDOWS}
"""Rows by platform, as in ``sys.platform``."""
