"""Sides of a comparison from the records of a store."""

from collections.abc import Mapping
from dataclasses import replace

from wallscope.compare.compare import Side
from wallscope.model.profile import Record, Testbed
from wallscope.profile.codec import unpack_profile
from wallscope.store import Store, run_noise


def list_series(store: Store, labels: Mapping[str, str]) -> list[list[tuple[Record, ...]]]:
    """Return the records of each machine by commit, in the order of recording, without pull requests.

    The configuration may change from commit to commit, as a recommendation that is applied changes it.

    Raises:
        StoreError: the store cannot be read.
    """
    machines: dict[str, dict[str, list[Record]]] = {}
    for record in store.all_records():
        if record.is_reference and record.testbed.fits(labels):
            by_commit = machines.setdefault(str(record.testbed.machine), {})
            by_commit.setdefault(record.commit, []).append(record)
    return [
        [tuple(one for one in own if one.testbed == own[0].testbed) for own in by_commit.values()]
        for by_commit in machines.values()
    ]


def make_side(
    store: Store,
    named: tuple[str, str],
    records: tuple[Record, ...],
    testbed: Testbed,
    others: tuple[Record, ...],
) -> Side:
    """Return the side of the `records` on a testbed; `others` are those that measure run noise.

    `named` is what the side is called, and its commit.

    Raises:
        StoreError: a profile is not there or damaged.
    """
    name, commit = named
    chosen = [record for record in records if record.testbed == testbed]
    held = {
        one: unpack_profile(store.profile(one), f"{store}: {commit[:12]}")
        for one in dict.fromkeys(rank.object for record in chosen for rank in record.ranks)
    }
    runs = tuple(
        tuple(replace(held[rank.object], fixes=record.fixes) for rank in record.ranks) for record in chosen
    )
    return Side(name, runs, commit, run_noise(others, testbed), str(testbed))
