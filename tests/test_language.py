"""What people read is plain English: no private terms, American spelling, at most 30 words in a sentence."""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 30
_PATTERNS = (
    "wallscope/**/*.py",
    "wallscope/**/*.toml",
    "queries/*.sql",
    "reports/*.j2",
    "reports/*.js",
    "action.yml",
)
FILES = sorted(path.relative_to(ROOT).as_posix() for pattern in _PATTERNS for path in ROOT.glob(pattern))

TERMS = {
    r"\b(un)?told\b|\btells?\b|\btelling\b": "shows, evidence, inferred from",
    r"\bspeaks?( for| of)\b|\bspoken\b": "represents; about",
    r"\bowns\b|\bowned\b|\bowners?\b|\bowning\b": "attributed to; takes",
    r"\bpays?\b|\bpaid\b|\bpaying\b": "attributed to; costs; gains",
    r"\bbeside\b": "next to; overlapping; in addition to",
    r"\b(is|are|was|were) of\b": "belongs to; has",
    r"\bplayed\b|\bplays\b|\breplayed again\b": "replayed",
    r"\bcomes? true\b|\bcame true\b": "fully effective",
    r"\bstretch(es)?\b": "replay window; interval",
    r"\blags?\b": "latency",
    r"\bhand-?overs?\b|\bhands? over\b|\bhanded over\b|\bhanding over\b": "dependency latency; passes",
    r"\bminds?\b": "caveats",
    r"\blonger by\b|\bfor free\b": "slack",
    r"\blets? go\b": "freed",
    r"\b(what|that|which|who) (bound|binds)\b|\bbinding (chain|link)s?\b": "critical",
    r"\bdull\b": "reference implementation",
    r"\bresidence\b": "duration in the collective",
    r"\bnouns\b": "models",
    r"\b(next|close) to no(ne|thing|body)?\b": "almost no",
    r"\bheed(s|ed)?\b|\bsought\b|\bnobody\b|\brubbish\b|\bgravest\b|\bin earnest\b": "plain words",
    r"\b(ms|µs|ns|s|GB|GiB|MiB|TFLOPS|samples|kernels|calls|times) a (step|rank|GPU|kernel|second)\b": "per",
    r"\b(one|rows?|columns?|files?|lines?|tables?) an? (rank|step|GPU|kernel|file|row|format)\b": "per",
    r"\b(which|that|who) (is|are) asked\b": "queried",
    r"\bno pattern knows\b": "unrecognized",
    r"(?<![Tt]here )\b(is|are) no (?!longer\b|more\b|less\b)\w+": "is not a",
}
BRITISH = (
    r"colour|behaviour|favour|neighbour|\bgrey|catalogue|\bcentre|licence|labell|cancell|modell|artefact"
    r"|(anal|paral)ys(e|ed|ing)\b"
    r"|(synchron|serial|normal|optim|quant|recogn|initial|summar|minim|maxim|util|organ|visual|priorit|token"
    r"|character|general|special|capital|categor|material|central|author|emphas|standard)is(e|ed|es|ing|ation|er)"
)
_IDENTIFIER = re.compile(r"`[^`]*`|\{[^{}]*\}|\S*[_/=<>\\]\S*|--without \S+|--[\w-]+|https?://\S+")
_CODE = re.compile(
    r"^\s*(SELECT|CREATE|INSERT|WITH|IFNULL|CAST|PRAGMA|FROM|WHERE|noqa|type:)"
    r"|=> \{|\(\?[:=!<P]|\\[bwdsS]|[|]\w+[|]"
)
_CODE_LINE = re.compile(r"(?m)^(?: {4}|--\w|import |from \w+ import |export |[\w.]+ ?=)|[;{(\\]$")
_STATEMENT = re.compile(r"[a-z]{2,},? [a-z]{2,}")


@cache
def read_texts(name: str) -> tuple[str, ...]:
    """Return the texts of a file that a person may read, each without line breaks."""
    text = (ROOT / name).read_text(encoding="utf-8")
    readers = {".py": _python, ".toml": _toml, ".sql": _sql, ".j2": _html, ".js": _script, ".yml": _action}
    found = (" ".join(one.split()) for one in readers[Path(name).suffix](text))
    return tuple(one for one in found if _STATEMENT.search(one) and not _CODE.search(one))


def _python(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    pieces = {id(part) for node in joined for part in node.values}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{0}" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield from _paragraphs(node.value) if id(node) in docs else _prose(node.value)
    yield from _comments(text)


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring without its examples, the entries of a list one by one."""
    for paragraph in re.split(r"\n\s*\n|\n[├└│]", text):
        prose = re.split(r"(?m)^\s*>>>", paragraph)[0]
        is_list = re.match(r"\s*(Args|Returns|Raises|Yields):", prose)
        yield from re.split(r"(?m)^\s*[\w, *]+:\s", prose) if is_list else [prose]


def _prose(text: str) -> list[str]:
    """Return a text without the paragraphs that are code; a text of one line is prose."""
    if "\n" not in text:
        return [text]
    return [one for one in re.split(r"\n\s*\n", text) if not _CODE_LINE.search(one)]


def _comments(text: str) -> Iterator[str]:
    """Yield comments, those on lines of their own that follow each other as one."""
    lines: list[str] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_alone = token.line[: token.start[1]].isspace() or token.start[1] == 0
            if not is_alone or token.start[0] != last + 1:
                yield " ".join(lines)
                lines = []
            lines.append(token.string.lstrip("#: "))
            last = token.start[0] if is_alone else -1
    yield " ".join(lines)


def _toml(text: str) -> Iterator[str]:
    yield from _strings(tomllib.loads(text))
    for comment in re.findall(r"(?:^#.*\n?)+", text, re.MULTILINE):
        yield from _entries(re.sub(r"(?m)^#", "", comment))


def _entries(comment: str) -> list[str]:
    """Return the paragraphs of a comment, and each entry of a list of names with their meanings."""
    return re.split(r"(?m)^ *(?=:\w|\w+(?:, \w+)* {2,})|\n\s*\n", comment)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _sql(text: str) -> Iterator[str]:
    yield from _entries("\n".join(re.findall(r"(?m)^--(.*)$", text)))


def _html(text: str) -> Iterator[str]:
    plain = re.sub(r"(?s)<(script|style).*?</\1>|\{#.*?#\}", "", text)
    yield from re.findall(r"(?s)\{#(.*?)#\}", text)
    yield from re.findall(r'(?:title|aria-label|placeholder|alt)="([^"]*)"', plain)
    yield from re.split(r"(?s)<[^>]*>|\{%.*?%\}", plain)


def _script(text: str) -> Iterator[str]:
    yield from (one or other for one, other in re.findall(r'"((?:[^"\\\n]|\\.)*)"|`([^`]*)`', text))
    yield from re.findall(r"(?m)(?:^|\s)//(.*)$", text)


def _action(text: str) -> Iterator[str]:
    yield from re.findall(r"(?m)^ *description: (.*)$", text)
    yield from re.findall(r"::(?:error|warning)::([^\"]*)", text)
    yield from re.findall(r"(?m)(?:^|\s)# (.*)$", text)


def find_faults(texts: tuple[str, ...]) -> list[str]:
    """Return what breaks a rule, each with its sentence."""
    return [fault for text in texts for fault in (*_terms(text), *_long(text))]


def _terms(text: str) -> Iterator[str]:
    prose = _IDENTIFIER.sub(" ", text)
    for pattern, better in TERMS.items():
        if found := re.search(pattern, prose, re.IGNORECASE):
            yield f"'{found[0]}', better: {better}: {text}"
    if found := re.search(BRITISH, prose, re.IGNORECASE):
        yield f"'{found[0]}' is British: {text}"


def _long(text: str) -> Iterator[str]:
    whole = re.sub(r"\b(e\.g|i\.e)\.", "as", text)
    for sentence in re.split(r"(?<=[.!?])['\")\]]*\s+| [—→•] ", whole):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            yield f"{len(words)} words: {sentence}"


@pytest.mark.parametrize("name", FILES)
def test_texts_are_plain(name):
    assert find_faults(read_texts(name)) == []


@pytest.mark.parametrize(
    ("text", "has_fault"),
    [
        ("Communication owns 13.3 ms of the typical step.", True),
        ("Communication takes 13.3 ms of the typical step.", False),
        ("The axis is told by the stream.", True),
        ("Beside it", True),
        ("Compute beside communication is slower.", True),
        ("The cause is `host/hand-over`, or host/hand-over.", False),
        ("The hand-over takes 3 µs.", True),
        ("The call synchronises the device.", True),
        ("cudaDeviceSynchronize synchronizes the device.", False),
        ("It reads `cause_catalogue.py`.", False),
        (" ".join(["word"] * 30) + ".", False),
        (" ".join(["word"] * 31) + ".", True),
        (" ".join(["word"] * 30) + ". " + " ".join(["Word"] * 30), False),
        ("about 12.5 ms, e.g. 3 " + " ".join(["word"] * 26), True),
    ],
)
def test_a_rule_finds_what_breaks_it(text, has_fault):
    assert bool(find_faults((text,))) is has_fault


def test_texts_of_each_kind_are_found():
    python = '"""Say it.\n\n>>> 1\n1\n"""\nx = f"a file of {1 + 1} rows"  # why it is so\n'
    snippet = 'X = """Run it:\n\nfor x in y:\n    run(x)\n\n--flag one\n\nIt runs once."""'
    page = '<p title="a hint">some text</p>{# why #}'

    assert [one for one in _python(python) if one.strip()] == [
        "a file of {0} rows",
        "Say it.",
        "why it is so",
    ]
    assert [one for one in _python(snippet) if one] == ["Run it:", "It runs once."]
    assert list(_toml('# one two\na = ["first text"]\n')) == ["first text", " one two\n"]
    assert list(_sql("-- one\n-- two\n-- row   the row\nSELECT 1")) == [" one\n two\n", "row   the row"]
    assert [one.strip() for one in _html(page) if one] == ["why", "a hint", "some text"]
    assert list(_action('description: one text\necho "::error::a fault" # why\n')) == [
        "one text",
        "a fault",
        "why",
    ]
    assert list(_script('const a = "a text"; // why it is so')) == ["a text", " why it is so"]
