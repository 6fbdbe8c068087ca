"""Table of file names that run by themselves later: when the user or a program commits, builds, tests, installs, opens
or enters the project.

A row is a line ``program that runs or obeys the file | when | source``, then lines with its patterns, indented.
Patterns match at any depth, in any spelling that a file system takes for the name (``core/tree/runs_later.py``):

``name``      a file or directory with this name; if the pattern ends in ``/``, also everything in such a directory
``*.end``     a name that ends in ``.end``
``start*``    a name that begins so; ``start*end``: a name that begins and ends so
``a/b``       the last components of a path; ``a/b/``: everything below it; ``a/*.end``: such names directly in ``a``

The rows in ``WHOLE`` are directories that are not reviewed file by file: a preview shows one line for each.
docs/evidence/RUNS_LATER.md is made from both tables: ``python tests/runs_later_document.py``.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple


class LaterRow(NamedTuple):
    patterns: tuple[str, ...]
    runner: str
    when: str
    """Completes "runs by itself later: …"."""
    source: str


def parse_rows(text: str) -> tuple[LaterRow, ...]:
    """Return a table's rows: each is a line with program, time and source, then its patterns, indented."""
    rows: list[LaterRow] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            rows[-1] = rows[-1]._replace(patterns=(*rows[-1].patterns, *line.split()))
        else:
            runner, when, source = line.split(" | ")
            rows.append(LaterRow((), runner, when, source))
    return tuple(rows)


WHOLE = """
Node.js | at the next node, npm, npx or build: scripts of packages, .bin and what is imported | Node.js: modules
    node_modules/ bower_components/ jspm_packages/ web_modules/
Python | at the next python, or when it is activated: bin, activate, *.pth and packages | venv, site
    .venv/ venv/ .virtualenv/ virtualenv/ .conda/
Python | at the next python: *.pth, sitecustomize and packages | site, PEP 582
    site-packages/ dist-packages/ __pypackages__/ .pdm-build/
Python | at the next python: packages and their entry points | setuptools
    .eggs/
Python | at the next import: compiled code may differ from its source | PEP 552
    __pycache__/
tox, nox, hatch, pixi | at the next test: environments with their programs | tox, nox
    .tox/ .nox/ .hatch/ .pixi/
go, composer, bundler, cargo | at the next build or start: vendored code is compiled or loaded | go help vendor
    vendor/ third_party/bin/
bundler | at the next bundle: settings, plugins and gems | bundle-config(1)
    .bundle/
yarn, pnpm | at the next yarn or pnpm: releases, plugins and packages | yarn: yarnPath, plugins
    .yarn/ .pnp/ .pnpm-store/ .pnpm/
gradle, maven | at the next build: extensions, wrappers and plugins | maven: extensions.xml
    .gradle/ .mvn/ .m2/
cargo, maven | at the next run of the build | cargo: build cache
    target/debug/ target/release/ target/classes/ target/test-classes/ target/wasm32-unknown-unknown/
    target/package/
stack, cabal, dune, opam, mix | at the next build or start: compiled code | stack, dune, mix
    .stack-work/ dist-newstyle/ _build/ _opam/ deps/_build/ .elixir_ls/
terraform | at the next terraform plan: providers and modules | terraform: providers
    .terraform/ .terragrunt-cache/
bundlers | at the next start or build: compiled code and caches | next, nuxt, vite, turbo
    .next/ .nuxt/ .svelte-kit/ .angular/ .parcel-cache/ .turbo/ .vite/ .nx/ .docusaurus/ .output/ .vercel/
    .netlify/ .serverless/ .expo/
direnv, devbox, devenv, mise | when the directory is entered: environments with their programs | direnv(1)
    .direnv/ .devbox/ .devenv/ .flox/ .mise/ .asdf/ .hermit/
build tools | at the next build or start: compiled code and packages | zig, swift, dart, clojure, scala
    zig-cache/ .zig-cache/ zig-out/ .swiftpm/ .build/ Pods/ Carthage/ .dart_tool/ .pub-cache/ .cpcache/
    .shadow-cljs/ .bsp/ .bloop/ .metals/
package managers | at the next build or start: packages | cargo, renv, luarocks, nuget
    elm-stuff/ .cargo-home/ .rustup/ .julia/ renv/library/ packrat/ .cpanm/ .luarocks/ lua_modules/ .nuget/
    paket-files/
"""

TABLE = """
shells | when a shell or session starts with this home | bash(1)
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc .xprofile .xinitrc .xsession
    .xsessionrc .pam_environment
shells | when a shell starts | zsh(1), fish(1), about_Profiles
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .shrc .cshrc .tcshrc .login .logout .yashrc .elvish/
    config.fish fish/config.fish fish/conf.d/ fish/functions/ nushell/ config.nu env.nu .oh-my-zsh/ .xonshrc
    profile.ps1 Microsoft.PowerShell_profile.ps1 *_profile.ps1
direnv, autoenv, shadowenv | when the directory is entered | direnv(1)
    .envrc .env.nu .autoenv .autoenv.zsh .env.leave .direnvrc direnvrc .smartcd_enter .shadowenv.d/ .envrc.local
    .envrc.private
    .rvmrc .rbenv-vars
mise, asdf, version managers | when the directory is entered: it chooses programs and runs hooks | mise: hooks, env
    mise.toml .mise.toml mise.local.toml .mise.local.toml mise.*.toml .mise/ mise/ .rtx.toml .config/mise.toml
    .tool-versions .asdfrc .proto.toml .prototools .node-version .nvmrc .python-version .ruby-version
    .java-version .go-version .terraform-version .sdkmanrc .vfox.toml pixi.toml pixi.lock
nix, devbox, guix | when the environment is entered or built | nix3-develop(1)
    devbox.json devbox.lock devenv.nix devenv.yaml devenv.local.nix flake.nix flake.lock shell.nix default.nix
    *.nix guix.scm channels.scm .flox/ hermit.hcl bin/hermit
git | at the next git command: filters, drivers and submodules | gitattributes(5), gitmodules(5)
    .gitattributes .gitmodules .gitconfig .gitconfig.local .lfsconfig .gitignore.global .git-blame-ignore-revs.sh
    .tigrc
git, hg and others | at the next git commit, checkout or push | githooks(5), hg help config
    .githooks/ .git-hooks/ githooks/ git-hooks/ .hooks/ .git_template/ git-templates/ .hg/hgrc .hgrc .hgsub .hgeol
    .hgcheck .svn/hooks/ .bzr/ .jj/repo/config.toml .sl/config .fossil-settings/ .p4config .arcconfig .arclint
    _darcs/prefs/ .pijul/ .trunk/
husky, lefthook, pre-commit | at the next git commit or push | pre-commit, lefthook
    .husky/ .huskyrc* husky.config.* lefthook.* .lefthook/ .lefthook-local.yml .lefthook.* lefthook-local.*
    .lefthook.toml .pre-commit-config.* .pre-commit-hooks.* prek.toml .overcommit.yml .overcommit/
    .captainhook.json captainhook.json grumphp.yml grumphp.yml.dist .simple-git-hooks.* .lintstagedrc*
    .git-hooks.json .yorkie/ .czrc .cz.toml .cz.json cz.json .commitlintrc* .gitlint rusty-hook.toml
    .rusty-hook.toml cog.toml hk.pkl nano-staged.* .nano-staged.* .secretlintrc* .pre-commit/
    simple-git-hooks.json cz.yaml .cz.yaml .bumpversion.cfg .bumpversion.toml .cargo-husky/
make, autotools, scons, ninja | at the next make or build | make(1)
    Makefile GNUmakefile BSDmakefile Makefile.* makefile.in Makefile.am *.mk *.mak Kbuild configure configure.ac
    configure.in aclocal.m4 acinclude.m4 autogen.sh bootstrap.sh config.status libtool ltmain.sh *.m4 SConstruct
    SConscript wscript Jamroot Jamfile Jamroot.jam Jamfile.jam Tupfile Tuprules.tup *.ninja build.ninja
    site_scons/ Tupfile.lua Kconfig Kconfig.* Doxyfile Doxyfile.* mkfile default.do all.do Shakefile.hs .gclient DEPS
just, task, rake, doit and other runners | at the next run of a task | just(1), task, rake(1)
    justfile .justfile tasks/__init__.py invoke.json *.just Taskfile.* Taskfile .taskrc.* Rakefile rakefile.rb
    *.rake Thorfile *.thor doit.py dodo.py invoke.yaml invoke.yml fabfile.py fabfile/ pavement.py maskfile.md
    runfile Runfile.* xtask/ xtask.toml Earthfile Snakefile *.smk nextflow.config *.nf Cakefile gulpfile.*
    gulpfile.babel.js gruntfile.* Jakefile* jakefile.* build.xml ivy.xml build.cake cake.config build.fsx
    build.ps1 psakefile.ps1 *.build.ps1 magefile.go magefiles/ Makefile.toml poe_tasks.* poe_tasks bake.hcl
    pants.toml BUILD.pants run.just mprocs.yaml process-compose.* overmind.env .overmind.env Procfile Procfile.*
    .foreman bacon.toml .bacon-locations watchexec.toml .air.toml air.toml .air.conf .reflex.conf nodemon.json
    .nodemonrc entr.sh .entr dagger.json dagger.gen.go
cmake, meson, gyp, gn | at the next configure or build | cmake(1), meson
    CMakeLists.txt *.cmake CMakePresets.json CMakeUserPresets.json CTestTestfile.cmake *.cmake.in meson.build
    meson_options.txt meson.options xmake.lua premake5.lua premake4.lua conanfile.py conanfile.txt vcpkg.json
    vcpkg-configuration.json portfile.cmake *.gyp *.gypi binding.gyp *.gn *.gni BUILD.gn .gn *.pri *.qbs
    CPackConfig.cmake
bazel, buck, please | at the next build | bazel: bazelrc, tools/bazel
    BUILD.bazel WORKSPACE.bazel.lock WORKSPACE WORKSPACE.bazel WORKSPACE.bzlmod MODULE.bazel *.bzl .bazelrc
    bazelrc .bazelversion .bazeliskrc tools/bazel bazelisk.rc .bazelproject BUCK BUCK.v2 .buckconfig
    .buckconfig.local .buckconfig.d/ .buckroot buck2 buckw *.bxl .plzconfig* pleasew
npm, yarn, pnpm, bun, deno | at the next install, or when a script of it is called | npm-scripts(7), yarn, pnpm
    package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb package.json5
    package.yaml .npmrc .yarnrc .yarnrc.yml .yarnrc.yaml .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js .pnpmfile.js
    pnpm-workspace.yaml .pnp.cjs .pnp.js .pnp.loader.mjs .pnp.data.json .npmignore.js bunfig.toml .bunfig.toml
    .bun/ deno.json deno.jsonc deno.lock import_map.json import-map.json bower.json .bowerrc lerna.json nx.json
    project.json rush.json rush-pnpmfile.cjs common/config/rush/ common/scripts/ turbo.json turbo.jsonc .swcrc
    wireit.json .npmpackagejsonlintrc* .ncurc* .syncpackrc* .volta.json jsr.json workspace.json moon.yml .moon/
    vlt.json
Node.js tools | at the next build, test or start: it is code, or names code | vite, webpack, jest, next
    *.config.js vite.config.* vitest.config.* jest.config.* babel.config.* karma.conf.* wdio.conf.* webpack.*.js
    protractor.conf.* *.config.ts *.config.mjs *.config.cjs *.config.mts *.config.cts *.config.jsx *.config.tsx
    *.config.coffee *.conf.js *.conf.ts *.conf.cjs *.conf.mjs *.preset.js *.setup.js *.setup.ts *.workspace.ts
    *.workspace.js wdio.* angular.json .angular-cli.json ember-cli-build.js testem.js .ember-cli brunch-config.*
    vue.config.* nuxt.config.* next.config.* svelte.config.* astro.config.* remix.config.* gatsby-node.*
    gatsby-config.* gatsby-ssr.* gatsby-browser.* app.config.* docusaurus.* .storybook/ craco.* razzle.* .umirc.*
    umirc.* .fatherrc.* .dumirc.* setupTests.* jest-setup.* jest.setup.* vitest.setup.* globalSetup.*
    globalTeardown.* cypress.json cypress/plugins/ cypress/support/ .cypress/ .mocharc* mocha.opts test/mocha.opts
    .taprc .avarc .nycrc* .c8rc* .jasmine.json jasmine.json jasmine.mjs testcafe.* .testcaferc* plopfile.*
    hygen.js .hygen.js _templates/ build.config.* vercel.json netlify.toml serverless.* wrangler.* firebase.json
    electron-builder.* ionic.config.* .fusebox.js fuse.js .backstopjs* lighthouserc* .lighthouserc* .pa11yci*
    now.json sst.config.* amplify.yml .graphqlrc*
    codegen.ts codegen.yml codegen.yaml codegen.json typedoc.json
eslint, babel, prettier and other tools | when an editor, a hook or a build runs the tool: plugins are code | eslint
    .eslintrc* .eslintrules/ eslint-local-rules* .babelrc* .prettierrc* .stylelintrc* .postcssrc* tslint.json
    .tslintrc* .jshintrc .jscsrc .xo-config* .xo.config.* .remarkrc* .textlintrc* .markdownlint-cli2.*
    .markdownlint.js .htmlhintrc .pugrc .pug-lintrc* .dependency-cruiser.* .depcheckrc* .releaserc* .release-it.*
    .versionrc* .changeset/config.json .sequelizerc knexfile.* ormconfig.* drizzle.config.* prisma.config.*
    .env-cmdrc* .esmrc* .tern-project .flowconfig tsconfig* jsconfig.json .swcrc.* biome.json biome.jsonc
    .oxlintrc.json dprint.json .dprint.json rome.json .eslint-plugin-local/ .puppeteerrc* .svgrrc* .imgbotconfig
    .size-limit.* .bundlewatch* .lintstaged* .typedoc* .jsdoc* api-extractor.json knip.* .knip.* .unimportedrc*
    .cspell.js cspell.config.*
pytest, tox, nox | at the next test, or the next python | pytest: conftest.py; site
    conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini tox.toml noxfile.py .coveragerc
    .coveragerc.toml sitecustomize.py usercustomize.py runtests.py manage.py pytestdebug.py behave.ini .behaverc
    features/environment.py nose.cfg .noserc unittest.cfg trial.cfg hypothesis.ini robot.toml robocop.toml
    locustfile.py asv.conf.json mutmut_config.py setup_cov.py ward.toml green.cfg .green
pip, uv, poetry, setuptools | at the next install or build, or the next python | setuptools, site, PEP 517
    setup.py setup.cfg pyproject.toml *.pth *.egg-link *.egg *.whl *.pyz *.pyzw *.pex pyvenv.cfg *._pth pip.conf
    pip.ini .pip/ .pypirc.local uv.toml uv.lock .uv.toml poetry.toml poetry.lock pdm.toml .pdm.toml pdm.lock
    .pdm-python hatch.toml hatch_build.py pdm_build.py flit.ini setup_requires.py versioneer.py _version_hook.py
    Pipfile Pipfile.lock requirements.txt requirements*.txt requirements*.in constraints.txt environment.yml
    environment.yaml conda-lock.yml conda_build_config.yaml .condarc condarc buildout.cfg buildout.d/ bootstrap.py
    easy_install.cfg .pydistutils.cfg pydistutils.cfg distutils.cfg MANIFEST.in.py pylock.toml pylock.*.toml
    rye.toml requirements.lock dev-requirements.txt test-requirements.txt
    entry_points.txt
mypy, pylint, flake8 | when an editor, a hook or CI runs the tool: plugins are code | mypy, pylint: init-hook
    mypy.ini .mypy.ini .pylintrc pylintrc .pylintrc.toml pylintrc.toml .flake8 .bandit .pyre_configuration
    .pyre_configuration.local pyrightconfig.json .prospector.yaml .prospector.yml prospector.yaml ruff.toml
    .ruff.toml .landscape.yml .semgrep.yml ty.toml .pyre/ sourcery.yaml .sourcery.yaml .fixit.config.yaml .jedi/
    .ropeproject/
    .sqlfluff .checkov.yml .checkov.yaml .mega-linter.yml .megalinter.yml
Python programs | when the program starts: it is code, or names code | IPython, Jupyter, Sphinx
    .ipython/ ipython_config.py ipython_kernel_config.py jupyter_config.py jupyter_notebook_config.*
    jupyter_server_config.* jupyter_lab_config.py .jupyter/ kernel.json .pdbrc .pdbrc.py .pythonrc .pythonrc.py
    .pystartup pythonstartup.py .ptpython/ gunicorn.conf.py gunicorn_config.py uwsgi.ini celeryconfig.py
    supervisord.conf circus.ini alembic.ini alembic/env.py mkdocs.yml mkdocs.yaml docs/conf.py doc/conf.py
    source/conf.py sphinx/conf.py pelicanconf.py publishconf.py nikola/conf.py dvc.yaml .dvc/config
    .dvc/config.local MLproject kedro.yml scrapy.cfg airflow.cfg airflow_local_settings.py webserver_config.py
    prefect.yaml dagster.yaml cookiecutter.json copier.yml copier.yaml hooks/pre_gen_project.py
    hooks/post_gen_project.py hooks/pre_prompt.py hooks/pre_gen_project.sh hooks/post_gen_project.sh
    .flaskenv .kedro.yml dbt_project.yml book.toml _quarto.yml _quarto.yaml
cargo, rustup | at the next cargo command | cargo: configuration, build scripts
    build.rs .cargo/config .cargo/config.toml .cargo/config.local.toml .cargo/credentials.toml.sh Cargo.toml
    Cargo.lock rust-toolchain rust-toolchain.toml Cross.toml clippy.toml .clippy.toml dylint.toml Trunk.toml
    .cargo/audit.toml .cargo/bin/ Dioxus.toml tauri.conf.json wasm-pack.toml cargo-generate.toml deny.toml
    .config/nextest.toml .config/nextest/ Anchor.toml Leptos.toml
    rust-project.json .rust-project.json dist-workspace.toml spin.toml
gradle, maven, sbt, mill, lein | at the next build | gradle, maven, sbt
    gradlew gradlew.bat .mvn/extensions.xml project/*.sbt project/build.sbt m2/settings.xml gradle.properties
    gradle-wrapper.properties gradle-wrapper.jar gradle/wrapper/ build.gradle build.gradle.kts settings.gradle
    settings.gradle.kts init.gradle init.gradle.kts init.d/ *.gradle *.gradle.kts *.gradle.dcl buildSrc/
    build-logic/ libs.versions.toml gradle/verification-metadata.xml mvnw mvnw.cmd maven-wrapper.properties
    maven-wrapper.jar pom.xml *.pom .mavenrc mavenrc_pre.bat jvm.config maven.config build.sbt *.sbt sbtx .sbtopts
    .jvmopts .sbtrc sbtw project/build.properties project/plugins.sbt project/*.scala build.sc build.mill millw
    mill.bat .mill-jvm-opts .mill-opts .scala-build/ project.scala .scalafix.conf project.clj deps.edn build.boot
    shadow-cljs.edn bb.edn build.clj user.clj profiles.clj .lein-env .lein/ tests.edn Leiningen .jpm4j
    jbang-catalog.json grails-app/conf/ lombok.config .jvmrc .sdkmanrc jitpack.yml build.kts kotlin.main.kts
    *.main.kts *.jsh
ruby, bundler and others | at the next ruby, bundle, test or install | bundle(1), irb(1)
    Gemfile Gemfile.lock Gemfile.local gems.rb gems.locked *.gemspec .gemrc .bundle/config .irbrc .pryrc .rspec
    .rspec-local .rubocop.yml .rubocop_todo.yml .standard.yml .simplecov .reek.yml .solargraph.yml .rdebugrc
    Guardfile Capfile Berksfile Puppetfile Vagrantfile Brewfile Podfile Podfile.lock *.podspec *.podspec.json
    Fastfile Appfile Matchfile Deliverfile Gymfile Snapfile Pluginfile fastlane/ Dangerfile Appraisals Steepfile
    config.ru config/boot.rb config/application.rb config/environment.rb config/initializers/ config/puma.rb
    config/spring.rb .spring.rb Kitchenfile .kitchen.yml kitchen.yml Cheffile Policyfile.rb knife.rb .chef/
    .ruby-lsp/ extconf.rb mkrf_conf.rb _config.yml _plugins/ .jekyll-metadata
php, composer | at the next php, composer or test | composer: scripts
    composer.json composer.lock composer.phar *.phar auth.json.php .php.ini .user.ini php.ini phpunit.xml
    phpunit.xml.dist phpunit.dist.xml phpunit-bootstrap.php tests/bootstrap.php .phpcs.xml phpcs.xml
    phpcs.xml.dist .phpcs.xml.dist .php-cs-fixer.php .php-cs-fixer.dist.php .php_cs .php_cs.dist phpstan.neon
    phpstan.neon.dist phpstan.dist.neon psalm.xml psalm.xml.dist rector.php ecs.php pint.json infection.json*
    box.json box.json.dist behat.yml behat.yml.dist behat.dist.yml codeception.yml codeception.dist.yml
    kahlan-config.php phpspec.yml pest.php tests/Pest.php artisan .phpstorm.meta.php castor.php .castor/
    RoboFile.php phing.xml build.phing .htaccess web.config wp-config.php wp-cli.yml wp-cli.local.yml
    captainhook.*
go | at the next go build, generate, test or tool | go help generate, go.env
    go.mod go.work go.work.sum tools.go go.env .golangci.* .goreleaser.* .ko.yaml gopls.mod *.go.tmpl .gqlgen.yml
    gqlgen.yml sqlc.yaml sqlc.yml sqlc.json buf.gen.yaml buf.yaml buf.work.yaml .mockery.* ent/generate.go cgo.go
    *.syso
dotnet, msbuild | at the next build or restore, or when the project is opened | msbuild: Directory.Build
    Directory.Build.props Directory.Build.targets Directory.Build.rsp Directory.Packages.props
    Directory.Solution.props Directory.Solution.targets MSBuild.rsp Before.*.targets After.*.targets *.csproj
    *.fsproj *.vbproj *.vcxproj *.vcxproj.filters *.sqlproj *.wixproj *.shproj *.props *.targets *.sln *.slnx
    *.slnf *.csproj.user *.vcxproj.user global.json NuGet.Config dotnet-tools.json .config/dotnet-tools.json
    paket.dependencies paket.references paket.exe .paket/ *.nuspec *.csx *.fsx *.runsettings *.ruleset
    omnisharp.json .omnisharp/ launchSettings.json Properties/launchSettings.json *.rsp build.cmd cake.ps1 .nuke/
    Nukefile
    *.proj
mix, rebar, gleam | at the next mix, rebar or iex | mix, rebar3
    mix.exs mix.lock .formatter.exs .credo.exs .iex.exs .dialyzer_ignore.exs config/config.exs config/runtime.exs
    config/dev.exs config/test.exs config/prod.exs coveralls.json rebar.config rebar.config.script rebar.lock
    rebar3 erlang.mk *.app.src.script sys.config vm.args .erlang elvis.config gleam.toml .tool-versions
stack, cabal, dune, opam, lake | at the next build or prompt | cabal, dune
    stack.yaml stack.yml package.yaml *.cabal cabal.project cabal.project.local cabal.project.freeze cabal.config
    Setup.hs Setup.lhs .ghci .ghci.conf hie.yaml hie.yml .hlint.yaml .stylish-haskell.yaml fourmolu.yaml
    hpack.yaml .haskell-ghc.yaml dune dune-project dune-workspace *.opam .ocamlinit .merlin esy.json
    myocamlbuild.ml _oasis _tags .ocamlbuild jbuild idris.ipkg *.ipkg *.agda-lib spago.yaml spago.dhall
    packages.dhall purs.json *.dhall lakefile.lean lakefile.toml lean-toolchain leanpkg.toml _CoqProject .coqrc
    elm.json elm-tooling.json rescript.json bsconfig.json bs-config.json .ghcid
swift, zig, dart, julia, R, perl and others | at the next build, install or prompt | swift, zig, R: Startup
    Package.swift Tuist/Config.swift Package@swift-*.swift project.pbxproj *.xcodeproj/ *.xcworkspace/ *.xcconfig
    *.xcscheme *.playground/ Project.swift Workspace.swift Tuist.swift Tuist/ Cartfile Cartfile.private
    Cartfile.resolved Mintfile .swiftlint.yml .periphery.yml .sourcery.yml .sourcery.yaml XcodeGen.yml .xcode.env
    .xcode.env.local ci_scripts/ Rswift.yml swiftgen.yml build.zig build.zig.zon zls.json *.nimble nim.cfg
    config.nims *.nims nimble.lock .nimble/ shard.yml shard.lock dub.json dub.sdl dub.selections.json v.mod
    build.vsh *.vsh pubspec.yaml pubspec.lock build.yaml analysis_options.yaml hook/build.dart tool/build.dart
    melos.yaml dart_test.yaml .fvmrc .fvm/ shorebird.yaml flutter_launcher_icons.yaml Project.toml Manifest.toml
    JuliaProject.toml deps/build.jl startup.jl LocalPreferences.toml .Rprofile .Renviron .Rbuildignore.R
    Rprofile.site renv.lock renv/activate.R .rprofile _targets.R cleanup.win .octaverc Makefile.PL Build.PL
    cpanfile dist.ini .perlcriticrc .proverc .replyrc .ackrc *.rockspec .luarocks/ .luacheckrc .luarc.json .luacov
    .busted lit.toml fpm.toml alire.toml ada.project foundry.toml hardhat.config.* truffle-config.js truffle.js
    brownie-config.yaml ape-config.yaml remappings.txt Move.toml Scarb.toml Nargo.toml *.lpi *.lpr *.dproj
    *.groupproj haxelib.json *.hxml
docker, podman, packagers | at the next build or start of the container or package | docker compose, devcontainers
    Dockerfile Dockerfile.* *.dockerfile Containerfile Containerfile.* .dockerignore.sh docker-compose*
    compose.yaml compose.yml compose.*.yaml compose.*.yml podman-compose* docker-bake.hcl docker-bake.json docker-bake.*
    docker-stack* .devcontainer/ .devcontainer.json devcontainer.json devcontainer-feature.json .gitpod.yml
    .gitpod.yaml .gitpod.Dockerfile .gitpod/ .devfile.yaml devfile.yaml .replit replit.nix .codesandbox/
    sandbox.config.json .stackblitzrc .project-idx/ .lapce/ .coder/ coder.yaml *.nspawn mkosi.conf mkosi.*
    lxc.conf distrobox.ini toolbox.ini apptainer.def Singularity Singularity.* *.def.sif singularity.d/
    .flatpak-builder/ *.flatpak-manifest.yml snapcraft.yaml appimage-builder.yml *.pkgbuild PKGBUILD *.install
    APKBUILD *.ebuild debian/rules debian/*.postinst debian/*.preinst debian/*.install debian/control
    debian/postinst debian/preinst debian/prerm debian/postrm *.spec rpm.spec *.bb *.bbappend *.bbclass
    buildroot.mk Caskfile Cask nfpm.yaml
terraform, helm, ansible, systemd and others | at the next deployment, plan or start | terraform, helm, systemd.unit(5)
    *.tf *.tfvars *.tf.json *.tofu .terraformrc terraform.rc .terraform.lock.hcl .tflint.hcl *.tfbackend
    terragrunt.hcl root.hcl Chart.yaml helmfile.yaml helmfile.yml helmfile.d/ helmfile.yaml.gotmpl .helmignore.sh
    skaffold.yaml skaffold.yml Tiltfile tilt_config.json tilt-settings.* kustomization.yaml kustomization.yml
    Kustomization garden.yml garden.yaml devspace.yaml okteto.yml okteto.yaml .okteto/ werf.yaml Pulumi.yaml
    Pulumi.*.yaml cdk.json cdktf.json sam.yaml samconfig.toml serverless.yml serverless.yaml serverless.ts
    fly.toml render.yaml appspec.yml buildspec.yml buildspec.yaml cloudbuild.yaml cloudbuild.yml railway.json
    railway.toml nixpacks.toml heroku.yml captain-definition project.toml .profile.d/ .ebextensions/ .platform/
    .platform.app.yaml .upsun/ .magento.app.yaml .do/ copilot/manifest.yml ansible.cfg .ansible-lint .ansible.cfg
    playbook.yml playbook.yaml molecule.yml *.nomad *.nomad.hcl *.pkr.hcl packer.json cloud-init.yaml
    cloud-config.yaml Saltfile top.sls minion.d/ nixops.nix deploy.rb argocd.yaml .argo/ .sops.yaml Modelfile
    *.service *.socket *.timer *.desktop *.cron crontab cron.d/ cron.daily/ cron.hourly/ anacrontab
continuous integration | at the next push: with the secrets of CI | GitHub Actions, GitLab CI
    .github/workflows/ .github/actions/ .github/dependabot.yml .github/scripts/ action.yml action.yaml
    .github/renovate.json renovate.json renovate.json5 .renovaterc* .gitlab-ci.yml .gitlab-ci/ .gitlab-ci.*
    *.gitlab-ci.yml .gitlab/ .gitea/ .forgejo/ .woodpecker.yml .woodpecker.yaml .woodpecker/ .woodpecker*
    Jenkinsfile Jenkinsfile.* *.jenkinsfile *.jenkins .circleci/ circle.yml .travis.yml .travis/ azure-pipelines*
    .azure-pipelines/ .azure-pipelines* .vsts-ci.yml .azuredevops/ vsts-ci.yml bitbucket-pipelines.yml .buildkite/
    buildkite.yml .drone.yml .drone.yaml .drone.star .drone.jsonnet .cirrus.yml .cirrus.star appveyor.yml
    .appveyor.yml appveyor.yaml .appveyor/ .semaphore/ semaphore.yml .builds/ .build.yml .teamcity/ .tekton/
    .concourse/ .screwdriver.yaml screwdriver.yaml .shippable.yml shippable.yml wercker.yml codeship-steps.yml
    codeship-services.yml bitrise.yml codemagic.yaml .space.kts .harness/ .codefresh/ codefresh.yml .gocd.yaml
    .evergreen.yml .zuul.yaml .zuul.d/ zuul.yaml zuul.d/ .lava/ .kokoro/ .ci/ .sourcehut.yml .onedev-buildspec.yml
    .vela.yml .laminar/ .readthedocs.yml .readthedocs.yaml readthedocs.yml .pre-commit-ci.yaml dependabot.yml
    .actrc .act/ .cds.yml .agola/ .abstruse.yml .probot.yml bors.toml .bors.toml .prow.yaml .testing-farm.yaml
    .packit.yaml .packit.yml packit.yaml .copr/ .taskcluster.yml .scrutinizer.yml .styleci.yml .huskyci.yml
    .nancy-ignore.sh earthly.yml
editors | when an editor opens the project or a file of it | vim: exrc; emacs: dir-locals; VS Code: tasks
    .vscode/ .vscode-test.* .vscode-insiders/ *.code-workspace .vscodeignore.js .vs/ .idea/ *.iml *.ipr *.iws
    .fleet/ .zed/ .helix/ .vim/ .nvim/ .vimrc _vimrc .gvimrc _gvimrc .lvimrc .local.vimrc .vimrc.local .exrc _exrc
    .nexrc .nvimrc .nvim.lua .nvim.vim .ideavimrc init.vim ginit.vim vimrc Session.vim .vimspector.json
    .ycm_extra_conf.py coc-settings.json .coc-settings.json .emacs .emacs.d/ .emacs.el init.el early-init.el
    .dir-locals.el .dir-locals-2.el .projectile .emacs.desktop Eldev .eldev Eask .sublime-project
    *.sublime-project *.sublime-workspace *.sublime-build *.sublime-settings *.sublime-commands .kateproject
    .kateconfig kakrc .kakrc .kak/ .nanorc nanorc .lite_project.lua .lite-xl/ .micro/ .atom/ .atom-build.* .nova/
    .settings/ .project .classpath .cproject .factorypath nbproject/ .nb-gradle/ .theia/ .kdev4/ *.pro.user
    *.qmlproject .clangd .ccls .ccls-root compile_flags.txt compile_commands.json .clang-tidy .cquery .bsp/
    .jupytext.toml .spyproject/ .spyderproject .komodotools/ *.komodoproject .geany *.geany .brackets.json
    .helix/languages.toml .phpactor.json .phpactor.yml .taplo.toml .neoconf.json .nlsp-settings/ .exercism.vim
    .lazy.lua .vscodevimrc
debuggers | at the next start of the debugger here | gdb(1): auto-load; lldb
    .gdbinit gdbinit .gdbearlyinit *-gdb.py *-gdb.gdb .lldbinit .lldbinit-* .lldb/ .radare2rc .rizinrc .r2rc
    .cgdbrc .pwnrc .ddd/ .valgrindrc .ltrace.conf .perfconfig .dbgp .seergdb .debug.sh
programs of the shell | at the next start of the program with these settings | rg(1), curl(1), psql(1)
    .ripgreprc .config/fish/ .config/git/ .config/nvim/ .config/autostart/ .config/systemd/ .config/mise/
    .config/helix/ .config/zed/ .ssh/config .ssh/rc .ssh/authorized_keys .gnupg/gpg.conf .kube/config .aws/config
    .docker/config.json .docker/cli-plugins/ .rgrc .curlrc _curlrc .wgetrc .netrc.sh .fdrc .ctags .ctags.d/
    .globalrc gtags.conf .lesskey .lessfilter .screenrc .tmux.conf tmux.conf .tmuxinator.yml .tmuxinator.yaml
    .tmuxinator/ .tmuxp.* .teamocil .zellij/ zellij.kdl .mailcap .muttrc .psqlrc .sqliterc .mylogin.cnf .my.cnf
    .mongorc.js .mongoshrc.js .dbshell .redisclirc .ansiblerc .local/bin/ .local/share/ .latexmkrc latexmkrc
    .chktexrc texmf.cnf arara.yaml .arararc.yaml .latexindent.yaml .cobra.yaml .sbclrc .clinit.cl .eclrc .racketrc
    .swiplrc .gprc .hgignore.sh .toprc .nethackrc .haxerc .ghcirc .coverage.py .noderc .node_repl_rc
    .node-config.js .node-options node.config.json .denorc .ts-node.json .myrepos .stignore.sh .rsyncrc .unison/
    .lftprc .ignore.sh .gitpullrc .curl-options .wget-hsts.sh .Xresources .Xdefaults .xbindkeysrc .swaywm/
    autostart/
Claude Code | when the agent starts here: hooks, permissions, tools and orders | Claude Code: settings, memory
    CLAUDE.md .claude/settings.json CLAUDE.local.md .claude/ .claude.json .claude.local.json .claude-plugin/
    claude_desktop_config.json .claudeignore.sh
agents | when an agent starts here: it obeys the file | AGENTS.md, Copilot
    AGENTS.md .claude/skills/ .agents/skills/ .github/copilot/ AGENT.md AGENTS.override.md AGENTS.local.md
    .agents/ .agent/ SKILL.md .skills/ .agentrules .airules .aiassistant/ .ai-rules/ .prompts/ .promptfoo/
    promptfooconfig.* memory-bank/ copilot-instructions.md .github/copilot-instructions.md .github/instructions/
    .github/prompts/ .github/chatmodes/ .github/agents/ .github/hooks/ .github/skills/ .copilot/
    copilot-setup-steps.yml *.instructions.md *.prompt.md *.chatmode.md *.agent.md *.mdc
agents | when the agent starts here: settings, hooks, tools and orders | settings of each agent
    GEMINI.md .gemini/ .geminiignore.sh gemini-extension.json .idx/airules.md JULES.md QWEN.md .qwen/ .iflow/
    IFLOW.md KIMI.md .kimi/ GROK.md .grok/ DEEPSEEK.md WARP.md .warp/ .warpindexingignore.sh CRUSH.md crush.json
    .crush.json .crush/ AMP.md .amp/ .ampcoderc .sourcegraph/ .cody/ CODEX.md .codex/ .opencode/ opencode.json
    opencode.jsonc .opencode.json OPENCODE.md .openhands/ .openhands_instructions .openhands/microagents/ .kiro/
    .kilocode/ .kilocodemodes .kilocoderules* .windsurf* .codeium/ .cascade/ .roo/ .roo* .cline/ .clinerules*
    .cline* .cursor/ .cursorrules .cursor* .trae/ .traerules .augment/ .augment-guidelines .augmentrules
    .continue/ .continuerc.json .continuerules .continue* .aider* aider.conf.yml .goose/ .goosehints goose.yaml
    .goosemoderc .junie/ .factory/ .droid/ .devin/ .replit.md .lovable/ .voidrules .pearai/ .tabnine/ .tabby/
    .zencoder/ .qodo/ .pr_agent.toml pr_agent.toml .coderabbit.yaml .sweep.yaml sweep.yaml .ellipsis/
    greptile.json .greptile/ bito.yaml .jules/ .plandex/ .mentat/ .mentat_config.json .gptengineer .gpteng/
    gptme.toml .gptme/ .codebuff/ codebuff.json .stakpak/ .letta/ .superdesign/ .serena/ .taskmaster/ .bmad*
    .specify/ .conductor/ conductor.json .vibe/ .amazonq/ .aws/amazonq/ .firebender/ firebender.json .codegpt/
    .rulesync/ rulesync.jsonc ruler.toml .ruler/ .genaiscript/ *.genai.js *.genai.mjs .mods.yml .rovodev/ .auggie/
    .openclaw/ SOUL.md HEARTBEAT.md .nanobot/
    .pi/ .omp/ .antigravity/ .codebuddy/ .qoder/ .lingma/ .comate/ .forge/ forge.yaml .rules replit.md .ona/
MCP clients | when an agent starts here: it starts the servers | Model Context Protocol
    .mcp.json mcp.json .mcp.yaml mcp.yaml .mcp/ mcp_config.json mcp_settings.json mcp_servers.json mcp-config.json
    mcp-servers.json .mcp.* smithery.yaml smithery.json mcpServers.json cline_mcp_settings.json
    mcp_agent.config.yaml mcp_agent.secrets.yaml fastmcp.json .well-known/mcp.json server.mcp.json manifest.dxt
    *.dxt *.mcpb
environments | when the environment is activated or its program is called | venv
    activate activate_this.py bin/activate Scripts/activate bin/python bin/python3 bin/pip bin/pip3 .bin/
Python | at the next import: compiled code may differ from its source | PEP 552
    *.pyc *.pyo
loaders and shells | when it is loaded, installed or opened: compiled code | ld.so(8), import system
    *.so *.so.* *.pyd *.dll *.dylib *.node *.jnilib *.o *.a *.lib *.ko *.wasm *.class *.jar *.war *.ear *.beam
    *.elc *.luac *.gem *.crate *.nupkg *.vsix *.xpi *.crx *.deb *.rpm *.apk *.ipa *.msi *.exe *.scr *.cpl
    *.appimage *.flatpak *.bin.sh *.dmg *.hta *.lnk *.scpt *.applescript *.app/ *.command
Windows | when it is called or opened | Windows Script Host
    *.vbs *.scf *.vbe *.wsf *.wsh autorun.inf desktop.ini
"""
