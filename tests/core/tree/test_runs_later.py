"""Names of files that run by themselves later. The list was written from the tools' manuals, not from the table."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import runs_when
from mudroom.core.tree.manifest import Wanted
from mudroom.core.tree.runs_later import (
    group_later,
    later_rows,
    link_runs_later,
    manifest_when,
    runs_later,
    whole_directory,
)
from tiers import each

sys.path.insert(0, str(Path(__file__).parents[2]))
from later_generator import FOUND
from runs_later_document import DOCUMENT, document

NAMES = b"""
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc .zshrc .zshenv .zprofile .zlogin
.zlogout .kshrc .cshrc .tcshrc .login .xinitrc .xprofile .config/fish/config.fish .envrc .autoenv .xonshrc
Microsoft.PowerShell_profile.ps1 .tool-versions mise.toml .mise.toml .mise/config.toml .nvmrc .python-version
devbox.json devenv.nix flake.nix flake.lock shell.nix default.nix .git/hooks/pre-commit .git/config .gitattributes
.gitmodules .gitconfig .lfsconfig .githooks/pre-push .hg/hgrc .hgrc .husky/pre-commit .huskyrc.json lefthook.yml
.lefthook.toml lefthook-local.yml .pre-commit-config.yaml .pre-commit-hooks.yaml .overcommit.yml .lintstagedrc
lint-staged.config.js captainhook.json commitlint.config.js Makefile makefile GNUmakefile Makefile.am rules.mk
configure configure.ac autogen.sh SConstruct SConscript wscript build.ninja justfile Justfile .justfile Taskfile.yml
Taskfile.yaml Rakefile lib/tasks/db.rake Thorfile dodo.py fabfile.py Earthfile Snakefile gulpfile.js Gruntfile.js
Jakefile.js build.xml build.cake magefile.go nodemon.json .air.toml Procfile Procfile.dev CMakeLists.txt
FindFoo.cmake CMakePresets.json CMakeUserPresets.json meson.build meson_options.txt xmake.lua premake5.lua
conanfile.py vcpkg.json binding.gyp BUILD.gn .gn BUILD.bazel WORKSPACE WORKSPACE.bazel MODULE.bazel defs.bzl
.bazelrc .bazelversion tools/bazel .buckconfig BUCK package.json package-lock.json yarn.lock pnpm-lock.yaml .npmrc
.yarnrc .yarnrc.yml .yarn/releases/yarn-4.0.0.cjs .yarn/plugins/x.cjs .pnp.cjs .pnp.loader.mjs .pnpmfile.cjs
pnpm-workspace.yaml bun.lockb bunfig.toml deno.json deno.jsonc lerna.json nx.json project.json turbo.json rush.json
bower.json .bowerrc .swcrc vite.config.ts vitest.config.ts webpack.config.js rollup.config.mjs next.config.js
nuxt.config.ts svelte.config.js astro.config.mjs tailwind.config.cjs postcss.config.js babel.config.js
jest.config.ts eslint.config.mjs prettier.config.cjs playwright.config.ts cypress.config.js karma.conf.js
metro.config.js drizzle.config.ts .eslintrc .eslintrc.js .eslintrc.cjs .eslintrc.json .eslintrc.yml .babelrc
.babelrc.js .prettierrc .prettierrc.js .stylelintrc.json .postcssrc.js .mocharc.js .nycrc .taprc angular.json
ember-cli-build.js tslint.json tsconfig.json tsconfig.build.json jsconfig.json biome.json .storybook/main.js
gatsby-node.js knexfile.js .releaserc.js .sequelizerc .dependency-cruiser.js vercel.json netlify.toml serverless.yml
wrangler.toml firebase.json conftest.py tests/conftest.py pytest.ini tox.ini noxfile.py setup.py setup.cfg
pyproject.toml sitecustomize.py usercustomize.py evil.pth manage.py .coveragerc MANIFEST.egg-link pip.conf uv.toml
uv.lock poetry.toml poetry.lock pdm.toml hatch.toml hatch_build.py Pipfile Pipfile.lock requirements.txt
requirements-dev.txt environment.yml pyvenv.cfg python311._pth buildout.cfg locustfile.py mypy.ini .mypy.ini
.pylintrc pylintrc .flake8 .bandit pyrightconfig.json ruff.toml .ruff.toml ipython_config.py
.ipython/profile_default/startup/x.py jupyter_notebook_config.py .pdbrc .pythonrc gunicorn.conf.py docs/conf.py
mkdocs.yml alembic.ini alembic/env.py scrapy.cfg dvc.yaml kernel.json build.rs .cargo/config.toml .cargo/config
Cargo.toml Cargo.lock rust-toolchain rust-toolchain.toml Cross.toml clippy.toml .config/nextest.toml gradlew
gradlew.bat build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties init.gradle
gradle/wrapper/gradle-wrapper.properties gradle/wrapper/gradle-wrapper.jar buildSrc/src/main/java/X.java mvnw
mvnw.cmd pom.xml .mvn/extensions.xml .mvn/jvm.config .mvn/wrapper/maven-wrapper.properties build.sbt
project/plugins.sbt project/build.properties .sbtopts .jvmopts build.sc project.clj deps.edn bb.edn shadow-cljs.edn
Gemfile Gemfile.lock gems.rb foo.gemspec .bundle/config .irbrc .pryrc .rspec .rubocop.yml Guardfile Capfile
Vagrantfile Podfile Fastfile fastlane/Appfile Dangerfile Brewfile config.ru config/initializers/x.rb Berksfile
extconf.rb _config.yml composer.json composer.lock phpunit.xml phpunit.xml.dist .php-cs-fixer.php
.php-cs-fixer.dist.php phpstan.neon psalm.xml rector.php artisan .htaccess .user.ini tools.phar go.mod go.work
tools.go .golangci.yml .golangci.toml .goreleaser.yaml buf.gen.yaml sqlc.yaml go.env Directory.Build.props
Directory.Build.targets Directory.Packages.props global.json NuGet.config nuget.config app.csproj app.fsproj app.sln
.config/dotnet-tools.json MSBuild.rsp Custom.targets packages.props launchSettings.json x.runsettings mix.exs
mix.lock .formatter.exs .credo.exs .iex.exs config/runtime.exs rebar.config rebar.config.script gleam.toml
stack.yaml cabal.project foo.cabal Setup.hs .ghci hie.yaml package.yaml dune dune-project foo.opam .ocamlinit
lakefile.lean spago.dhall Package.swift App.xcodeproj/project.pbxproj Config.xcconfig Project.swift Cartfile
build.zig build.zig.zon foo.nimble config.nims shard.yml dub.json pubspec.yaml build.yaml analysis_options.yaml
Project.toml .Rprofile .Renviron Makefile.PL Build.PL cpanfile .perlcriticrc .proverc foo.rockspec .luacheckrc
.busted foundry.toml hardhat.config.ts truffle-config.js Dockerfile Dockerfile.dev app.dockerfile Containerfile
docker-compose.yml docker-compose.override.yml compose.yaml compose.yml compose.override.yaml docker-bake.hcl
.devcontainer.json .devcontainer/devcontainer.json .gitpod.yml .replit devfile.yaml snapcraft.yaml PKGBUILD
debian/rules Singularity mkosi.conf main.tf terraform.tfvars .terraformrc terragrunt.hcl Chart.yaml helmfile.yaml
skaffold.yaml Tiltfile kustomization.yaml Pulumi.yaml cdk.json fly.toml render.yaml cloudbuild.yaml buildspec.yml
ansible.cfg playbook.yml x.service x.timer x.desktop crontab samconfig.toml devspace.yaml .ebextensions/a.config
.github/workflows/ci.yml .github/actions/x/index.js action.yml action.yaml .github/dependabot.yml renovate.json
.gitlab-ci.yml .gitea/workflows/ci.yaml .forgejo/workflows/ci.yml .woodpecker.yml .woodpecker/ci.yml Jenkinsfile
.circleci/config.yml .travis.yml azure-pipelines.yml bitbucket-pipelines.yml .buildkite/pipeline.yml .drone.yml
.cirrus.yml appveyor.yml .appveyor.yml .semaphore/semaphore.yml .builds/x.yml .build.yml .teamcity/settings.kts
.tekton/x.yaml codemagic.yaml bitrise.yml .readthedocs.yaml .actrc .zuul.yaml wercker.yml .vscode/tasks.json
.vscode/settings.json .vscode/launch.json x.code-workspace .idea/workspace.xml .vs/x.json .zed/tasks.json
.helix/config.toml .vim/vimrc .vimrc .exrc .nvim.lua .nvimrc .lvimrc .dir-locals.el .dir-locals-2.el .emacs
x.sublime-project .kakrc .nanorc .fleet/run.json .settings/x.prefs .project .clangd .ycm_extra_conf.py
.vimspector.json .nova/Tasks/x.json nbproject/project.xml module.iml .gdbinit .lldbinit x-gdb.py .radare2rc
.ripgreprc .curlrc .wgetrc .screenrc .tmux.conf .psqlrc .sqliterc .my.cnf .latexmkrc .ctags .mailcap .ssh/config
.docker/config.json CLAUDE.md CLAUDE.local.md .claude/settings.json .claude/commands/x.md .claude/skills/x/SKILL.md
.claude.json AGENTS.md AGENT.md SKILL.md GEMINI.md .gemini/settings.json QWEN.md .qwen/settings.json
.codex/config.toml .kiro/steering/x.md .windsurfrules .windsurf/rules/x.md .roo/mcp.json .roorules .roomodes
.cursor/mcp.json .cursorrules .cursorignore .clinerules .clinerules/x.md .aider.conf.yml .aiderignore opencode.json
opencode.jsonc .opencode/plugin/x.ts .mcp.json mcp.json .continue/config.json .continuerules
.github/copilot-instructions.md .github/instructions/x.instructions.md .github/prompts/x.prompt.md
.junie/guidelines.md .trae/rules/x.md .augment-guidelines .amazonq/rules/x.md .goosehints
.openhands/microagents/repo.md CRUSH.md crush.json WARP.md .agents/x.md .kilocode/mcp.json .amp/settings.json
.venv/bin/python .venv/bin/activate venv/Scripts/activate env/bin/activate node_modules/.bin/tsc
node_modules/x/index.js vendor/a/b.go lib/python3.12/site-packages/x.py __pycache__/x.cpython-312.pyc pkg/x.pyc
pkg/_x.so pkg/_x.pyd x.dll x.dylib x.node target/debug/app .tox/py/bin/pip .nox/x/bin/x .terraform/providers/x
.next/server/x.js .direnv/bin/x lib.jar X.class setup.exe x.msi x.lnk x.vbs x.hta x.AppImage libx.so.1
Foo.app/Contents/MacOS/Foo site_scons/site_init.py Doxyfile Kconfig .rvmrc .rbenv-vars _darcs/prefs/defaults
.pijul/config .trunk/trunk.yaml simple-git-hooks.json .bumpversion.toml cz.yaml .cargo-husky/hooks/pre-commit DEPS
codegen.ts codegen.yml typedoc.json .sqlfluff .checkov.yml .mega-linter.yml .flaskenv dbt_project.yml book.toml
_quarto.yml pkg.egg-info/entry_points.txt rust-project.json spin.toml dirs.proj .pi/extensions/x.ts .rules replit.md
.codebuddy/settings.json .qoder/rules/x.md .forge/agents/x.md forge.yaml .ona/automations.yaml
""".decode().split()
ISSUED = b"""
.run/a.run.xml .parcelrc .eleventy.js config-overrides.js .vitepress/config.mts a.pro .qmake.conf BUILD .RData startup.m
a.tt a.path a.container LaunchAgents/a.plist .mergify.yml atlantis.yaml .perldb .byebugrc sitecustomize/__init__.py
.ddev/config.yaml azure.yaml x.instructions.md .instructions.md a.prompty MEMORY.md Assets/Editor/a.cs project.godot
project.yml .externalToolBuilders/a.launch .lazygit.yml prisma/schema.prisma .kamal/hooks/pre-deploy .deps/a.Po .depend
a.d make.inc a.do a.pkl a.pt a.joblib matplotlibrc dags/a.py spec/spec_helper.rb requirements/dev.txt
""".decode().split()
PLAIN = b"""
README.md README LICENSE CHANGELOG.md CONTRIBUTING.md NOTICE AUTHORS TODO .gitignore .dockerignore .gitkeep
.editorconfig src/main.py src/app/models.py src/app/tasks.py src/app/build.py src/app/mcp.py src/app/forge.py
src/app/environment.py src/index.ts src/index.js src/app/graphql.ts src/babel.ts src/main.c src/main.h src/lib.rs
src/main.rs main.go server.go src/generate.go src/App.tsx src/App.vue src/App.css src/style.scss index.html
public/vite.svg public/favicon.ico docs/index.md docs/guide.rst docs/images/a.png docs/Makefile.md
docs/Dockerfile.md docs/package.md docs/policy.txt images/logo.svg images/photo.jpg data/table.csv data/rows.json
data/x.parquet tests/test_app.py tests/data/input.json tests/data/x.txt tests/fixtures/a.yaml tests/__init__.py
tests/app.spec.ts src/user.service.ts src/a.component.ts src/x.test.js src/__snapshots__/x.test.js.snap lib/util.rb
lib/app.ex app/Models/User.php src/Main.java src/main.kt Program.cs Lib.hs lib/a.ml Sources/App/main.swift
src/root.zig lib/main.dart R/model.R src/x.jl scripts.md hooks.md config/locale.yml locale/de.po i18n/en.json
fonts/a.woff2 audio.mp3 video.mp4 paper.tex refs.bib notes.org notes.txt report.pdf archive.zip query.sql
schema.graphql api.proto openapi.yaml style.css theme.less a.md x.log src/activate.png src/config.py src/settings.py
src/plugins/plugin.py src/skills.py src/agents.py src/agent/core.py src/project/view.py src/ci.py src/ci/report.py
src/roles/admin.ts src/rules/rule.ts src/vendor.py src/targets.py src/target/enemy.py src/requirements.py
src/manifest.json assets/manifest.json src/node.py src/environment.ts src/git/hooks.py src/claude.py docs/claude.txt
src/dune.py src/docker.py src/make.py src/compose.py src/compose.md package.json.bak xconftest.py makefile.md envrc
.environment github/workflows/ci.yml .github/CODEOWNERS .github/ISSUE_TEMPLATE/bug.md .github/FUNDING.yml
hooks/pre-commit
""".decode().split()


def test_the_list_is_long_enough() -> None:
    assert len(set(NAMES)) >= 330


@each("path", NAMES + ISSUED)
def test_names_that_run_later(path: str) -> None:
    from mudroom.core.tree.flag import runs_when

    for above in ("", "sub/deep/"):
        assert runs_when((above + path).encode())


@pytest.mark.parametrize("path", ["tasks.py", "conf.py"])
def test_names_that_run_later_directly_in_the_project(path: str) -> None:
    assert runs_later(path.encode())
    assert runs_later(b"src/" + path.encode()) == ""


@pytest.mark.parametrize(
    ("path", "flags"),
    [("build", ()), (".vscode", ("executes-later",)), (".git/hooks", ("executes-later", "protected"))],
)
def test_a_directory_runs_later_if_all_in_it_does(path: str, flags: tuple[str, ...]) -> None:
    from mudroom.core.tree.flag import flags_of

    assert flags_of(path.encode(), is_directory=True) == flags


@each("path", PLAIN)
def test_everyday_names(path: str) -> None:
    for above in ("", "sub/deep/"):
        assert runs_later((above + path).encode()) == ""


@each(
    "path",
    [
        "MAKEFILE", "Package.JSON", "package.json.", "package.json ", "package.json::$DATA", "PACKAG~1.JSO",
        ".CARGO/Config.toml", ".Vscode/x", "AGENTS.MD", "claude.md", "Ma\u200ckefile", "ma\u212aefile",
        "\u017fetup.py", "NODE_M~1/x.js",
    ],
)  # fmt: skip
def test_other_spellings(path: str) -> None:
    assert runs_later(path.encode())


def test_every_pattern_has_a_row_that_tells_all() -> None:
    for row in (*later_rows("whole_directories"), *later_rows("runs_later")):
        assert row.patterns
        assert all((row.runner, row.when, row.source))
        for pattern in row.patterns:
            sample = pattern.replace("*", "x").rstrip("/") + ("/x" if pattern.endswith("/") else "")
            assert runs_later(sample.encode()), pattern


def test_the_document_is_that_of_the_table() -> None:
    assert DOCUMENT.read_text() == document(), "python tests/runs_later_document.py writes it"


def test_whole_directories() -> None:
    assert whole_directory(b"web/node_modules/a/node_modules/b") == b"web/node_modules"
    assert whole_directory(b"target/debug/app") == b"target/debug"
    assert whole_directory(b"src/target/x.py") == b""


def test_one_group_for_a_directory_and_one_for_a_time() -> None:
    paths = [b"Makefile", b"a.py", *(b"node_modules/p/%d.js" % at for at in range(50)), b"sub/Makefile"]
    entry = Entry("file", 0o644, 1, b"", 0, 1, 1, 0, 0, 0, 0)
    groups = group_later([Change(path, "added", None, entry, runs=runs_later(path)) for path in paths])
    assert [(group.paths, group.files) for group in groups] == [
        ((b"Makefile", b"sub/Makefile"), 2),
        ((b"node_modules/",), 50),
    ]


def test_a_miss_is_cheap() -> None:
    paths = [b"src/package%d/part/file_%d.py" % (at % 400, at) for at in range(10_000)]
    runs_later(paths[0])
    best = min(_seconds(paths) for _ in range(5))
    assert best / len(paths) < 20e-6, "about 4 µs on the machine where it was written"


def _seconds(paths: list[bytes]) -> float:
    """Of this thread: others may have the processor meanwhile."""
    start = time.thread_time()
    assert not any(map(runs_later, paths))
    return time.thread_time() - start


@each(
    ("manifest", "data", "wanted", "named"),
    [
        (
            "package.json",
            '{"scripts": {"t": "node tools/run"}, "files": ["a.js"]}',
            "tools/run.js a.js",
            "tools/run.js",
        ),
        ("package.json", '{"bin": {"x": "./cli.js"}, "main": "lib"}', "cli.js lib/index.js", "cli.js lib/index.js"),
        ("package.json", '{"scripts": broken tools/run.js', "tools/run.js", "tools/run.js"),
        ("package.json", '{"dependencies": {"x": "a.js"}}', "a.js", ""),
        ("pyproject.toml", '[tool.mypy]\nplugins = ["tools.plug"]', "tools/plug.py", "tools/plug.py"),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p plug.of"', "src/plug/of.py", "src/plug/of.py"),
        ("pyproject.toml", '[tool.coverage.run]\nomit = ["src/a.py"]', "src/a.py", ""),
        ("pyproject.toml", '[build-system\nx = "src/a.py"', "src/a.py", "src/a.py"),
        (".pre-commit-config.yaml", "repos: [{hooks: [{entry: ./check/it.sh}]}]", "check/it.sh", "check/it.sh"),
        ("Makefile", "all:\n\tsh tools/x.sh\n", "tools/x.sh tools/y.sh", "tools/x.sh"),
        ("Makefile", "all:\n\tsh ./a/tools/x.sh\n", "a a/tools a/tool tools x.sh", "a a/tools"),
        ("package.json", '{"scripts": {"test": "sh tools/run.txt"}}', "tools/run.txt run.txt", "tools/run.txt"),
        ("package.json", '{"scripts": {"test": "sh tools\\/run.txt"}}', "tools/run.txt", "tools/run.txt"),
        ("package.json", '{"scripts": {"test": "sh \\ud800 run.inc"}}', "run.inc", "run.inc"),
        ("Makefile", "include build.inc", "build.inc", "build.inc"),
        ("Makefile", "a.o: a.c\n\tcc a.c\nt:\n\t. b.c\n\tcat README.md", "a.c b.c README.md", "b.c"),
        (".husky/x", "#!/bin/sh\nsh a.c\n", "a.c", "a.c"),
        ("Makefile", "t:\n\tcd tools && sh run", "tools/run other/run", "tools/run"),
        ("Makefile", "t:\n\tsh $(TOP)/tools/run $$D/x %D%/y", "tools/run x y", "tools/run x y"),
        (
            "sub/Makefile",
            "include ../mk/build.inc rules.inc",
            "mk/build.inc sub/rules.inc rules.inc",
            "mk/build.inc sub/rules.inc",
        ),
        (".github/workflows/ci.yml", "- run: sh ci/test.txt\n- run: sh it", "ci/test.txt it", "ci/test.txt it"),
        ("sub/.circleci/config.yml", "run: sh ci/test", "ci/test sub/ci/test", "ci/test sub/ci/test"),
        ("compose.yaml", "command: [sh, ./start.conf]", "start.conf", "start.conf"),
        (".vscode/tasks.json", '{"tasks": [{"command": "sh tools/x", /* */}]}', "tools/x", "tools/x"),
        ("build.ps1", r"& tools\x.dat", "tools/x.dat", "tools/x.dat"),
        ("run.just", "t:\n sh 'tools/a b(1)'", "tools/a\\ b(1) tools/c\\ d", "tools/a\\ b(1)"),
        ("setup.py", "import flask, gen\nexec(open('gen.inc').read())", "flask.py gen.py gen.inc", "gen.inc"),
        ("requirements.txt", "six\n-r more.list", "six.py more.list", "more.list"),
        ("package.json", '{"scripts": {"t": "node tools/run"}, "files": ["dist/a.js"]}', "tools dist", "tools"),
        ("pyproject.toml", '[tool.mypy]\nplugins = ["tools.plug"]', "src/tools tools tool", "src/tools tools"),
        ("Makefile", "a/" * 500_000, "a b", ""),
    ],
)
def test_what_a_manifest_names(manifest: str, data: str, wanted: str, named: str) -> None:
    paths = wanted.replace("\\ ", "\0").encode().split()
    links = [path for path in paths if b"." not in path]
    found = Wanted([path.replace(b"\0", b" ") for path in paths], links).named_by(manifest.encode(), data.encode())
    assert found == {path.replace(b"\0", b" ") for path in named.replace("\\ ", "\0").encode().split()}


@pytest.mark.parametrize(
    "text", ["a." * 100_000 + 'x = "y.py"', "a=" + "[" * 100_000 + '"y.py"', "[" + "a." * 100_000 + "y]\ny.py"]
)
def test_a_hostile_manifest_is_not_parsed(text: str) -> None:
    assert Wanted([b"y.py"]).named_by(b"pyproject.toml", text.encode()) == {b"y.py"}


def test_words_of_a_manifest_in_another_encoding() -> None:
    assert Wanted([b"tools/x"]).named_by(b"profile.ps1", "& tools/x".encode("utf-16")) == {b"tools/x"}


@each("path", ["poetry.lock", "a/Cargo.lock", "CLAUDE.md", ".claude/commands/x.md", "src/x.py", "x.tsbuildinfo"])
def test_documents_and_lists_are_no_manifests(path: str) -> None:
    assert manifest_when(path.encode()) == ""


@pytest.mark.parametrize(
    "path", [".husky/pre-commit", ".github/workflows/a.yml", "compose.yaml", ".claude/settings.json"]
)
def test_a_text_that_runs_later_is_a_manifest(path: str) -> None:
    assert manifest_when(path.encode()) == runs_later(path.encode()).partition(":")[0]


@each(
    ("link", "when_of"),
    [
        (b".cargo", b".cargo/config.toml"),
        (b"deep/.CARGO", b".cargo/config.toml"),
        (b".hg", b".hg/hgrc"),
        (b".jj", b".jj/repo/config.toml"),
        (b".jj/repo", b".jj/repo/config.toml"),
        (b"grails-app", b"grails-app/conf/x"),
        (b"project", b"project/x.sbt"),
        (b"renv", b"renv/library/x"),
    ],
)
def test_a_link_in_the_place_of_a_directory_whose_files_run(link: bytes, when_of: bytes) -> None:
    """What it leads to has another name, by which it would not be flagged."""
    assert runs_later(link) == ""
    assert link_runs_later(link) == runs_later(when_of) != ""


@each("link", [b"", b"repo", b"src", b"cargo", b".cargo/x", b"README", b"latest.log"])
def test_other_links(link: bytes) -> None:
    assert link_runs_later(link) == ""


BY_CODE = frozenset(["a", "a.js", "a.lua", "a.rb", "a/init.lua", "test_a.py", "test/a.js"])
"""Names that code, or a test, of the generator's projects computes: they are not flagged."""


@each("row", FOUND.read_text().splitlines())
def test_what_a_tool_has_run_is_flagged(row: str) -> None:
    """Rows of tests/later_generator.py: what ran in a sandbox, and whether its change was flagged."""
    _command, name, kind, word = row.rsplit(" | ", 3)
    is_named_by_a_manifest = name == "extra"
    assert word == "flagged" or name in BY_CODE or runs_when(name.encode())
    assert name in BY_CODE or is_named_by_a_manifest or kind.endswith("+x") or runs_when(name.encode())
