"""Scenarios of published benchmarks, each with the attempts of this suite that cover it; a section of the document.

Most give an agent a shell in a container that has a known weakness. Where the weakness is a setting that mudroom does
not have, the attempts try what that setting would permit: they show that it is not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..document import Section, head  # noqa: TID252 - the package has another name inside


class Scenario(NamedTuple):
    layer: str
    """Or the benchmark."""
    name: str
    attempts: tuple[str, ...]
    why: str = ""
    """Why no attempt covers it."""


_NO_CLUSTER = "an orchestrator: mudroom has none"
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("orchestration", "Kubernetes RBAC bypass", (), _NO_CLUSTER),
    Scenario(
        "orchestration",
        "kubectl cp, directory traversal",
        ("symlink_write", "symlink_chain", "dots"),
        "the same fault in what brings files out; apply is tested in tests/vault/apply",
    ),
    Scenario("orchestration", "CRI-O, kernel parameters", ("walk_proc_sys", "write_core_pattern")),
    Scenario("orchestration", "route_localnet, the localhost boundary", ("tcp", "tcp_any", "udp", "route_outside")),
    Scenario("runtime", "privileged container", ("device_disks", "device_node", "capability_bounding")),
    Scenario("runtime", "exposed Docker socket", ("unix_stream", "socket_search", "socket_proc_root")),
    Scenario("runtime", "host path mounts", ("proc_1_root", "layers", "mount_bind")),
    Scenario("runtime", "CAP_SYS_ADMIN", ("mount_tmpfs", "unshare_user", "mount_cgroup", "setns_mount")),
    Scenario("runtime", "CAP_SYS_MODULE", ("machine_set_module", "machine_set_module_file", "write_modprobe")),
    Scenario("runtime", "CAP_DAC_READ_SEARCH", ("file_handle", "shadow")),
    Scenario("runtime", "runc, CVE-2019-5736", ("init_program",)),
    Scenario("runtime", "runc, CVE-2024-21626", ("inherited_files", "inherited_directories", "proc_self_cwd")),
    Scenario("kernel", "exposed PID namespace", ("proc_all_roots", "proc_victim_root", "ptrace_victim", "kill")),
    Scenario("kernel", "cgroup release_agent", ("write_release_agent", "mount_cgroup", "walk_cgroup")),
    Scenario("kernel", "eBPF verifier", ("bpf_map", "bpf_program")),
    Scenario(
        "kernel",
        "Dirty COW",
        ("memory", "ptrace_victim"),
        "only the calls that its known programs use; the kernel's own fault is not held back otherwise",
    ),
    Scenario("kernel", "Dirty Pipe", (), "splice(2) has to be allowed; a kernel without the fault is needed"),
    Scenario(
        "kernel",
        "packet socket, use after free",
        ("socket_packet", "socket_packet_dgram", "socket_packet_old", "socket_packet_type_high"),
    ),
)
"""As listed by a published summary of arXiv:2603.02277; the benchmark's own files were not read."""

_PRIVILEGED = ("device_disks", "device_node", "mount_bind", "mount_tmpfs", "capability_effective")
_PROC = ("write_core_pattern", "write_sysrq", "write_modprobe", "walk_proc_sys")
_PROCESSES = ("proc_1_root", "proc_all_roots", "ptrace_victim", "environment_of_all")
_CGROUPS = ("mount_cgroup", "write_release_agent", "walk_cgroup")
_ENGINE = ("unix_stream", "socket_search", "socket_proc_root")
_STORES = ("ssh_key", "other_project", "environment")
_IDENTITY = ("capability_effective", "filter_missing", "new_privileges")
OTHERS: tuple[Scenario, ...] = (
    Scenario("CDK", "runc-pwn", ("init_program",)),
    Scenario("CDK", "shim-pwn", ("abstract_stream", "abstract_dgram", "unix_listeners")),
    Scenario("CDK", "docker-sock-check, docker-sock-pwn, docker-api-pwn", (*_ENGINE, "tcp", "tcp_any", "tcp_mapped")),
    Scenario("CDK", "mount-disk, lxcfs-rw, rewrite-cgroup-devices", ("device_disks", "device_node", "walk_cgroup")),
    Scenario("CDK", "mount-cgroup, abuse-unpriv-userns", ("unshare_user", "unshare_both", *_CGROUPS)),
    Scenario("CDK", "mount-procfs", ("mount_proc", *_PROC)),
    Scenario("CDK", "check-ptrace", ("ptrace_victim", "ptrace_seize", "ptrace_init", "memory")),
    Scenario("CDK", "cap-dac-read-search", ("file_handle", "shadow")),
    Scenario("CDK", "evaluate: environment, files, services", (*_STORES, "arguments_of_all")),
    Scenario("CDK", "evaluate: network namespace, route_localnet", ("listeners", "tcp", "port_squat", "walk_proc_sys")),
    Scenario("CDK", "cloud metadata, reverse-shell", ("tcp", "route_outside"), "and BYPASSES.md"),
    Scenario("CDK", "webshell-deploy", ("plain_write", "create_git_hook"), "lands only if it is applied"),
    Scenario("CDK", "k8s-*, kubelet-exec, istio-check, etcd-get-k8s-token, registry-brute", (), _NO_CLUSTER),
    Scenario("sdbx", "docker: privileged, CAP_SYS_ADMIN, modules", (*_PRIVILEGED, "machine_set_module")),
    Scenario("sdbx", "docker: writable /proc, cgroup escape", (*_PROC, *_CGROUPS)),
    Scenario("sdbx", "docker: PID namespace of the host; bubblewrap without --unshare-pid", _PROCESSES),
    Scenario("sdbx", "docker: exposed socket; nsjail with the Docker socket", _ENGINE),
    Scenario("sdbx", "docker: leaky secrets; firejail --noprofile", (*_STORES, "home_unit", "home_startup")),
    Scenario("sdbx", "nsjail with CAP_SYS_ADMIN", _PRIVILEGED),
    Scenario("agentsec", "identity, resources", (*_IDENTITY, "fork_bomb", "memory_bomb", "disk_bomb")),
    Scenario("agentsec", "network", ("route_outside", "name_server"), "and BYPASSES.md"),
    Scenario("agentsec", "secrets, processes", (*_STORES, "environment_of_init", *_ENGINE, "arguments_of_all")),
    Scenario("agentsec", "file system", ("system_directory", "set_uid_program", "write_sysrq")),
)
"""Read in their own files: cdk-team/CDK 656f5c0 (Apache-2.0), prashantkul/sdbx-eval-inspect f3b6653 (no licence: its
names only), binary-knight/agentsec-pack (MIT). No code of theirs is here."""


def all_scenarios() -> Iterator[Scenario]:
    yield from (*SCENARIOS, *OTHERS)


def section() -> Iterator[str]:
    yield from (
        "## Scenarios of published benchmarks",
        "",
        "**SandboxEscapeBench** (arXiv:2603.02277, March 2026): 18 scenarios in three layers of containers. Their",
        "names are from a summary (airuntimesecurity.io, *The sandbox escape problem*); its own files could not be",
        "looked up. No agent was run: each scenario is covered by attempts at what its weakness permits.",
        "",
    )
    yield from _table(SCENARIOS, "layer")
    yield from (
        "",
        "**CDK** (cdk-team, 656f5c0, November 2025), **sdbx-eval-inspect** (prashantkul, f3b6653, November 2025; the",
        "author of SandboxBench, whose own files could not be looked up) and the probe of **agentsec-pack**",
        "(binary-knight), read in their own files, in the same way. **deepce** (stealthcopter, a08648d) was run whole",
        "by `mudroom run` without network on 2026-12-01: no container, sudo, engine's socket or group of an engine.",
        "",
    )
    yield from _table(OTHERS, "of")
    yield ""
    yield from (
        "**AgentEscapeBench** (arXiv:2605.07926, May 2026) has no scenario that fits: its 270 tasks are escape rooms",
        "of tools and clues, which measure the reasoning of agents. No sandbox is escaped from.",
    )


def _table(scenarios: Iterable[Scenario], name: str) -> Iterator[str]:
    yield from head((name, "scenario", "attempts", "remark"))
    for scenario in scenarios:
        attempts = ", ".join(scenario.attempts) or "none"
        yield f"| {scenario.layer} | {scenario.name} | {attempts} | {scenario.why} |"


SECTION = Section("benchmarks", section)
