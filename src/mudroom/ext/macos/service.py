"""macOS services and kernel settings that a command may use. Tables, each row with its reason. Pure.

A service is another process, outside the sandbox, which acts for its client with its own rights. So every row is an
exception that needs a reason. Left out, and so refused by ``(deny default)``:

* ``com.apple.pasteboard.1`` (the user's clipboard), ``com.apple.coreservices.launchservicesd`` and the operation
  ``lsopen`` (they start programs *outside* the sandbox), ``appleevent-send`` (it controls Finder or Terminal),
  ``job-creation`` and ``mach-register`` (launchd runs the given program, outside), ``com.apple.cfprefsd.*`` (every
  program's settings, which often hold tokens), ``com.apple.FSEvents`` (names of all files that any program changes),
  ``com.apple.logd`` (a log that outlives the command);
* ``com.apple.trustd.agent``: it fetches URLs that a certificate names (OCSP, CA issuers), so it is a way out that no
  gate sees. Go, and programs with Apple's TLS, cannot verify certificates without it: they have it where the network is
  open.

Compared with: the profiles in Chromium (sandbox/policy/mac/common.sb), Firefox (SandboxPolicyContent.h), Codex
(seatbelt_base_policy.sbpl), Anthropic's sandbox-runtime (macos-sandbox-utils.ts) and agent-safehouse
(10-system-runtime.sb); this list is shorter than each.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple


class Service(NamedTuple):
    name: str
    when: str
    """``always``, ``network`` (gate or open), ``open``, or the credential store that has to be open."""
    why: str


MACH = (
    Service("com.apple.system.opendirectoryd.libinfo", "always", "getpwuid(3): who the user is, for git, ssh, id"),
    Service("com.apple.system.notification_center", "always", "notify(3): libc asks whether the time zone changed"),
    Service(
        "com.apple.SystemConfiguration.configd",
        "network",
        "settings of proxies: uv and cargo abort if they cannot ask; only root can change something there",
    ),
    Service("com.apple.SystemConfiguration.DNSConfiguration", "open", "which DNS servers there are"),
    Service("com.apple.dnssd.service", "open", "names are looked up by mDNSResponder"),
    Service("com.apple.trustd.agent", "open", "certificates are verified, and what they name is fetched"),
    Service("com.apple.trustd", "open", "the same for the whole machine"),
    Service("com.apple.SecurityServer", "keychain", "items of the keychain, and who may have them"),
    Service("com.apple.securityd.xpc", "keychain", "the same, for newer programs"),
    Service("com.apple.securityd.general", "keychain", "the same, for newer programs"),
    Service("com.apple.coreservices.launchservicesd", "display", "the user's browser is told to open a page"),
    Service("com.apple.lsd.mapdb", "display", "which program opens what"),
    Service("com.apple.lsd.open", "display", "opens it"),
)

GUARDED = (
    *(row for row in MACH if row.when in ("keychain", "display")),
    Service("com.apple.pasteboard.1", "display", "what the user has copied"),
    Service("com.apple.coreservices.appleevents", "", "other programs are told what to do"),
    Service("com.apple.coreservices.quarantine-resolver", "", "takes marks of origin from files"),
    Service("com.apple.cfprefsd.daemon", "", "writes settings of other programs"),
    Service("com.apple.cfprefsd.agent", "", "writes settings of other programs"),
)
"""Services that remain refused at level 0 with the host's network, where all others are permitted, unless their store
is open. With any other network the list above applies, with those rows here that belong to an open store."""

SYSCTL = (
    "kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.maxfilesperproc", "kern.maxproc",
    "kern.ngroups", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osvariant_status", "kern.osversion",
    "kern.secure_kernel", "kern.tcsm_available", "kern.usrstack64", "kern.version", "machdep.ptrauth_enabled",
    "security.mac.lockdown_mode_state", "sysctl.proc_cputype", "sysctl.proc_translated", "vm.loadavg",
)  # fmt: skip
"""Facts about the machine. Not ``kern.procargs2``: other processes' arguments and variables, which hold tokens.
``kern.proc.pid`` gives any process's name, parent, user and times by its pid: runtimes query themselves, and a rule
cannot restrict the pid."""
SYSCTL_PREFIXES = ("hw.", "machdep.cpu.", "kern.proc.pid.", "kern.proc.pgrp.")
SYSCTL_OF_NETWORK = "net.routetable."
"""Interfaces and their addresses: getifaddrs(3)."""


def services(table: tuple[Service, ...], network: str, stores: tuple[str, ...]) -> tuple[Service, ...]:
    """Return the rows that apply with this network and these open stores."""
    met = {"always", *stores, *(("network",) if network != "none" else ()), *(("open",) if network == "open" else ())}
    return tuple(row for row in table if row.when in met)
