"""What mudroom does not hold, by name and with the reason; docs/THREATS.md says the same in words."""

from __future__ import annotations

from collections.abc import Mapping

_PROC = "Landlock has no rule for what appears later: /proc is readable, so processes of the host are visible"
_STAT = "Landlock does not hide names: it has nothing to say on stat(2) and inotify(7)"
NOT_HELD: Mapping[str, Mapping[str, str]] = {
    "bare": {
        "look": _STAT,
        "watch": _STAT,
        "arguments_of_victim": _PROC,
        "arguments_of_all": _PROC,
        "shm_list": _PROC,
        "list_keys": _PROC,
        "count_keys": _PROC,
        "listeners": _PROC,
        "unix_listeners": _PROC,
        "read_timers": _PROC,
        "read_vmallocs": _PROC,
        "read_slabs": _PROC,
        "capability_bounding": "an ordinary user cannot empty it; no_new_privs keeps it without effect",
    },
    "plain": {
        "count_keys": "/proc is the container's, as its engine covers it: how many keys each user has is to be seen",
        "read_timers": "the engine covers it with /dev/null, which can be opened: nothing is read",
        "write_timer_slack": "it can be opened by everybody; to write it takes CAP_SYS_NICE (timerslack_ns in proc(5))",
    },
}
"""By backend. What is not named here gets out of none."""
