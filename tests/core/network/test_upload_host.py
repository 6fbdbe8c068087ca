"""Hosts that take uploads: in presets, and in the words of a question."""

from __future__ import annotations

from mudroom.core.network.host import parse_host
from mudroom.core.network.preset import PRESETS
from mudroom.core.network.upload_host import UPLOADS, upload_note, uploads_of
from tiers import each


@each(
    ("host", "uploads"),
    [
        ("registry.npmjs.org", "packages of any account"),
        ("registry.npmjs.org.evil.example", ""),
        ("evilregistry.npmjs.org", ""),
        ("my-bucket.s3.eu-central-1.amazonaws.com", "objects of any account"),
        ("cdn-lfs.hf.co", "models and data sets of any account"),
        ("**.hf.co", "models and data sets of any account"),
        ("*.quay.io", "images of any account"),
        ("amazonaws.com", ""),
        ("pypi.org", ""),
        ("example.com", ""),
        ("*", ""),
    ],
)
def test_a_host_says_what_it_takes(host: str, uploads: str) -> None:
    assert uploads_of(host) == uploads
    assert upload_note(host) == (f"it takes {uploads}" if uploads else "")


def test_a_preset_takes_uploads_if_one_of_its_hosts_does() -> None:
    for name, preset in PRESETS.items():
        hosts = [host.partition(":")[0] for host in preset.hosts]
        if "localhost" in hosts:  # what a server on this machine does with data is not known
            continue
        assert preset.takes == any(map(uploads_of, hosts)), name


def test_rows_are_canonical_names() -> None:
    for host in UPLOADS:
        assert str(parse_host(host.removeprefix(".").encode())) == host.removeprefix(".")
