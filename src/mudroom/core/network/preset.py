"""Presets: named groups of hosts that the tools of one ecosystem need, and no more; and model servers on this machine,
at the ports that they have unless configured otherwise.

Rules of this file: data only. A preset has no effect unless the policy names it (``network.presets``). Presets are for
reading; where a host also accepts uploads (a forge with a token, a registry with an account), ``takes`` says so, since
a command could then send away data that it can read. ``upload_host.py`` says which hosts of it do, and of what.
"""

from __future__ import annotations

from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.typing import NamedTuple


class Preset(NamedTuple):
    about: str
    hosts: tuple[str, ...]
    takes: bool = False
    """Whether any account can also publish there."""


PRESETS: dict[str, Preset] = {
    "alpine": Preset("apk", ("dl-cdn.alpinelinux.org",)),
    "bitbucket": Preset("git and archives", ("bitbucket.org:22,80,443", "api.bitbucket.org"), True),
    "codeberg": Preset("git and archives", ("codeberg.org:22,80,443",), True),
    "conda": Preset("conda, mamba", ("repo.anaconda.com", "conda.anaconda.org")),
    "cpan": Preset("Perl", ("www.cpan.org", "cpan.metacpan.org", "fastapi.metacpan.org")),
    "cran": Preset("R", ("cran.r-project.org", "cloud.r-project.org")),
    "crates": Preset("cargo", ("index.crates.io", "static.crates.io", "crates.io"), True),
    "debian": Preset("apt", ("deb.debian.org", "security.debian.org", "cdn-fastly.deb.debian.org")),
    "deno": Preset("deno.land", ("deno.land", "dl.deno.land")),
    "docker": Preset(
        "images of Docker Hub",
        (
            "registry-1.docker.io",
            "auth.docker.io",
            "index.docker.io",
            "production.cloudflare.docker.com",
            "production.cloudfront.docker.com",
            "docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com",
        ),
        True,
    ),
    "ghcr": Preset("images of GitHub", ("ghcr.io", "pkg-containers.githubusercontent.com"), True),
    "github": Preset(
        "git, releases, archives, API",
        (
            "github.com:22,80,443",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
            "media.githubusercontent.com",
        ),
        True,
    ),
    "gitlab": Preset("git, archives, API", ("gitlab.com:22,80,443",), True),
    "go": Preset("go", ("proxy.golang.org", "sum.golang.org")),
    "gradle": Preset(
        "wrapper and plugins", ("services.gradle.org", "downloads.gradle.org", "plugins.gradle.org"), True
    ),
    "hackage": Preset("cabal", ("hackage.haskell.org",), True),
    "hex": Preset("Elixir, Erlang", ("hex.pm", "repo.hex.pm", "builds.hex.pm"), True),
    "huggingface": Preset("models and data sets", ("huggingface.co", "**.hf.co", "*.huggingface.co"), True),
    "jsr": Preset("jsr.io", ("jsr.io", "npm.jsr.io"), True),
    "litellm": Preset("LiteLLM on this machine", ("localhost:4000",), True),
    "lmstudio": Preset("LM Studio on this machine", ("localhost:1234",)),
    "maven": Preset("Maven Central", ("repo.maven.apache.org", "repo1.maven.org")),
    "node": Preset("Node itself, and headers for native modules", ("nodejs.org",)),
    "npm": Preset("npm, pnpm", ("registry.npmjs.org",), True),
    "nuget": Preset(".NET", ("api.nuget.org", "www.nuget.org"), True),
    "ollama": Preset("Ollama on this machine, which also sends models to registries", ("localhost:11434",), True),
    "packagist": Preset("composer", ("repo.packagist.org", "packagist.org")),
    "pypi": Preset("pip, uv, poetry", ("pypi.org", "files.pythonhosted.org")),
    "quay": Preset("images of quay.io", ("quay.io", "*.quay.io"), True),
    "rubygems": Preset("gem, bundler", ("rubygems.org", "index.rubygems.org"), True),
    "rustup": Preset("Rust itself", ("static.rust-lang.org",)),
    "terraform": Preset("providers and modules", ("registry.terraform.io", "releases.hashicorp.com")),
    "ubuntu": Preset("apt", ("**.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com")),
    "vllm": Preset("vLLM on this machine", ("localhost:8000",)),
    "yarn": Preset("yarn", ("registry.yarnpkg.com", "repo.yarnpkg.com"), True),
}


def preset_rules(name: str) -> tuple[HostRule, ...]:
    """Return the rules of a preset. Raise KeyError if there is no such preset."""
    return tuple(parse_rule(text, "allow", f"preset {name}") for text in PRESETS[name].hosts)
