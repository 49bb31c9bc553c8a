"""How often a fact is declared, who writes its sentence and who reads it back: counted on the source.

python -m benchmarks.house            prints the table
python -m benchmarks.house --places   also prints where sentences are taken apart

`tests/test_house.py` fails on names assigned twice, import circles and sentences taken apart.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wallscope.files import read_toml
from wallscope.model.cause_catalogue import list_cause_meanings

ROOT = Path(__file__).resolve().parent.parent
_SURGERY = frozenset(
    ("replace", "partition", "rpartition", "removesuffix", "removeprefix", "split", "rsplit", "splitlines")
)
_LOOKS = frozenset(("startswith", "endswith", "find", "index", "rstrip", "lstrip"))
_CARRYING = _SURGERY | {"rstrip", "lstrip", "strip", "lower", "format"}
_PASSING = frozenset(("map", "list", "tuple", "next", "sorted", "filter"))
_PATTERNS = frozenset(("sub", "split", "match", "search", "fullmatch", "findall", "finditer"))
_PROSE_FIELDS = frozenset(
    (
        *("verdict", "title", "why", "message", "cure", "assumes", "refused", "refuted_by", "meaning"),
        *("answer", "reason", "what", "detail", "evidence", "reasons", "caveats", "text"),
    )
)
"""Fields of answers that contain sentences or parts of them."""
_LISTS = frozenset(("evidence", "reasons", "caveats"))
_PROSE_PARAMETERS = frozenset(("verdict", "paragraph", "sentence", "message", "reason", "cure", "ends"))
_WRITING = re.compile(
    r"_*(describe|explain|tell|summarize|say|state|quote|count|cut|shorten_message|list_explanations"
    r"|list_next_steps|write_interval|write_time_interval|write_change)(_|$)"
)
_READING = ("advice", "agents", "api", "cli", "compare", "jobs", "pipeline", "ranks", "render", "store")
_FOLDERS = (*_READING, "summary", "views")
"""Where sentences are written and shown. Below, texts are those of captures, which may be parsed."""
_FOREIGN = frozenset(
    ("describe_counts", "count_per_step", "count", "count_rows", "count_operations", "counts", "state")
)
_MARK = "is the largest loss: "


@dataclass(frozen=True, slots=True)
class Place:
    """A statement that takes a sentence apart."""

    module: str
    function: str
    line: int
    code: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; `stated` was written down when the work began, `start` is by this script.

    `missed` is why the goal is not reached, if it is not.
    """

    name: str
    stated: str
    start: str
    goal: str
    count: Callable[[], object]
    missed: str = ""


@cache
def parse_modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the package by dotted name."""
    found = {}
    for path in sorted((ROOT / "wallscope").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


class _Reader(ast.NodeVisitor):
    """Finds, in one function, operations on strings that come from sentences of answers."""

    def __init__(self, module: str, function: ast.FunctionDef) -> None:
        self.module, self.function = module, function
        arguments = function.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.prose = {one.arg for one in every if one.arg in _PROSE_PARAMETERS}
        self.found: dict[int, Place] = {}
        for _ in range(3):  # a name may be assigned after the line that mentions it, in a loop
            for node in ast.walk(function):
                self._follow(node)

    def _follow(self, node: ast.AST) -> None:  # noqa: C901  # one branch for each kind of assignment
        """Mark names as prose that are assigned from prose."""
        if isinstance(node, ast.Assign) and self.is_prose(node.value):
            for target in node.targets:
                self._mark(target)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and len(target.elts) == len(node.value.elts):
                    for one, value in zip(target.elts, node.value.elts, strict=True):
                        if self.is_prose(value):
                            self._mark(one)
        elif isinstance(node, ast.NamedExpr | ast.AugAssign):
            if self.is_prose(node.value):
                self._mark(node.target)
        elif isinstance(node, ast.For | ast.comprehension) and self.is_prose(node.iter):
            self._mark(node.target)

    def _mark(self, target: ast.AST) -> None:
        self.prose |= {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}

    def is_prose(self, node: ast.expr) -> bool:
        """Return whether an expression is a sentence of an answer, a part of one, or a list of them."""
        match node:
            case ast.Name(id=name):
                return name in self.prose
            case ast.Attribute(attr=name):
                return name in _PROSE_FIELDS and not _is_of_argument(node)
            case ast.Call():
                return self._makes_prose(node)
        return any(map(self.is_prose, _list_parts(node)))

    def _makes_prose(self, call: ast.Call) -> bool:
        """Return whether a call writes a sentence, or passes one on."""
        match call.func:
            case ast.Attribute(value=ast.Name(id="units"), attr=name):
                return name != "write_range"
            case ast.Name(id=name) if name in _PASSING:
                return any(self.is_prose(one) or _is_writer(one) for one in call.args)
            case ast.Attribute(value=value, attr=method) if not _is_writer(call.func):
                joined = method == "join" and any(map(self.is_prose, call.args))
                return joined or (method in _CARRYING and self.is_prose(value))
        return _is_writer(call.func)

    def _report(self, node: ast.expr) -> None:
        place = Place(self.module, self.function.name, node.lineno, ast.unparse(node))
        self.found.setdefault(node.lineno, place)

    def visit_Call(self, node: ast.Call) -> None:  # the name that ast.NodeVisitor asks for
        """Report methods and patterns that take a sentence apart."""
        function = node.func
        if isinstance(function, ast.Attribute):
            texts = [one for one in node.args if not isinstance(one, ast.Constant)]
            is_text = self.is_prose(function.value) and not _is_list(function.value)
            is_taken = function.attr in _SURGERY or (function.attr in _LOOKS and bool(node.args))
            is_pattern = function.attr in _PATTERNS and (
                _is_pattern(function.value) or ast.unparse(function.value) == "re"
            )
            if (is_text and is_taken) or (is_pattern and any(map(self.is_prose, texts))):
                self._report(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:  # the name that ast.NodeVisitor asks for
        """Report slices of a field that is one sentence."""
        value = node.value
        is_field = isinstance(value, ast.Attribute) and value.attr in _PROSE_FIELDS - _LISTS
        if isinstance(node.slice, ast.Slice) and is_field and self.is_prose(value):
            self._report(node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:  # the name that ast.NodeVisitor asks for
        """Report the search for words in a sentence."""
        for operator, value in zip(node.ops, node.comparators, strict=True):
            is_searched = isinstance(operator, ast.In | ast.NotIn) and not _is_list(value)
            if is_searched and isinstance(value, ast.Name | ast.Attribute) and self.is_prose(value):
                is_text = isinstance(node.left, ast.Constant | ast.Call | ast.Name | ast.JoinedStr)
                if is_text and (isinstance(value, ast.Attribute) or isinstance(node.left, ast.Constant)):
                    self._report(node)
        self.generic_visit(node)


def _list_parts(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression any of which makes it prose."""
    match node:
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.FormattedValue(value=value):
            return [value]
        case ast.BinOp(left=left, op=ast.Add(), right=right) | ast.IfExp(body=left, orelse=right):
            return [left, right]
        case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value):
            return [value]
        case ast.JoinedStr(values=values) | ast.BoolOp(values=values):
            return values
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return values
    return []


def _is_of_argument(node: ast.Attribute) -> bool:
    """Return whether an attribute is of a pattern, a URL or an option, whose text is no sentence of ours."""
    return isinstance(node.value, ast.Name) and node.value.id in {"url", "argument", "ast", "root", "path"}


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _LISTS


def _is_pattern(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.isupper()


def _is_writer(node: ast.expr) -> bool:
    """Return whether an expression names a function that writes a sentence or a number with its unit."""
    match node:
        case ast.Attribute(value=ast.Name(id="units")):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return (bool(_WRITING.match(name)) or name in _unit_writers()) and name not in _FOREIGN
    return False


@cache
def _unit_writers() -> frozenset[str]:
    """Return the functions that write numbers, by the names under which modules import them."""
    own = parse_modules()["wallscope.units"].body
    return frozenset(one.name for one in own if isinstance(one, ast.FunctionDef))


def find_parsed_prose() -> tuple[Place, ...]:
    """Return the places of the package that take its own sentences apart."""
    return tuple(
        place
        for module, tree in parse_modules().items()
        if {*module.split(".")[1:2]} <= set(_FOLDERS)
        for place in find_parsed_prose_of(module, tree)
    )


def find_parsed_prose_of(module: str, tree: ast.Module) -> tuple[Place, ...]:
    """Return the places of a module that take sentences apart, by line."""
    found: dict[int, Place] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            reader = _Reader(module, function)
            for statement in function.body:
                reader.visit(statement)
            found = {**reader.found, **found}
    return tuple(found[line] for line in sorted(found))


def find_double_names() -> tuple[str, ...]:
    """Return names that a module assigns or defines twice, where the second hides the first."""
    return tuple(
        f"{module}.{name}"
        for module, tree in parse_modules().items()
        for name, count in Counter(_list_top_names(tree)).items()
        if count > 1
    )


def _list_top_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the body of a module binds, without those of branches and imports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not any("overload" in ast.unparse(one) for one in node.decorator_list):
                yield from {node.name} - {"_"}
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name) and one.id != "_")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def find_import_circles() -> tuple[tuple[str, ...], ...]:
    """Return groups of modules that import each other, also inside functions but not for types alone."""
    modules = parse_modules()
    imports = {module: set(_list_imports(module, tree)) for module, tree in modules.items()}
    reach = {module: _reach(module, imports) for module in modules}
    groups = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in modules
        if module in reach[module]
    }
    return tuple(sorted(groups))


def _reach(start: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    open_ones = [*imports[start]]
    while open_ones:
        module = open_ones.pop()
        if module not in found:
            found.add(module)
            open_ones += imports[module]
    return found


def _list_imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Yield the modules of the package that one imports; packages count where a name is taken from them."""
    known = parse_modules()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                below = f"{node.module}.{one.name}"
                target = below if below in known else node.module
                if target in known and target != module:
                    yield target
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known and one.name != module)
        else:
            yield from _list_imports(module, node)


def count_authors() -> int:
    """Return the number of modules that write sentences on the wall."""
    return sum(
        any(_MARK in text for text in _list_texts(tree))
        for module, tree in parse_modules().items()
        if module.split(".")[1:2] != ["compare"]
    )


def _list_texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module without docstrings."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def count_column_declarations() -> int:
    """Return in how many ways a column of a table is declared, at most."""
    ways = {
        "docstring": re.compile(r"\n    Attributes:\n|`\w+` (is|are) "),
        "table_columns": re.compile(r"\b(find_table_columns|TableColumn)\("),
        "Column": re.compile(r"\b(Column|on_page|on_terminal)\("),
        "FrameColumn": re.compile(r"\b(FrameColumn|list_frame_columns)\("),
    }
    texts = [_path_of(module).read_text(encoding="utf-8") for module in parse_modules()]
    documents = any("exposed_share" in path.read_text() for path in (ROOT / "docs").glob("*.md"))
    return sum(any(way.search(text) for text in texts) for way in ways.values()) + documents


def list_spellings() -> dict[str, set[str]]:
    """Return the modules in which each finding code and cause id is spelled."""
    codes = {one["code"] for one in read_toml("advice/notes/findings.toml")["finding"]}
    wanted = codes | {cause for cause, _ in list_cause_meanings()}
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in parse_modules().items():
        for text in wanted.intersection(_list_texts(tree)):
            found[text].add(module)
    return found


def count_replacements() -> int:
    """Return the number of calls of `replace` that copy an answer with other values."""
    return sum(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"replace", "dataclasses.replace", "copy.replace"}
        for tree in parse_modules().values()
        for node in ast.walk(tree)
    )


def count_first_screens() -> int:
    """Return the number of templates that lay out the first screen of a page."""
    return sum("<h1" in path.read_text(encoding="utf-8") for path in (ROOT / "reports").glob("*.j2"))


def count_shared_names() -> int:
    """Return the number of names at the top of two or more modules."""
    counts = Counter(
        name
        for tree in parse_modules().values()
        for name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    )
    return sum(count > 1 for count in counts.values())


def count_unnamed_tests() -> str:
    """Return how many test files of mirrored folders are named after no module of that folder."""
    mirrored = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if _is_mirrored(path)]
    return f"{len(list_unnamed_tests(mirrored))} of {len(mirrored)}"


def list_unnamed_tests(tests: Sequence[Path]) -> tuple[str, ...]:
    """Return tests that neither are called `test_<module>.py` nor lie in a folder of the name of a module."""
    return tuple(
        str(path.relative_to(ROOT))
        for path in tests
        if _is_mirrored(path)
        and not _mirror(path).with_suffix(".py").is_file()
        and not list(_mirror(path).rglob(f"{path.stem.removeprefix('test_')}.py"))
    )


def _mirror(test: Path) -> Path:
    """Return where the package has what is in the folder of a test."""
    return ROOT / "wallscope" / test.parent.relative_to(ROOT / "tests")


def _is_mirrored(test: Path) -> bool:
    """Return whether a test is below a folder of the name of a package."""
    parts = test.parent.relative_to(ROOT / "tests").parts
    return bool(parts) and (ROOT / "wallscope" / parts[0]).is_dir()


def count_cut_modules() -> int:
    """Return the number of modules with 470 to 500 lines."""
    lengths = [_path_of(module).read_bytes().count(b"\n") for module in parse_modules()]
    return sum(470 <= length <= 500 for length in lengths)


@cache
def _trace(what: str) -> str:
    """Return what another process counts while it analyzes the shipped example."""
    words = (sys.executable, "-m", "benchmarks.house_traces", what)
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()  # noqa: S603  # our own module


def _count_spelled() -> str:
    spread = [len(modules) for modules in list_spellings().values()]
    return f"{sum(count > 1 for count in spread)} of {len(spread)} in several, at most {max(spread)}"


ROWS = (
    Row("places that take our own sentences apart", "33", "62", "0", lambda: len(find_parsed_prose())),
    Row("authors of the verdict", "2", "2", "1", count_authors),
    Row(
        "declarations of a column",
        "up to 5",
        "4",
        "1",
        count_column_declarations,
        missed="counts ways of all columns together: frames, exported tables and screens each keep one",
    ),
    Row(
        "finding codes and cause ids spelled in several modules",
        "many",
        "81 of 106 in several, at most 7",
        "1 each",
        _count_spelled,
        missed="a rule and the screen that asks for its finding spell one code each",
    ),
    Row(
        "calls of `replace` that patch an answer",
        "130",
        "131",
        "at most 70",
        count_replacements,
        missed="records are frozen: walls, bounds, fixes and experience complete an answer in turn",
    ),
    Row(
        "statements of views and render for one medium",
        "1,099",
        "1,716 of 2,480",
        "at most 700",
        lambda: _trace("media"),
        missed="more is shown since: pages have charts, terminals tables; the share fell from 69 to 36 %",
    ),
    Row("templates that lay out a first screen", "3", "3", "1", count_first_screens),
    Row(
        "returns to files already left",
        "50 and 83",
        "104 and 132",
        "half",
        lambda: _trace("returns"),
        missed="an answer is built in passes over all ranks, and bounds are made when they are asked for",
    ),
    Row(
        "modules entered by `analyze` on a terminal",
        "160",
        "133",
        "at most 130",
        lambda: _trace("modules"),
        missed="causes, waits and FLOPs that were added since have a module each",
    ),
    Row("names assigned twice in a module", "1", "1", "0", lambda: len(find_double_names())),
    Row("top-level names in two or more modules", "147", "146", "at most 60", count_shared_names),
    Row("import circles", "1", "1", "0", lambda: len(find_import_circles())),
    Row("test files named after no module", "154 of 241", "173 of 241", "at most 30", count_unnamed_tests),
    Row("modules of 470 to 500 lines", "31", "31", "a subject each", count_cut_modules),
)


def main(words: Sequence[str] | None = None) -> None:
    """Print the table, and the places if asked."""
    parser = argparse.ArgumentParser("python -m benchmarks.house", description=__doc__.partition("\n")[0])
    parser.add_argument("--places", action="store_true", help="list the places that take sentences apart")
    options = parser.parse_args(words)
    sys.stdout.write(
        "| counted | stated at the start | counted at the start | now | goal | why it is missed |\n"
        "|---|---|---|---|---|---|\n"
    )
    for row in ROWS:
        sys.stdout.write(
            f"| {row.name} | {row.stated} | {row.start} | {row.count()} | {row.goal} | {row.missed} |\n"
        )
        sys.stdout.flush()
    if options.places:
        for one in find_parsed_prose():
            sys.stdout.write(f"{one.module}:{one.line} {one.function}: {one.code}\n")


if __name__ == "__main__":
    main()
