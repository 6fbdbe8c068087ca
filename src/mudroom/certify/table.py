"""Rows of certification for macOS: one for each thing that Seatbelt has to refuse. Data only.

A row holds if its deed works unconfined (the control), is refused confined with EPERM or EACCES, leaves no trace
outside, and if its twin, the same deed where it is permitted, works in the same process. So a sandbox that does not
start anything, and one that refuses everything, hold no row. A row of the class works is the contrary: its deed is
permitted, and its own word counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mudroom.certify.row import TrialRow

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
    TrialRow("masked_read", "files", "a credential among toolchains is read", "plain_read", "secret", where="mask"),
)  # fmt: skip
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
    TrialRow("gate_port", "network", "another port than the gate's is reached", "connect_tcp", "connection", "gate",
        way="gate", twin="connect_tcp"),
)  # fmt: skip
_PROCESSES = (
    TrialRow("kill", "processes", "a process of the host is ended", "kill", "death", twin="plain_write"),
    TrialRow("leftover", "processes", "a daemon outlives its command", "daemon", "process", "leftovers",
        where="copy", twin="plain_write"),
)  # fmt: skip
_WORKS = (
    TrialRow("shell", "works", "a shell starts, and ends by exit", "shell", "works", where="copy", twin="plain_write"),
)  # fmt: skip
_LEVEL_0 = (
    TrialRow("store_read", "level 0", "a hidden store is read", "plain_read", "secret", "level 0", "store", "level 0"),
    TrialRow("store_write", "level 0", "a hidden store is written", "plain_write", "tree", "level 0", "store",
        "level 0"),
    TrialRow("host_write", "level 0", "a file of the host is written", "plain_write", "tree", "level 0", way="level 0"),
)  # fmt: skip
_LANGUAGE = (
    TrialRow("exception", "language", "an exception after a permission decides", "plain_read", "secret", where="copy",
        way="language"),
    TrialRow("quoting", "language", "a name with a quote, a backslash and an accent is refused", "plain_read", "secret",
        where="copy", way="language"),
    TrialRow("itself", "language", "a rule for a directory is for the directory itself", "listing", "secret",
        where="copy", way="language"),
    TrialRow("precedence", "language", "rules decide by a known order", "reading", "reading", where="copy",
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

MACOS: Sequence[TrialRow] = (*_WORKS, *_FILES, *_NETWORK, *_PROCESSES, *_LEVEL_0, *_LANGUAGE)
TABLES: Mapping[str, Sequence[TrialRow]] = {"darwin": MACOS}
"""Rows by platform, as in ``sys.platform``. A platform that is not here opens without a certificate, or not at all."""
