"""Names of secret files. Matching files appear empty to commands unless the policy shows them.

A name that matches ``NEVER`` is not a secret, whatever else it matches: examples and public keys are read by programs
and hold no secret. Directories in ``ELSEWHERE`` contain third-party files (packages, builds) and are not searched.
"""

from __future__ import annotations

from collections.abc import Iterable

NAMES = frozenset(
    b""".env .netrc .pgpass .pypirc .npmrc.local .htpasswd .vault-token id_rsa id_dsa id_ecdsa id_ed25519
    credentials.json service-account.json secrets.yml secrets.yaml secrets.json .git-credentials .dockercfg
    terraform.tfvars kubeconfig""".split()
)
PREFIXES = (b".env.", b"id_rsa.", b"id_ed25519.")
SUFFIXES = (b".pem", b".key", b".p12", b".pfx", b".keystore", b".jks", b".kdbx", b".ppk")
NEVER = (b".example", b".sample", b".template", b".dist", b".pub", b".md")
ELSEWHERE = frozenset(
    b""".git .hg .svn .mudroom node_modules site-packages dist-packages vendor .venv venv .tox .nox __pycache__ target
    .next .cache .mypy_cache .pytest_cache .ruff_cache .gradle .terraform""".split()
)

UNKNOWN = (b"/",)
"""The patterns if a policy cannot be read: no file has this name."""


def is_secret(name: bytes) -> bool:
    """Return whether ``name``, a path's last component, is a secret's name."""
    lower = name.lower()
    if lower.endswith(NEVER):
        return False
    return lower in NAMES or lower.startswith(PREFIXES) or lower.endswith(SUFFIXES)


def is_masked(path: bytes, mask: Iterable[bytes], show: Iterable[bytes]) -> bool:
    """Return whether the file appears empty to commands. The policy's ``show`` comes first, then the name, then
    ``mask``."""
    if matches(path, show):
        return False
    return is_secret(path.rpartition(b"/")[2]) or matches(path, mask)


def matches(path: bytes, patterns: Iterable[bytes]) -> bool:
    """Return whether ``path`` matches one of ``patterns``: a project path, a name, or a name with ``*`` at either
    end."""
    name = path.rpartition(b"/")[2]
    for pattern in patterns:
        if pattern in (path, name) or path.startswith(pattern.rstrip(b"/") + b"/"):
            return True
        if pattern.startswith(b"*") and name.endswith(pattern[1:]):
            return True
        if pattern.endswith(b"*") and name.startswith(pattern[:-1]):
            return True
    return False
