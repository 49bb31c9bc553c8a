"""Code blocks of README and docs/: find them, run their commands, and write the outputs that they quote."""

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
KINDS = {"console", "sh", "python", "toml", "yaml", "text", "sql", "json"}
"""`console` has commands behind `$ ` and their output, `sh` commands alone, `text` is nothing to run."""

_BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its body, the file that its title names, and its place."""

    kind: str
    body: str
    title: str | None
    start: int
    end: int


def find_blocks(text):
    """The fenced blocks of a page, in order; `start` and `end` bound the body."""
    return [
        Block(
            match["info"].split(" ")[0].strip(),
            match["body"],
            (_TITLE.search(match["info"]) or [None, None])[1],
            match.start("body"),
            match.end("body"),
        )
        for match in _BLOCK.finditer(text)
    ]


def list_commands(block):
    """The commands of a block of the kind `sh` or `console`, without comments and continued lines joined."""
    lines = block.body.replace("\\\n", " ").splitlines()
    if block.kind == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    commands = [re.sub(r"(^|\s+)#.*$", "", line).strip() for line in lines]
    return [" ".join(command.split()) for command in commands if command]


def not_run(command):
    """Why a command is not run by the tests; `None` if it is."""
    table = tomllib.loads((ROOT / "tests" / "doc_blocks.toml").read_text(encoding="utf-8"))
    for entry in table["not_run"]:
        if any(command.startswith(beginning) for beginning in entry["commands"]):
            return entry["reason"]
    return None


def split_command(command):
    """The arguments of `wallscope …` without `> FILE`, and how many lines of output `| head -N` leaves."""
    command, _, filtered = command.partition(" | head -")
    command = re.sub(r" > \S+$", "", command)
    return shlex.split(command.removesuffix(" &"))[1:], int(filtered) if filtered else None


def quote_outputs(text, run):
    """The page with the output behind each `$ ` line of its console blocks as `run(command)` returns it."""
    parts, done = [], 0
    for block in find_blocks(text):
        if block.kind == "console":
            commands = list_commands(block)
            body = "\n".join(f"$ {command}\n{run(command)}\n" for command in commands)
            parts += [text[done : block.start], body]
            done = block.end
    return "".join([*parts, text[done:]])
