"""The ledger of a store: each commit compared with the one before it on the same machine."""

from collections.abc import Mapping
from itertools import pairwise

from wallscope._version import __version__
from wallscope.compare.calibration import calibrate_fixes
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.compare.recorded_sides import list_series, make_side
from wallscope.errors import ComparisonError, StoreError
from wallscope.model.capture import Progress
from wallscope.model.ledger import LEDGER_SCHEMA, AppliedEntry, Ledger
from wallscope.model.profile import Record
from wallscope.store import Store


def compile_ledger(store: Store, labels: Mapping[str, str], most_commits: int, progress: Progress) -> Ledger:
    """Return what neighboring commits of each testbed applied; of each, the newest `most_commits` count.

    Raises:
        StoreError: the store cannot be read, or has no such record.
    """
    series = list_series(store, labels)
    if not series:
        raise StoreError(
            f"{store} — has no such record — store a run first: wallscope record RUN --commit SHA"
        )
    every = tuple(record for own in series for records in own for record in records)

    def side(records: tuple[Record, ...]) -> Side:
        commit = records[0].commit
        others = tuple(record for record in every if record.commit != commit)
        return make_side(store, (commit[:12], commit), records, records[0].testbed, others)

    entries: list[AppliedEntry] = []
    pairs = without_fixes = 0
    for base, head in (pair for own in series for pair in pairwise(own[-most_commits:])):
        if not any(record.fixes for record in base):
            without_fixes += 1
            continue
        progress(f"comparing {base[0].commit[:12]} and {head[0].commit[:12]}")
        sides = side(base), side(head)
        try:
            found = compare_sides(*sides, CompareOptions())
        except ComparisonError:  # no rank in common: nothing to measure
            continue
        pairs += 1
        entries += [
            AppliedEntry(
                str(head[0].testbed.machine),
                base[0].commit,
                head[0].commit,
                head[0].recorded_utc_ns,
                found.verdict,
                one,
            )
            for one in found.applied
        ]
    entries.sort(key=lambda entry: (entry.recorded_utc_ns, entry.head, entry.applied.id))
    return Ledger(LEDGER_SCHEMA, __version__, pairs, without_fixes, tuple(entries), calibrate_fixes(entries))
