"""Presets: named groups of hosts that one ecosystem's tools need, and no more; and model servers on this machine, at
the ports that they have unless configured otherwise.

Rules:

1. A preset has no effect unless a rule names it: ``@npm`` among the hosts in a policy or in this machine's answers, or
   ``npm`` in ``network.presets``. Files keep the word, so that a rule follows a later version's table.
2. A word becomes rules for its hosts (``host_entry.py:expand``) where files become rules, before anything is decided:
   ``host_pattern.py`` refuses to compare a word with a host.
3. Presets are for reading. If a host also accepts uploads (a forge with a token, a registry with an account), ``takes``
   says so, since a command could then send away data that it can read; ``upload_host.py`` says which host takes which
   data. Object stores that serve any customer (storage.googleapis.com, amazonaws.com) are in no preset, although some
   registries redirect there.
4. A preset's first host is the one that its tool asks first: a question about that host offers the preset.
5. ``source`` is the page on which the host's maker names the hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from mudroom.core.network.host import parse_host
from mudroom.core.network.host_pattern import LOCALHOST, PRESET, matches
from mudroom.core.network.host_rules import USUAL, HostRule, parse_rule
from mudroom.typing import NamedTuple


class Preset(NamedTuple):
    about: str
    """The tools that it is for."""
    hosts: tuple[str, ...]
    source: str
    takes: bool = False
    """Whether any account can also publish there."""


PRESETS: dict[str, Preset] = {
    "alpine": Preset("apk", ("dl-cdn.alpinelinux.org",), "https://wiki.alpinelinux.org/wiki/Repositories"),
    "android": Preset(
        "Google's Maven repository", ("maven.google.com", "dl.google.com"), "https://maven.google.com/web/index.html"
    ),
    "archlinux": Preset(
        "pacman",
        ("geo.mirror.pkgbuild.com", "fastly.mirror.pkgbuild.com"),
        "https://wiki.archlinux.org/title/Mirrors",
    ),
    "bitbucket": Preset(
        "git and archives",
        ("bitbucket.org:22,80,443", "api.bitbucket.org"),
        "https://support.atlassian.com/bitbucket-cloud/docs/what-are-the-bitbucket-cloud-ip-addresses-i-should-use-to-configure-my-corporate-firewall/",
        takes=True,
    ),
    "clojars": Preset("lein, Clojure", ("repo.clojars.org",), "https://github.com/clojars/clojars-web/wiki/Pulling"),
    "cocoapods": Preset("pod", ("cdn.cocoapods.org",), "https://blog.cocoapods.org/CocoaPods-1.7.2/"),
    "codeberg": Preset(
        "git and archives",
        ("codeberg.org:22,80,443",),
        "https://docs.codeberg.org/git/clone-commit-via-cli/",
        takes=True,
    ),
    "conda": Preset(
        "conda, mamba, pixi",
        ("repo.anaconda.com", "conda.anaconda.org"),
        "https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/channels.html",
    ),
    "cpan": Preset(
        "cpan, cpanm",
        ("www.cpan.org", "cpan.metacpan.org", "fastapi.metacpan.org"),
        "https://github.com/metacpan/metacpan-api/blob/master/docs/API-docs.md",
    ),
    "cran": Preset("R", ("cran.r-project.org", "cloud.r-project.org"), "https://cran.r-project.org/mirrors.html"),
    "crates": Preset(
        "cargo", ("index.crates.io", "static.crates.io", "crates.io"), "https://crates.io/data-access", takes=True
    ),
    "debian": Preset(
        "apt",
        ("deb.debian.org", "security.debian.org", "cdn-fastly.deb.debian.org"),
        "https://deb.debian.org/",
    ),
    "deno": Preset(
        "deno",
        ("deno.land", "dl.deno.land", "jsr.io"),
        "https://docs.deno.com/runtime/fundamentals/modules/",
        takes=True,
    ),
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
        "https://docs.docker.com/desktop/setup/allow-list/",
        takes=True,
    ),
    "ghcr": Preset(
        "images of GitHub",
        ("ghcr.io", "pkg-containers.githubusercontent.com"),
        "https://docs.github.com/en/actions/reference/runners/self-hosted-runners",
        takes=True,
    ),
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
            "github-cloud.githubusercontent.com",
        ),
        "https://docs.github.com/en/actions/reference/runners/self-hosted-runners",
        takes=True,
    ),
    "gitlab": Preset(
        "git, archives, API", ("gitlab.com:22,80,443",), "https://docs.gitlab.com/user/gitlab_com/", takes=True
    ),
    "go": Preset("go", ("proxy.golang.org", "sum.golang.org"), "https://go.dev/ref/mod#environment-variables"),
    "gradle": Preset(
        "gradle: wrapper and plugins",
        ("services.gradle.org", "downloads.gradle.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
        "https://docs.gradle.org/current/userguide/gradle_wrapper.html",
        takes=True,
    ),
    "hackage": Preset(
        "cabal",
        ("hackage.haskell.org",),
        "https://cabal.readthedocs.io/en/stable/config.html#repository-specification",
        takes=True,
    ),
    "hex": Preset("mix, rebar3", ("repo.hex.pm", "hex.pm", "builds.hex.pm"), "https://hex.pm/docs/mirrors", takes=True),
    "homebrew": Preset(
        "brew",
        ("formulae.brew.sh", "ghcr.io", "pkg-containers.githubusercontent.com"),
        "https://docs.brew.sh/Manpage#environment",
        takes=True,
    ),
    "huggingface": Preset(
        "models and data sets",
        ("huggingface.co", "**.hf.co", "*.huggingface.co"),
        "https://huggingface.co/.well-known/meta.json",
        takes=True,
    ),
    "jsr": Preset("jsr.io", ("jsr.io", "npm.jsr.io"), "https://jsr.io/docs/npm-compatibility", takes=True),
    "julia": Preset(
        "Pkg", ("pkg.julialang.org", "*.pkg.julialang.org"), "https://pkgdocs.julialang.org/v1/registries/"
    ),
    "litellm": Preset(
        "LiteLLM on this machine", ("localhost:4000",), "https://docs.litellm.ai/docs/proxy/quick_start", takes=True
    ),
    "lmstudio": Preset(
        "LM Studio on this machine", ("localhost:1234",), "https://lmstudio.ai/docs/developer/core/server"
    ),
    "luarocks": Preset("luarocks", ("luarocks.org",), "https://luarocks.org/about"),
    "maven": Preset(
        "mvn, gradle, sbt: Maven Central",
        ("repo.maven.apache.org", "repo1.maven.org"),
        "https://central.sonatype.org/register/central-portal/",
    ),
    "mcr": Preset(
        "images of Microsoft",
        ("mcr.microsoft.com", "*.data.mcr.microsoft.com"),
        "https://github.com/microsoft/containerregistry/blob/main/docs/client-firewall-rules.md",
    ),
    "nix": Preset(
        "nix",
        ("cache.nixos.org", "channels.nixos.org", "releases.nixos.org"),
        "https://nix.dev/manual/nix/stable/command-ref/conf-file.html#conf-substituters",
    ),
    "node": Preset("Node itself, and headers for native modules", ("nodejs.org",), "https://nodejs.org/dist/"),
    "npm": Preset(
        "npm, pnpm, bun; a lock file may name either registry, and native modules need Node's headers",
        ("registry.npmjs.org", "registry.yarnpkg.com", "nodejs.org"),
        "https://docs.npmjs.com/cli/using-npm/registry",
        takes=True,
    ),
    "nuget": Preset(
        "dotnet, nuget",
        ("api.nuget.org", "www.nuget.org", "azuresearch-usnc.nuget.org", "azuresearch-ussc.nuget.org"),
        "https://learn.microsoft.com/nuget/nuget-org/nuget-org-faqs",
        takes=True,
    ),
    "ollama": Preset(
        "Ollama on this machine, which also sends models to registries",
        ("localhost:11434",),
        "https://docs.ollama.com/faq",
        takes=True,
    ),
    "opam": Preset("opam", ("opam.ocaml.org",), "https://opam.ocaml.org/doc/Usage.html"),
    "packagist": Preset(
        "composer", ("repo.packagist.org", "packagist.org"), "https://getcomposer.org/doc/05-repositories.md#packagist"
    ),
    "playwright": Preset(
        "playwright: its browsers",
        ("cdn.playwright.dev", "playwright.download.prss.microsoft.com"),
        "https://playwright.dev/docs/browsers#install-behind-a-firewall-or-a-proxy",
    ),
    "pub": Preset("dart, flutter", ("pub.dev",), "https://dart.dev/tools/pub/environment-variables", takes=True),
    "pypi": Preset("pip, uv, poetry", ("pypi.org", "files.pythonhosted.org"), "https://docs.pypi.org/api/index-api/"),
    "pytorch": Preset("pip: wheels of PyTorch", ("download.pytorch.org",), "https://pytorch.org/get-started/locally/"),
    "quay": Preset("images of quay.io", ("quay.io", "*.quay.io"), "https://docs.projectquay.io/", takes=True),
    "rubygems": Preset(
        "gem, bundler",
        ("rubygems.org", "index.rubygems.org"),
        "https://guides.rubygems.org/rubygems-org-compact-index-api/",
        takes=True,
    ),
    "rustup": Preset(
        "Rust itself",
        ("static.rust-lang.org", "sh.rustup.rs"),
        "https://rust-lang.github.io/rustup/environment-variables.html",
    ),
    "swift": Preset("Swift itself", ("download.swift.org", "www.swift.org"), "https://www.swift.org/install/linux/"),
    "terraform": Preset(
        "terraform: providers and modules",
        ("registry.terraform.io", "releases.hashicorp.com"),
        "https://developer.hashicorp.com/terraform/internals/provider-registry-protocol",
    ),
    "ubuntu": Preset(
        "apt",
        ("**.archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com"),
        "https://documentation.ubuntu.com/server/explanation/software/about-apt-repositories/",
    ),
    "vllm": Preset(
        "vLLM on this machine", ("localhost:8000",), "https://docs.vllm.ai/en/stable/serving/openai_compatible_server/"
    ),
    "yarn": Preset(
        "yarn; a lock file may name either registry",
        ("registry.yarnpkg.com", "registry.npmjs.org", "repo.yarnpkg.com"),
        "https://yarnpkg.com/configuration/yarnrc",
        takes=True,
    ),
    "zig": Preset("zig itself", ("ziglang.org",), "https://ziglang.org/download/community-mirrors/"),
}


# --- words ---


def preset_rules(name: str) -> tuple[HostRule, ...]:
    """Return the rules for an allowed preset. Raise KeyError if there is no such preset."""
    return tuple(rules_of(HostRule("allow", PRESET + name)))


def rules_of(word: HostRule) -> Iterator[HostRule]:
    """Yield the rules for the hosts of the preset that a rule's word names (``host_entry.py:expand``). A deny or an ask
    covers every port; on this machine's loopback only the preset's own, since other programs may use the rest."""
    for host in PRESETS[word.pattern[len(PRESET) :]].hosts:
        own = parse_rule(host, word.action, private=word.private)
        ports = own.ports if word.action == "allow" or own.pattern == LOCALHOST else ()
        source = f"{word.source} {word.pattern}".lstrip()
        yield word._replace(pattern=own.pattern, ports=ports, private=own.private, source=source)


def like_preset(rule: HostRule) -> str:
    """Return a warning about a rule for a host that is named like a preset, without the ``@``; empty for others."""
    if rule.pattern not in PRESETS or rule.ports:
        return ""
    return f'{rule.pattern} is a host here; the preset is "{PRESET}{rule.pattern}"'


def near_presets(name: str) -> tuple[str, ...]:
    """Return the presets that a wrong name may mean: those for a tool with that name, or one with a similar name."""
    by_tool = [preset for preset, row in PRESETS.items() if name in row.about.lower().replace(",", " ").split()]
    if by_tool:
        return tuple(by_tool)
    import difflib

    return tuple(difflib.get_close_matches(name, PRESETS, 1, 0.5))


# --- questions ---


class Offer(NamedTuple):
    """A preset that a question about a host offers."""

    name: str
    hosts: tuple[str, ...]

    @property
    def word(self) -> str:
        return PRESET + self.name

    @property
    def about(self) -> str:
        """In words: ``npm: 3 hosts``."""
        return f"{self.name}: {len(self.hosts)} host{'s' if len(self.hosts) > 1 else ''}"


def offer_for(host: str, port: int) -> Offer | None:
    """Return the preset that a question about this canonical host and port offers; None if none has it. Among several,
    the preset that lists the host earliest wins. Model servers on this machine are not offered: another program may
    have the port."""
    parsed = parse_host(host.encode("utf-8", "surrogateescape"))
    found = [
        (index, name)
        for name, index, rule in _offered()
        if matches(rule.pattern, parsed) and port in (rule.ports or USUAL)
    ]
    return Offer(min(found)[1], PRESETS[min(found)[1]].hosts) if found else None


@lru_cache(maxsize=1)
def _offered() -> tuple[tuple[str, int, HostRule], ...]:
    """Return the rules for offers, each with its preset and its position there. Cached, because the gate looks at them
    for each refused request."""
    rows = [(name, index, rule) for name in PRESETS for index, rule in enumerate(preset_rules(name))]
    return tuple(row for row in rows if row[2].pattern != LOCALHOST)
