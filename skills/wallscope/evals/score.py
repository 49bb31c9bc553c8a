"""Score the answers of evals.json against the JSON of the commands that they name: no model is asked.

    python skills/wallscope/evals/score.py CAPTURES...          exit code 1 if an answer is wrong
    python skills/wallscope/evals/score.py --write CAPTURES...  write the answers anew

CAPTURES are the folders with the captures. Each answer is a template filled with facts; a fact is a JSON
pointer into the answer of the command, with how it is written. `[key=value]` picks the entry of a list.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

EVALS = Path(__file__).with_name("evals.json")
UNKNOWN = "unknown"
REFUSED = 2
Document = Any
Runner = Callable[[list[str]], Document]


def write_ms(time_ns: float) -> str:
    """Write nanoseconds as milliseconds."""
    return f"{time_ns / 1e6:,.1f} ms"


WRITERS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "ms": write_ms,
    "percent": lambda share: f"{100 * share:.1f} %",
    "x": "{:.2f}x".format,
    "count": "{:,}".format,
    "length": lambda entries: str(len(entries)),
}


def find_value(document: Document, pointer: str) -> Document:
    """Return the value at a pointer; `None` where there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and name.startswith("["):
            key, _, wanted = name[1:-1].partition("=")
            document = next((entry for entry in document if str(entry.get(key)) == wanted), None)
        elif isinstance(document, list):
            document = document[int(name)] if int(name) < len(document) else None
        elif isinstance(document, dict):
            document = document.get(name)
        else:
            return None
    return document


def write_fact(document: Document, fact: str) -> str:
    """Write a fact, as `/diagnosis/dominant_wall text`; what is absent is unknown."""
    pointer, _, writer = fact.rpartition(" ")
    value = find_value(document, pointer)
    return UNKNOWN if value is None else WRITERS[writer](value)


def fill_answer(entry: Mapping[str, Any], document: Document) -> str:
    """Return the answer to a question by what its command says."""
    answer: str = entry["template"].format(*(write_fact(document, fact) for fact in entry["facts"]))
    return answer


def find_captures(command: list[str], folders: Iterable[Path]) -> list[str] | None:
    """Return the command with the paths of its captures; `None` where one is not here."""
    found = []
    for word in command:
        if not word.startswith("@"):
            found.append(word)
            continue
        path = next((folder / word[1:] for folder in folders if (folder / word[1:]).exists()), None)
        if path is None:
            return None
        found.append(str(path))
    return found


def run_command(command: list[str]) -> Document:
    """Run a command, and return its JSON; its line on standard error where it has none."""
    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", *command, "--json", "-"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not ran.stdout and ran.returncode != REFUSED:
        sys.exit(f"{sys.executable} cannot run wallscope: {ran.stderr.strip()}")
    return json.loads(ran.stdout) if ran.stdout else {"error": ran.stderr.strip(), "code": ran.returncode}


def score_answers(entries: list[dict[str, Any]], folders: list[Path], run: Runner) -> dict[str, str]:
    """Return what is wrong by question: empty where the answer is right; absent where no capture is here."""
    said: dict[str, str] = {}
    answered: dict[tuple[str, ...], Document] = {}
    for entry in entries:
        command = find_captures(entry["command"], folders)
        if command is None:
            continue
        key = tuple(command)
        if key not in answered:
            answered[key] = run(command)
        right = fill_answer(entry, answered[key])
        said[entry["id"]] = "" if right == entry["answer"] else f"{entry['answer']!r} should be {right!r}"
    return said


def write_answers(entries: list[dict[str, Any]], folders: list[Path], run: Runner) -> None:
    """Fill all answers whose captures are here."""
    for entry in entries:
        command = find_captures(entry["command"], folders)
        if command is not None:
            entry["answer"] = fill_answer(entry, run(command))
    EVALS.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Score the answers, or write them."""
    folders = [Path(word) for word in arguments if word != "--write"]
    entries = json.loads(EVALS.read_text(encoding="utf-8"))
    if "--write" in arguments:
        write_answers(entries, folders, run_command)
        return 0
    said = score_answers(entries, folders, run_command)
    for name, wrong in said.items():
        sys.stdout.write(f"{'wrong' if wrong else 'right'}  {name}{'  ' if wrong else ''}{wrong}\n")
    right = sum(not wrong for wrong in said.values())
    sys.stdout.write(f"{right} of {len(said)} right, {len(entries) - len(said)} without a capture here\n")
    return 0 if right == len(said) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
