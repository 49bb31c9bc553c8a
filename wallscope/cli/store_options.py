"""What commands with a store share: where it is, which commit is meant, which testbed."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.errors import OptionError, StoreError
from wallscope.thresholds.noise import STALE_BASE_COMMITS_COUNT, STALE_RECORD_DAYS
from wallscope.units import plural, spell_surrogates
from wallscope.urls import is_url

if TYPE_CHECKING:
    from wallscope.compare.compare import Side
    from wallscope.model.comparison import Mismatch
    from wallscope.model.profile import Record, Testbed
    from wallscope.store import Store


RECORDS = "Records"
"""A group of options in `--help`."""
_MOST_WARNINGS = 5
_DAY_NS = 86_400 * 10**9
_VARIABLE, _DEFAULT = "WALLSCOPE_STORE", ".wallscope"

StorePlace = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DIR|URL",
        rich_help_panel=RECORDS,
        help=f"Folder or URL of records. Default: ${_VARIABLE}, or {_DEFAULT}.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="K=V",
        rich_help_panel=RECORDS,
        help="Label of the workload, such as model=moe-30b. Different labels are never compared. Repeatable.",
    ),
]


def open_store(named: str | None) -> "Store":
    """The store that the option or the environment names, which may be a link; else the default.

    The default may be none: a checkout can hold a link of its name, and the user did not choose its target.

    Raises:
        StoreError: the default is a link.
    """
    from wallscope.store import Store  # noqa: PLC0415  # keeps --help fast

    chosen = named or os.environ.get(_VARIABLE)
    if not chosen and Path(_DEFAULT).is_symlink():
        raise StoreError(f"{_DEFAULT} — is a link — name the folder that is meant with --store")
    return Store(chosen or _DEFAULT)


def folder_of_store(store: "Store") -> Path | None:
    """The folder of a store, into which no result is written; `None` for one behind a URL."""
    return getattr(store.storage, "root", None) if not is_url(str(store)) else None


def parse_labels(texts: list[str] | None) -> dict[str, str]:
    """The labels that the options spell.

    Raises:
        OptionError: one cannot be read.
    """
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        is_text = spell_surrogates(text) == text
        is_key = re.fullmatch(r"[\w.-]{1,40}", key) is not None
        if not (equals and is_text and is_key and 0 < len(value) <= 100):
            raise OptionError(f"--label {text[:80]} — is not a label — write --label model=moe-30b")
        found[key] = value
    return found


def is_pull_request(environment: Mapping[str, str]) -> bool:
    """Whether the environment is that of a job that GitHub or GitLab runs for a pull or merge request."""
    return environment.get("GITHUB_EVENT_NAME", "").startswith("pull_request") or environment.get(
        "CI_PIPELINE_SOURCE"
    ) in {"merge_request_event", "external_pull_request_event"}


def parse_commit_range(text: str) -> tuple[str, str] | None:
    """Both ends of `A..B`, or of `A...B`, whose base is where both parted; `None` for anything else."""
    found = re.fullmatch(r"([^.\s/][^\s]*?)(\.{2,3})([^.\s][^\s]*)?", text)
    if found is None or Path(text).exists():
        return None
    base, dots, head = found[1], found[2], found[3] or "HEAD"
    return (_git("merge-base", base, head) or base, head) if dots == "..." else (base, head)


def find_commit(name: str) -> str:
    """The id of a commit that git knows by this name; else the name itself."""
    return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or name


def list_commits(after: str, until: str) -> tuple[str, ...] | None:
    """The commits after one up to another, the oldest first; `None` where git does not know them."""
    found = _git(
        "rev-list", "--reverse", "--topo-order", "--first-parent", "--end-of-options", f"{after}..{until}"
    )
    return None if found is None else tuple(found.split())


def count_commits(after: str, until: str) -> int | None:
    """How many commits there are after one up to another; `None` where git does not know them."""
    found = list_commits(after, until)
    return None if found is None else len(found)


def _git(*arguments: str) -> str | None:
    try:
        ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    except OSError:
        return None
    return ran.stdout.strip() or None if ran.returncode == 0 else None


def load_sides(store: "Store", base: str, head: str, labels: dict[str, str]) -> "tuple[Side, Side]":
    """Both sides from the records of two commits on the testbed that they share.

    Runs of pull requests count for the head alone.
    Where they share none but one machine, configured in one way by each, these are compared.

    Raises:
        StoreError: a commit is not recorded, they share no testbed, or several.
    """
    from wallscope.compare.recorded_sides import make_side  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    commits = [store.base(find_commit(base)), store.commit(find_commit(head))]
    recorded = [store.records(commit) for commit in commits]
    recorded[0] = tuple(record for record in recorded[0] if record.is_reference)
    beds = [[testbed for testbed in _testbeds(records) if testbed.fits(labels)] for records in recorded]
    pairs = [(testbed, testbed) for testbed in beds[0] if testbed in beds[1]]
    found = pairs or [
        (ours, theirs) for ours in beds[0] for theirs in beds[1] if ours.machine == theirs.machine
    ]
    if not found:
        shown = "; ".join(visible(str(testbed)) for records in recorded for testbed in _testbeds(records))
        raise StoreError(f"{store} — {base} and {head} share no testbed ({shown}) — record both alike")
    if len(found) > 1:
        shown = "; ".join(dict.fromkeys(visible(str(testbed)) for pair in found for testbed in pair))
        raise StoreError(
            f"{store} — {base} and {head} share several testbeds ({shown}) — choose one with --label"
        )
    every = tuple(record for record in store.all_records() if record.commit not in commits)
    warn_of_unreadable(store)
    ours, theirs = (
        make_side(store, (name, commit), records, testbed, every)
        for name, commit, records, testbed in zip((base, head), commits, recorded, found[0], strict=True)
    )
    return replace(ours, notes=_note_old_base(found[0][0], recorded, every)), theirs


def _note_old_base(
    testbed: "Testbed", recorded: "list[tuple[Record, ...]]", others: "tuple[Record, ...]"
) -> "tuple[Mismatch, ...]":
    """A note where the base was recorded long before head: what changed since counts for head."""
    from wallscope.model.comparison import Mismatch  # noqa: PLC0415  # keeps --help fast

    base_ns, head_ns = (min(record.recorded_utc_ns for record in side) for side in recorded)
    between = {
        one.commit
        for one in others
        if one.is_reference and one.testbed == testbed and base_ns < one.recorded_utc_ns < head_ns
    }
    days = (head_ns - base_ns) // _DAY_NS
    if days <= STALE_RECORD_DAYS and len(between) < STALE_BASE_COMMITS_COUNT:
        return ()
    passed = f"{days} {'day' if days == 1 else 'days'}"
    age = f"{passed} and {plural(len(between), 'recorded commit')} older: choose a newer base"
    return (Mismatch("age of the base", age, "newest", "note"),)


def warn_of_unreadable(store: "Store") -> None:
    """Say on standard error which records were left out."""
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

    for place, error in enumerate(store.unreadable.values()):
        if place == _MOST_WARNINGS:
            sys.stderr.write(f"wallscope: {len(store.unreadable) - place} more records were left out\n")
            return
        sys.stderr.write(f"wallscope: record left out: {visible(str(error), most=1_000)}\n")


def _testbeds(records: "tuple[Record, ...]") -> "list[Testbed]":
    kept: list[Testbed] = []
    for record in records:
        if record.testbed not in kept:
            kept.append(record.testbed)
    return kept
