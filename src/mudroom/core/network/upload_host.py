"""Hosts at which any account, or anybody, can store data: a command that is let through can send there all that it
reads.

Rules: data only, for people who decide about a host; no rule is made from it. A row that begins with a dot stands for
the names below it, too. A host without a row may accept data as well.
"""

from __future__ import annotations

UPLOADS: dict[str, str] = {
    # forges and registries, also those in presets
    "github.com": "repositories and releases of any account",
    "api.github.com": "gists, repositories and releases of any account",
    "uploads.github.com": "releases of any account",
    "gist.github.com": "gists of any account",
    "ghcr.io": "images of any account",
    "gitlab.com": "repositories, snippets and packages of any account",
    "registry.gitlab.com": "images of any account",
    "bitbucket.org": "repositories and downloads of any account",
    "api.bitbucket.org": "repositories and downloads of any account",
    "codeberg.org": "repositories and packages of any account",
    "registry.npmjs.org": "packages of any account",
    "registry.yarnpkg.com": "packages of any account",
    "npm.pkg.github.com": "packages of any account",
    "upload.pypi.org": "packages of any account",
    "crates.io": "packages of any account",
    "rubygems.org": "packages of any account",
    "hex.pm": "packages of any account",
    "jsr.io": "packages of any account",
    "www.nuget.org": "packages of any account",
    "plugins.gradle.org": "plugins of any account",
    "hackage.haskell.org": "packages of approved accounts",
    "central.sonatype.com": "packages of any account",
    "pub.dev": "packages of any account",
    "registry-1.docker.io": "images of any account",
    "index.docker.io": "images of any account",
    "quay.io": "images of any account",
    ".quay.io": "images of any account",
    "public.ecr.aws": "images of any account",
    "huggingface.co": "models and data sets of any account",
    ".huggingface.co": "models and data sets of any account",
    "hf.co": "models and data sets of any account",
    ".hf.co": "models and data sets of any account",
    "app.vagrantup.com": "images of any account",
    # model makers
    "api.anthropic.com": "files of any account",
    "api.openai.com": "files of any account",
    "generativelanguage.googleapis.com": "files of any account",
    "api.mistral.ai": "files of any account",
    # storage, messages, paste boxes
    "storage.googleapis.com": "objects of any account",
    ".storage.googleapis.com": "objects of any account",
    "www.googleapis.com": "files of any account",
    "s3.amazonaws.com": "objects of any account",
    ".amazonaws.com": "objects of any account",
    ".blob.core.windows.net": "objects of any account",
    ".r2.cloudflarestorage.com": "objects of any account",
    ".r2.dev": "objects of any account",
    "content.dropboxapi.com": "files of any account",
    "graph.microsoft.com": "files of any account",
    "slack.com": "messages and files of any account",
    "hooks.slack.com": "messages to any channel whose address is known",
    "discord.com": "messages and files of any account",
    "api.telegram.org": "messages and files of any account",
    "pastebin.com": "texts of anybody",
    "paste.rs": "texts of anybody",
    "dpaste.com": "texts of anybody",
    "dpaste.org": "texts of anybody",
    "ix.io": "texts of anybody",
    "0x0.st": "files of anybody",
    "transfer.sh": "files of anybody",
    "file.io": "files of anybody",
    "webhook.site": "requests of anybody",
    ".ngrok.io": "requests to anybody's machine",
    ".ngrok-free.app": "requests to anybody's machine",
    ".trycloudflare.com": "requests to anybody's machine",
}


def uploads_of(host: str) -> str:
    """Return the data that a host (canonical) or a pattern's hosts take, as "packages of any account"; empty: not
    known."""
    name = host.lstrip("*").removeprefix(".") if host.startswith("*") else host
    if name in UPLOADS:
        return UPLOADS[name]
    parts = name.split(".")
    if host.startswith("*") and "." + name in UPLOADS:
        return UPLOADS["." + name]
    return next((UPLOADS[above] for at in range(1, len(parts)) if (above := "." + ".".join(parts[at:])) in UPLOADS), "")


def upload_note(host: str) -> str:
    """Return a sentence for a question about a host; empty if no row has it."""
    uploads = uploads_of(host)
    return f"it takes {uploads}" if uploads else ""
