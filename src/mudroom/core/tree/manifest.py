"""Files that another file names, and that therefore run with it. Pure.

A manifest is a text file that itself runs later by its name (``core/tree/runs_later.py``): build files, hooks, CI,
editors' tasks, settings. It is read as data: each word in it may be a path, whatever its ending. Only package.json,
pyproject.toml and Cargo.toml are parsed, because their keys tell which names are run and which are only listed.

A word counts from the manifest's directory, and a word with a slash from each directory above it, because a tool runs
where it is called. A name without its directory counts if the directory is another word (``cd tools && sh run``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import ancestors, name, parent
from mudroom.typing import Any

LIMIT = 1 << 20
"""Bytes. A larger manifest is not read: it may name any file."""
_LONGEST = 1024
"""Longest word, in bytes, whose directories count: a hostile manifest can be a single word with half a million
directories."""
_MOST_DOTS = 40
"""Most dots in a module's name, and in a line of TOML that is parsed: time grows with the square of a name's parts."""
_FEW = 256
"""Number of names that are looked for before a manifest is divided into words."""
_ESCAPES = (b"\\u", b"\\U", b"\\/", b"\xff\xfe", b"\xfe\xff")
_MOST_ABOVE, _MOST_NAMED = 8, 64
"""Most directories above a manifest, and most that it names, from which its words count."""

_LISTED = {
    b"package.json": """files keywords description name license author contributors readme repository homepage bugs
    types typings typesVersions man dependencies devDependencies peerDependencies optionalDependencies version""",
    b"pyproject.toml": """name version description readme license authors maintainers keywords classifiers dependencies
    packages include exclude extend-exclude force-exclude omit source files testpaths paths per-file-ignores overrides
    package-data known-first-party src module only-include norecursedirs urls license-files filename
    extend-per-file-ignores""",
    b"Cargo.toml": """name version description readme license license-file authors keywords categories include exclude
    members default-members dependencies dev-dependencies repository homepage documentation""",
}
"""Keys whose values are listed and not run."""
_CODE = (
    b".py", b".js", b".mjs", b".cjs", b".ts", b".mts", b".cts", b".jsx", b".tsx", b".rs", b".go", b".rb", b".php",
    b".java", b".kt", b".kts", b".scala", b".cs", b".lua", b".ex", b".exs", b".el", b".vim", b".txt", b".in",
)  # fmt: skip
"""In code and lists of packages, a word without slash is a path only with its ending: others are names and imports."""
_PASSIVE = (
    b".md", b".rst", b".adoc", b".png", b".svg", b".jpg", b".jpeg", b".gif", b".ico", b".webp", b".pdf", b".css",
    b".html", b".po", b".pot", b".csv", b"license", b"copying", b"notice", b".c", b".h", b".cc", b".cpp", b".cxx",
    b".c++", b".hh", b".hpp", b".hxx", b".inl", b".m", b".mm", b".s", b".asm", b".f", b".for", b".f77", b".f90",
    b".f95", b".f03", b".f08", b".pyx", b".pxd", b".pxi", b".cu", b".cuh", b".vala", b".vapi", b".proto", b".idl",
)  # fmt: skip
"""Endings of documents, and of sources that build files list for a compiler. Such files count only where a program or
an include is given them (``sh tools/run.c``)."""
_GIVEN = regex(
    rb"(?:\b(?:(?:ba|da|z|k|c)?sh|source|include|subninja|exec(?:\((?:compile\()?open)?|eval|env|run|python[\d.]*|perl|ruby"
    rb"|node|awk|sed|lua|php|tcc|run_path)"
    rb"|(?<![^\s;&|(])\.)[\s\"',(]+(?:-[^\s]*\s+)*(?=([^\s\"';&|,]+))"
)
_WORD = regex(rb"[A-Za-z0-9_@+~%\x80-\xff.][A-Za-z0-9_@+~%\x80-\xff./-]*")
_VARIABLE = regex(rb"[$%]\w+%?(?=[/\\])")
_MODULE = regex(rb"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")
_ENDS = (b".js", b".mjs", b".cjs", b".ts", b".json", b".sh", b".py")
_INSIDE = (b"/index.js", b"/index.ts", b"/__main__.py")
"""Completions of a word: ``node tools/run`` runs tools/run.js."""
_TOPS = (b"", b"src/", b"lib/")


class Wanted:
    """Changed files, in a form in which the words of many manifests are looked up. Immutable."""

    def __init__(self, paths: Collection[bytes], links: Collection[bytes] = ()) -> None:
        """``links``: those of the paths that may lead elsewhere, and so stand for everything below them."""
        self.paths = frozenset(paths)
        self._links = frozenset(map(name, links))
        self._odd = [path for path in paths if not _WORD.fullmatch(name(path))]
        self._directories = {b"", *(above for path in paths for above in ancestors(path))}
        self._ends = {name(path) for path in paths}
        """Last names of words that may be a path."""
        self._ends |= {end.removesuffix(each) for end in self._ends for each in _ENDS}
        self._ends |= {name(parent(path)) for path in paths if path.endswith((*_INSIDE, b"/__init__.py"))}
        self._stems = {end.partition(b".")[0] for end in self._ends}

    def named_by(self, manifest: bytes, data: bytes) -> set[bytes]:
        """Return the paths that a manifest names. ``manifest``: its path."""
        is_few = len(self._ends) <= _FEW and not any(escape in data for escape in _ESCAPES)
        if is_few and not any(end in data for end in self._ends):
            return set()
        text = _values(name(manifest), data)
        words = words_of(text)
        completes = not manifest.endswith(_CODE)
        above = parent(manifest)
        hidden = next((path for path in (*ancestors(above), above) if name(path).startswith(b".")), above + b"/")
        near = dict.fromkeys((above, parent(hidden)))  # .github/workflows/ci.yml: from where .github is, too
        far = dict.fromkeys((above, *ancestors(above)[: -_MOST_ABOVE - 1 : -1], b""))
        named = {at for word in words for top in near if (at := _joined(top, word)) in self._directories}
        named = set(sorted(named, key=len)[:_MOST_NAMED])
        found: set[bytes] = set()
        for word in words:
            if self._is_relevant(word, completes):
                found.update(path for top in named if (path := _joined(top, word)) in self.paths)
                for top in filter(partial(self._leads_somewhere, word), far) if b"/" in word else near:
                    paths = _candidates(top, word, completes=completes or b"/" in word)
                    found.update(path for path in paths if path in self.paths)
        if any(path.lower().endswith(_PASSIVE) for path in found):
            given = {name(_plain(word.rstrip(b")}]"))) for word in _GIVEN.findall(text)}
            found = {path for path in found if not path.lower().endswith(_PASSIVE) or name(path) in given}
        found.update(path for path in self._odd if name(path) in text)
        return found - {manifest}

    def _leads_somewhere(self, word: bytes, top: bytes) -> bool:
        at = _joined(top, word)
        return bool(self._links) or parent(at) in self._directories or at in self._directories

    def _is_relevant(self, word: bytes, completes: bool) -> bool:
        if name(word) in self._ends:
            return True
        if self._links and len(word) <= _LONGEST and not self._links.isdisjoint(word.split(b"/")):
            return True
        return completes and b"/" not in word and b"." in word and not self._stems.isdisjoint(word.split(b"."))


def words_of(text: bytes) -> set[bytes]:
    """Return the words of a text that may be paths, without needless parts: ``tools/run`` for ``./tools//run``."""
    texts = [text, text.replace(b"\\", b"/")] if b"\\" in text else [text]
    if b"$" in text or b"%" in text:
        texts = [_VARIABLE.sub(b" ", each) for each in texts] + texts
    raw = {word for each in texts for word in _WORD.findall(each)}
    words = set(map(_plain, raw))
    words.discard(b"")
    return words


def _plain(word: bytes) -> bytes:
    word = word.lstrip(b"@").rstrip(b".")
    if b"//" in word or b"./" in word or word.endswith(b"/"):
        return b"/".join(part for part in word.split(b"/") if part not in (b"", b"."))
    return word


def _candidates(top: bytes, word: bytes, *, completes: bool) -> Iterator[bytes]:
    plain = _joined(top, word)
    yield plain
    for end in (*_ENDS, *_INSIDE) if completes else ():
        yield plain + end
    if len(word) <= _LONGEST:
        yield from ancestors(plain)  # a changed directory here is a link, or a file has taken the directory's place
    if not completes or b"/" in word or word.count(b".") > _MOST_DOTS or not _MODULE.fullmatch(word):
        return
    names = word.split(b".")
    for length in range(len(names), 0, -1):  # a module, or an attribute in one
        for place in _TOPS if len(names) > 1 else _TOPS[1:]:
            module = _joined(top, place + b"/".join(names[:length]))
            yield module + b".py"
            if length == len(names) > 1:
                yield module + b"/__init__.py"
            if len(names) > 1:
                yield module


def _joined(top: bytes, word: bytes) -> bytes:
    while word.startswith(b"../") and top:
        top, word = parent(top), word[3:]
    return top + b"/" + word if top else word


def _values(last: bytes, data: bytes) -> bytes:
    """Return the text of a manifest that may name files that run; all of it if it was not parsed."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace").encode()
    listed = _LISTED.get(last)
    is_json = last.endswith(b".json")
    tree = _parsed(data, is_json=is_json) if is_json or listed is not None else None
    if tree is None:
        return data
    skipped = frozenset((listed or "").split())
    values: list[str] = []
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [inner for key, inner in value.items() if key not in skipped]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, str):
            values.append(value)
    return "\n".join(values).encode("utf-8", "surrogatepass")


def _parsed(data: bytes, *, is_json: bool) -> Any:
    try:
        if is_json:
            import json

            return json.loads(data)
        import tomllib

        if max(line.count(b".") for line in data.split(b"\n")) > _MOST_DOTS:
            return None
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return None
