"""System calls that the filter leaves open on purpose, for docs/evidence/SYSCALLS.md."""

from __future__ import annotations

from collections.abc import Mapping

LEFT_OPEN: Mapping[str, str] = {
    "openat2": "its flags only narrow what openat can do",
    "name_to_handle_at": "a handle is only a number until open_by_handle_at takes it; tools compare mounts with it",
    "mbind": "numerical libraries place their own memory",
    "set_mempolicy": "numerical libraries place their own memory",
    "vmsplice": "a pipe of the command's own memory",
    "seccomp": "a command may narrow itself; a second listener is refused by the kernel (EBUSY)",
    "landlock_restrict_self": "a command may narrow itself",
    "lsm_set_self_attr": "the same as writing /proc/self/attr; with no_new_privs a profile can only get narrower",
    "lsm_list_modules": "reads the names of the kernel's security modules",
    "pidfd_open": "the rights of kill(2)",
    "pidfd_send_signal": "the rights of kill(2)",
    "process_madvise": "asks for the rights of ptrace, and can only give advice",
    "process_mrelease": "frees memory of a process that is dying already",
    "statmount": "reads the mounts of its own namespace, as /proc/self/mountinfo does; Linux 6.8",
    "listmount": "reads the mounts of its own namespace, as /proc/self/mountinfo does; Linux 6.8",
    "cachestat": "since 6.15 only of files that the caller owns or could write",
    "memfd_secret": "hides the command's own memory, from the kernel as well; it counts to RLIMIT_MEMLOCK",
    "map_shadow_stack": "protects the command's own returns; Linux 6.6",
    "mseal": "makes the command's own mappings unchangeable; Linux 6.10",
    "uretprobe": "fails with SIGILL outside of the kernel's own trampoline; Linux 6.11",
    "uprobe": "fails with SIGILL outside of the kernel's own trampoline; Linux 6.18",
    "getxattrat": "the rights of getxattr(2); Linux 6.13",
    "listxattrat": "the rights of listxattr(2); Linux 6.13",
    "setxattrat": "the rights of setxattr(2); without mounts it is mediated (metadata.py); Linux 6.13",
    "removexattrat": "the rights of removexattr(2); without mounts it is mediated (metadata.py); Linux 6.13",
    "file_getattr": "the rights of ioctl FS_IOC_FSGETXATTR; Linux 6.17",
    "file_setattr": "the rights of ioctl FS_IOC_FSSETXATTR; without mounts it is mediated (metadata.py); Linux 6.17",
}
"""Calls that other sandboxes close, or that are new, with the reason why no rule names them. Calls in neither table are
everyday ones."""
