"""The language of the documentation and of the source: plain words, short sentences, one word for one thing.

    python -m tests.prose                    every fault of the documentation
    python -m tests.prose broker net         every fault of these packages, also of those that are not clean yet
    python -m tests.prose docs/guides        every fault of the pages below a folder

docs/glossary.md lists the words to use and the retired ones; the phrases below are retired everywhere.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.source_code import Source, sources

ROOT: Final = Path(__file__).parents[1]
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
MAX_WORDS: Final = 35
"""Of a sentence of the documentation."""
MAX_LINE: Final = 120
"""Characters of a line of the documentation; we wrap at 100."""

PHRASES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(nobody|nobody's|whoever|somebody|somebody's|himself|herself|oneself)\b",
        r"\b(told|tells|heard|hears)\b",
        r"(?<!there )\b(is|are|was|were) none\b",
        r"(?<!machine )\brooms?\b(?!@)",
        r"(?<!in )(?<!take )(?<!takes )(?<!first )\bplaces?\b",
        r"\b(stretch|stretches|lanes?|trays?|parcels?|surroundings|wish|wishes|wished|greets?|greeted)\b",
        r"\bhanded\b",
        r"\b(take|takes|taken|took) apart\b|\b(put|puts) together\b|\bshar(e|es|ed|ing) out\b|\bshare-outs?\b",
        r"\b(go|goes|going|gone|went) on\b|\b(let|lets) go\b|\b(come|comes|came) back\b",
        r"\bwalk(s|ed|ing)?\b",
        r"\b(lie|lies|lay) (in|at|on|behind|beside|where)\b|\bwhere \w+ lies\b",
        r"\b(obey|obeys|obeyed|anew|for ever|mends?|mended|in good order|sees to it|at the door|gives? way)\b",
        r"\bof (one's|its|his) own accord\b",
        r"\bto be called\b|\b(is|are) (not )?meant\b|\bmeant to\b|\bfor good\b|\bunder way\b|\bled astray\b",
        r"\b(is|are) asked\b|\bvouch(es)?\b|\bwent\b|\btaken for\b|\ba usual one\b|\bwould like to\b|\btell each other\b",
        r"; (how (many|much|far)|whether) (it|they|there|any|was|were|the)\b[^?]*$",
        r"\bsound (records?|entry|entries|copy|messages?|bytes?)\b|\bbehind the (end|last)\b(?! of the log reads)",
    )
)
"""Idioms and metaphors that a reader has to read twice."""
FIRST_WORDS: Final = re.compile(r"(Who|Whoever|What|Whatever) [^?]*\.$")
"""A sentence with a clause as its subject, such as "Who sends has to wait."."""
CLAUSE_FIRST: Final = re.compile(r"(?:^|[.;:] )(?:Who|Whoever|Whatever|To [a-z]+ .{1,40} (?:costs?|takes?)) [^?]*?[.;]")
"""The same in texts of the source."""
CONCEPTS: Final = frozenset(
    {
        "place",
        "places",
        "placed",
        "stretch",
        "stretches",
        "tray",
        "trays",
        "parcel",
        "parcels",
        "rooms",
        "wish",
        "wishes",
        "lane",
        "lanes",
        "surroundings",
        "told",
        "tell",
        "tells",
        "greet",
        "odd",
    }
)
"""Retired words that local variables, parameters and comments in C avoid, too."""

TEST_NAME_WORDS: Final = re.compile(
    r"(_)(told|tell|tells|nobody|somebody|everybody|anybody|whoever|who|whom|anew|heard|hears?|rooms?|wish|wishes|goes_on"
    r"|go_on|went_on|for_ever|passed_over|taken_for|all_the_same|meanwhile|alike|borne|that_is_none)(?=_|$)"
)
"""Idioms that names of tests avoid."""

NETWORK: Final = frozenset({"net", "protocol", "nameserver", "broker", "client", "spark"})
SCOPES: Final = {"line": NETWORK, "lines": NETWORK}
"""Words that are retired in some packages only: a line of text is a line."""
COMPOUNDS: Final = re.compile(
    r"machine_?rooms?|given_?up|command_?lines?|log_?lines?|json_?lines?|text_?lines?", re.IGNORECASE
)
"""Parts of names in which a retired word is the known word."""
ALLOWED_NAMES: Final[dict[str, str]] = {
    "max_held_pulls": "RocketMQ holds a pull that finds no message",
    "placed_at": "an order is placed",
}
ALLOWED_TEXTS: Final[dict[str, str]] = {}
"""Parts of texts with a retired phrase, and why they stay."""


# The documentation


def pages() -> list[str]:
    """Every page that people write, by its path in the repository. Pages that tools write have tables only."""
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "generated"]
    found = [*docs, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


def page_faults(page: str) -> Iterator[str]:
    text = (ROOT / page).read_text("utf-8")
    yield from (f"{page}:{fault}" for fault in text_faults(text))


def text_faults(text: str) -> Iterator[str]:
    """Faults of a Markdown text, each starting with the number of its line."""
    for number, line in _prose_lines(text):
        length = len(re.sub(r"\]\([^)]*\)", "]", line))
        if length > MAX_LINE and not line.startswith("|"):
            yield f"{number}: {length} characters in a line; at most {MAX_LINE}"
    for number, paragraph in _paragraphs(text):
        for sentence in _sentences(paragraph):
            words = sentence.split()
            if len(words) > MAX_WORDS:
                yield f"{number}: {len(words)} words in a sentence; at most {MAX_WORDS}: {' '.join(words[:8])} …"
            if FIRST_WORDS.match(sentence):
                yield f"{number}: a clause as the subject: {' '.join(words[:8])} …"
        for found in phrases(paragraph):
            yield f"{number}: retired phrase: {found}"


def phrases(text: str) -> Iterator[str]:
    """Retired phrases of a text, each with the words around it."""
    for allowed in ALLOWED_TEXTS:
        text = text.replace(allowed, "")
    for pattern in PHRASES:
        for found in pattern.finditer(text):
            yield f"{found[0]!r} in … {text[max(0, found.start() - 30) : found.end() + 30].strip()} …"


def _prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code and comments."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(("    ", "<!--", "---", ":::")):
            yield number, line


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items, headings and cells of tables, each with the number of its first line; code is one word."""
    start, gathered, previous = 0, "", 0
    for number, line in [*_prose_lines(text), (sys.maxsize, "")]:
        begins = not line.strip() or number != previous + 1 or re.match(r"\s*([-*] |\d+\. |\||#|>|!!!)", line)
        if begins and gathered:
            yield start, _plain(gathered)
            gathered = ""
        previous = number
        if line.startswith("|"):
            yield from ((number, _plain(cell)) for cell in line.strip("|").split(" | ") if cell.strip())
        elif line.strip():
            start = start if gathered else number
            gathered += " " + line.strip()


def _plain(markdown: str) -> str:
    text = re.sub(r"``.+?``|`[^`]*`", "Code", markdown)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*_]{1,2}(?=\w)|(?<=[\w.])[*_]{1,2}", "", text)
    return re.sub(r"^\s*([-*>] |\d+\. |#+ )", "", text).strip()


def _sentences(paragraph: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])[)\"]?\s+(?=[A-Z\"(])|(?<=:)\s+(?=[A-Z])", paragraph) if part]


# The source


@cache
def retired_words() -> frozenset[str]:
    """The words of the column "not" of the glossary, and of its list of words that names avoid."""
    text = GLOSSARY.read_text("utf-8")
    cells = [line.strip().strip("|").split(" | ")[-1] for line in text.splitlines() if line.startswith("| ")]
    avoided = text.partition("\n## Words that names avoid\n")[2].partition("\n## ")[0]
    return frozenset(re.findall(r"`([a-z]+)`", " ".join(cells) + avoided))


def source_faults(source: Source) -> Iterator[str]:
    yield from name_faults(source)
    yield from local_faults(source)
    for node in ast.walk(source.tree):
        for text in _texts(node):
            yield from (f"{source.at(node)}: retired phrase: {found}" for found in phrases(text))
            yield from (
                f"{source.at(node)}: a clause as the subject: {found[0]}" for found in CLAUSE_FIRST.finditer(text)
            )


def local_faults(source: Source) -> Iterator[str]:
    """Retired nouns in the names of parameters and variables."""
    for node in ast.walk(source.tree):
        name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
        if name.strip("_") not in ALLOWED_NAMES and (
            found := CONCEPTS.intersection(COMPOUNDS.sub("", name.lower()).split("_"))
        ):
            yield f"{source.at(node)}: {name}: the glossary retires {min(found)!r}"


def comment_faults(path: Path) -> Iterator[str]:
    """Retired phrases in the comments of a source file, in Python or C."""
    text = path.read_text("utf-8")
    for number, comment in _c_comments(text) if path.suffix in {".c", ".h"} else _comments(text):
        yield from (f"{path.name}:{number}: retired phrase: {found}" for found in phrases(comment))


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "code", token.string)


def _c_comments(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.DOTALL):
        words = re.sub(r"\s*\n\s*\*?\s*", " ", found[0])
        yield text.count("\n", 0, found.start()) + 1, re.sub(r"`[^`]*`", "code", words)


def name_faults(source: Source) -> Iterator[str]:
    for part in source.module.split(".")[1:]:
        yield from (f"{source.module}: name of a module: {word}" for word in _retired_in(part, source.package))
    for node, name in _defined(source):
        for word in _retired_in(name, source.package):
            yield f"{source.at(node)}: {name}: the glossary retires {word!r}"


def idioms_of_tests(path: Path) -> Iterator[str]:
    """Idioms in the names of tests of a file."""
    for name in re.findall(r"def (test_\w+)", path.read_text("utf-8")):
        yield from (f"{path.name}: {name}: {found[2]}" for found in TEST_NAME_WORDS.finditer(COMPOUNDS.sub("", name)))


def _retired_in(name: str, package: str) -> list[str]:
    if name.strip("_") in ALLOWED_NAMES:
        return []
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", COMPOUNDS.sub("", name))
    known = retired_words()
    return [word for word in map(str.lower, words) if word in known and package in SCOPES.get(word, {package})]


def _defined(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Names of classes, functions, fields and attributes, where they are defined."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node, node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node, node.target.id


def _texts(node: ast.AST) -> Iterator[str]:
    """Strings of at least three words: docstrings, lines of the log, errors, help."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 3:
        yield re.sub(r"``.+?``|`[^`]*`", "code", node.value)


def main() -> None:
    for wanted in sys.argv[1:] or ["docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]:
        faults = [fault for page in pages() if page.startswith(wanted) for fault in page_faults(page)]
        faults += [fault for source in sources() if source.package == wanted for fault in source_faults(source)]
        print(*faults, f"{wanted}: {len(faults)} faults", sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
