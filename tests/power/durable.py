"""What is durable when a verb reports its end: the table behind docs/FORMAT.md, "Power loss". No test is here.

Every verb that writes has a row with the test that cuts it, or says why nothing of it needs to last.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    durable: str
    """What is found after a power loss once the verb has reported; empty: it writes nothing that it reports."""
    tests: tuple[str, ...] = ()
    """Of ``test_power_loss.py``, or of another file by its path below tests."""


NOTHING = Row("")
_COMMAND = Row(
    "an earlier state of the fork, with its checkpoints; what it wrote is in the page cache until an apply, but for a"
    " push that its client was told is held",
    ("test_apply_of_files_that_nobody_has_synced", "test_checkpoint", "test_a_held_push"),
)
_LANDING = Row(
    "the project as the verb left it; the fork agrees; undo and redo work; of a held push that a server has heard of,"
    " that it is being sent, or its end",
    ("test_apply", "test_the_release_of_a_held_push"),
)
_ANSWER = Row("the answer", ("policy/test_policy_trust.py",))
TABLE = {
    "run": _COMMAND,
    "exec": _COMMAND,
    "shell": _COMMAND,
    "agent": _COMMAND,
    "acp": _COMMAND,
    "mcp": _COMMAND,
    "hook": _COMMAND,
    "worker": _COMMAND,
    "fleet": _COMMAND,
    "try": Row("the record of the try; its forks are as after exec", ("test_the_record_of_a_try",)),
    "fork": Row("the new name, with the files of the fork; a new fork is as after exec", ("test_rename",)),
    "checkpoint": Row("the checkpoint, with the files that it names", ("test_checkpoint",)),
    "rollback": Row("the state of the checkpoint", ("test_rollback",)),
    "keep": Row("", ("ext/outside/test_keep.py",)),  # what is stored is dropped anyway; a copy is the caller's to sync
    "comment": Row("the remark", ("ext/remarks/test_remark_faults.py",)),
    "send": Row("the mark of a sending, before the agent starts", ("ext/remarks/test_remark_faults.py",)),
    "discard": Row("the fork is gone", ("test_discard",)),
    "apply": _LANDING,
    "review": _LANDING,
    "serve": _LANDING,
    "undo": _LANDING._replace(tests=("test_undo",)),
    "redo": _LANDING._replace(tests=("test_redo",)),
    "recover": _LANDING._replace(tests=("test_recovery",)),
    "resolve": Row("the decision, with its content", ("test_resolve",)),
    "vault": Row(
        "init: the vault; gc: what was kept; export: the archive, with its name; import: as exec",
        ("test_first_use", "test_gc", "test_export"),
    ),
    "log": Row("an exported log is a copy; the events stay in the journal", ("test_gc",)),
    "approve": Row("the answer", ("vault/approvals/test_approval_faults.py",)),
    "policy": _ANSWER,
    "net": _ANSWER,
    "mount": Row("the note of the mount; what is written in it is as after exec", ("session/test_mounted_crashes.py",)),
    "unmount": Row("as exec", ("session/test_mounted_crashes.py",)),
    "ps": NOTHING,
    "ls": NOTHING,
    "status": NOTHING,
    "diff": NOTHING,
    "image": NOTHING,
    "keeper": NOTHING,
    "doctor": NOTHING,
    "completion": NOTHING,
}
