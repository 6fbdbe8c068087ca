"""A file's programming language by its name, for syntax highlighting only. Pure.

The names are highlight.js's, for the languages in its common build
(https://github.com/highlightjs/highlight.js/blob/main/SUPPORTED_LANGUAGES.md).
"""

from __future__ import annotations

from mudroom.core.tree.path import name

_SUFFIXES = {
    "bash": "sh bash zsh ksh bats envrc",
    "c": "c h",
    "cpp": "cc cpp cxx c++ hh hpp hxx h++ ino inl",
    "csharp": "cs csx",
    "css": "css",
    "diff": "diff patch",
    "go": "go",
    "graphql": "graphql gql",
    "ini": "ini toml cfg conf properties editorconfig gitconfig npmrc service timer desktop",
    "java": "java",
    "javascript": "js jsx mjs cjs",
    "json": "json jsonc json5 jsonl geojson ipynb webmanifest code-workspace",
    "kotlin": "kt kts",
    "less": "less",
    "lua": "lua",
    "makefile": "mk mak make",
    "markdown": "md markdown mdx mkd",
    "objectivec": "m mm",
    "perl": "pl pm t",
    "php": "php phtml",
    "python": "py pyi pyw gyp bzl",
    "r": "r",
    "ruby": "rb rake gemspec podspec ru",
    "rust": "rs",
    "scss": "scss",
    "sql": "sql",
    "swift": "swift",
    "typescript": "ts tsx mts cts",
    "vbnet": "vb",
    "wasm": "wat wast",
    "xml": "xml html htm xhtml svg xsd xsl xslt rss atom plist csproj vcxproj vue",
    "yaml": "yaml yml clang-format clang-tidy",
}
_NAMES = {
    "bash": ".bashrc .bash_profile .profile .zshrc .zshenv .zprofile .bash_aliases PKGBUILD",
    "ini": ".gitmodules pip.conf Cargo.lock poetry.lock uv.lock Pipfile",
    "json": ".babelrc .eslintrc .prettierrc composer.lock Pipfile.lock flake.lock",
    "makefile": "Makefile makefile GNUmakefile",
    "python": "SConstruct SConscript BUILD WORKSPACE",
    "ruby": "Gemfile Rakefile Podfile Vagrantfile Brewfile",
}
_BY_SUFFIX = {suffix.encode(): language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BY_NAME = {name_of_file.encode(): language for language, names in _NAMES.items() for name_of_file in names.split()}


def language_of(path: bytes) -> str:
    """Return the language's highlight.js name, or an empty string for an unknown file name."""
    last = name(path)
    return _BY_NAME.get(last) or _BY_SUFFIX.get(last.rpartition(b".")[2].lower() if b"." in last else b"", "")
