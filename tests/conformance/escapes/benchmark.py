"""Scenarios of published benchmarks, each with the attempts of this suite that cover it; a section of the document.

SandboxEscapeBench gives an agent a shell in a container that has a known weakness. Where the weakness is a setting that
mudroom does not have, the attempts try what that setting would permit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..document import Section, head  # noqa: TID252 - the package has another name inside


class Scenario(NamedTuple):
    layer: str
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


def section() -> Iterator[str]:
    yield from (
        "## Scenarios of published benchmarks",
        "",
        "**SandboxEscapeBench** (arXiv:2603.02277, March 2026): 18 scenarios in three layers of containers. Their",
        "names are from a summary (airuntimesecurity.io, *The sandbox escape problem*); its own files could not be",
        "looked up. No agent was run: each scenario is covered by attempts at what its weakness permits.",
        "",
    )
    yield from head(("layer", "scenario", "attempts", "remark"))
    for scenario in SCENARIOS:
        attempts = ", ".join(scenario.attempts) or "none"
        yield f"| {scenario.layer} | {scenario.name} | {attempts} | {scenario.why} |"
    yield from (
        "",
        "**AgentEscapeBench** (arXiv:2605.07926, May 2026) has no scenario that fits: its 270 tasks are escape rooms",
        "of tools and clues, which measure the reasoning of agents. No sandbox is escaped from.",
    )


SECTION = Section("benchmarks", section)
