"""Rows of certification for macOS: one for each thing that Seatbelt has to refuse. Data only.

A row holds if its deed works unconfined (the control), is refused confined with EPERM or EACCES, leaves no trace
outside, and if its twin, the same deed where it is permitted, works in the same process. So a sandbox that does not
start anything, and one that refuses everything, hold no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.certify.row import Row

_FILES = (
    Row("plain_write", "files", "a file beside the project is written", "plain_write", "tree"),
    Row("plain_read", "files", "a file beside the project is read", "plain_read", "secret"),
    Row("plain_create", "files", "a file is made beside the project", "plain_create", "tree"),
    Row("truncate", "files", "a file beside the project is emptied by truncate(2)", "truncate", "tree"),
    Row("chmod", "files", "the mode of a file beside the project is changed", "chmod", "tree"),
    Row("set_times", "files", "the times of a file beside the project are changed", "set_times", "tree"),
    Row("unlink", "files", "a file beside the project is removed", "unlink", "tree"),
    Row("rmdir", "files", "a directory beside the project is removed", "rmdir", "tree"),
    Row("mkdir", "files", "a directory is made beside the project", "mkdir", "tree"),
    Row("symlink", "files", "a symbolic link is made beside the project", "symlink", "tree"),
    Row("mkfifo", "files", "a FIFO is made beside the project", "mkfifo", "tree"),
    Row("listing", "files", "a directory beside the project is listed", "listing", "secret"),
    Row("symlink_write", "files", "a link in the copy leads out; it is written through", "symlink_write", "tree"),
    Row("symlink_read", "files", "a link in the copy leads out; it is read through", "symlink_read", "secret"),
    Row("symlink_chain", "files", "a directory outside, by way of three links", "symlink_chain", "tree"),
    Row("ancestor_replaced", "files", "a directory becomes a link, and is gone through", "ancestor_replaced", "tree"),
    Row("hard_link", "files", "a file outside is linked into the copy, and written there", "hard_link", "tree",
        twin="plain_write"),
    Row("hard_link_read", "files", "a secret is linked into the copy, and read there", "hard_link_read", "secret",
        twin="plain_read"),
    Row("rename_out", "files", "a file of the copy is renamed to a place outside", "rename_out", "tree"),
    Row("rename_in", "files", "a file outside is renamed into the copy", "rename_in", "tree"),
    Row("rename_parent", "files", "a directory above what is protected is renamed", "rename_parent", "tree"),
    Row("rename_copy", "files", "the copy itself is renamed", "rename_root", "root"),
    Row("dots", "files", "up by .. more often than there are directories", "dots", "tree"),
    Row("project_write", "files", "the real project is written", "plain_write", "tree", where="project"),
    Row("project_read", "files", "the real project is read", "plain_read", "secret", where="project"),
    Row("policy_write", "files", "a policy file in the copy is written", "plain_write", "tree", where="policy"),
    Row("policy_create", "files", "a policy file in the copy is made", "plain_create", "tree", where="policy"),
    Row("masked_read", "files", "a credential among toolchains is read", "plain_read", "secret", where="mask"),
)  # fmt: skip
_NETWORK = (
    Row("tcp", "network", "a server of the host is reached by TCP", "connect_tcp", "connection", "network",
        twin="plain_write"),
    Row("udp", "network", "a server of the host is reached by UDP", "send_udp", "connection", "network",
        twin="plain_write"),
    Row("listen", "network", "a port of the host is listened at", "listen_tcp", "claim", "network",
        twin="plain_write"),
    Row("unix", "network", "a unix socket of the host is connected to", "connect_unix", "connection",
        twin="connect_unix"),
    Row("unix_bind", "network", "a unix socket is made outside", "bind_unix", "tree"),
    Row("gate_port", "network", "another port than the gate's is reached", "connect_tcp", "connection", "gate",
        way="gate", twin="connect_tcp"),
)  # fmt: skip
_PROCESSES = (
    Row("kill", "processes", "a process of the host is ended", "kill", "death", twin="plain_write"),
    Row("leftover", "processes", "a process outlives its command, by a double fork", "daemon", "process", "leftovers",
        where="copy", twin="plain_write"),
)  # fmt: skip
_LEVEL_0 = (
    Row("store_read", "level 0", "a hidden store is read", "plain_read", "secret", "level 0", "store", "level 0"),
    Row("store_write", "level 0", "a hidden store is written", "plain_write", "tree", "level 0", "store", "level 0"),
    Row("host_write", "level 0", "a file of the host is written", "plain_write", "tree", "level 0", way="level 0"),
)  # fmt: skip
_LANGUAGE = (
    Row("exception", "language", "an exception after a permission decides", "plain_read", "secret", where="copy",
        way="language"),
    Row("quoting", "language", "a name with a quote, a backslash and an accent is refused", "plain_read", "secret",
        where="copy", way="language"),
    Row("itself", "language", "a rule for a directory is for the directory itself", "listing", "secret",
        where="copy", way="language"),
    Row("precedence", "language", "rules decide by a known order", "reading", "reading", where="copy",
        way="language", twin="plain_write"),
)  # fmt: skip
READINGS: Mapping[str, str] = {
    "0000": "the last rule",
    "1000": "a rule that names the operation",
    "0110": "a rule with a filter",
    "1100": "a rule that names the operation, then one with a filter",
    "1110": "a rule with a filter, then one that names the operation",
}
"""Which of several matching rules decides, by what the deed ``reading`` may do. A profile of ``macos/seatbelt.py``
decides alike in each of them, and so not in another order."""

MACOS: Sequence[Row] = (*_FILES, *_NETWORK, *_PROCESSES, *_LEVEL_0, *_LANGUAGE)
TABLES: Mapping[str, Sequence[Row]] = {"darwin": MACOS}
"""Rows by platform, as in ``sys.platform``. A platform that is not here opens without a certificate, or not at all."""
