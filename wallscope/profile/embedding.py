"""The profiles of an answer: each rank's tables, headed by what the whole answer knows."""

from dataclasses import replace

import polars as pl

from wallscope.cores import side_by_side
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.configuration import RunConfiguration
from wallscope.model.profile import RECOVERABLE, Header, Profile, ProfiledInput, Work
from wallscope.model.throughput import StepFacts
from wallscope.profile.container import Written, packed
from wallscope.profile.making import Tables

_NOTHING_DECLARED = RunConfiguration()


def profiles(
    analysis: Analysis,
    tables: tuple[Tables, ...],
    facts: StepFacts,
    configuration: RunConfiguration = _NOTHING_DECLARED,
) -> tuple[Profile, ...]:
    """The profile of each rank of an answer; `tables` are theirs, in order."""
    settings = tuple(sorted((key, str(known.value)) for key, known in configuration.settings.items()))
    return tuple(
        own.profile(_header(analysis, rank, own, facts, settings), _recoverable(rank))
        for rank, own in zip(analysis.ranks, tables, strict=True)
    )


def profiled(analysis: Analysis, own: tuple[Profile, ...], known: tuple[Written, ...] = ()) -> Analysis:
    """The answer with the profile of each rank, of one capture each; what is `known` is written."""
    texts = known or (Written(),) * len(own)

    def with_profile(place: int) -> Rank:
        rank = analysis.ranks[place]
        profile = replace(own[place], recoverable=_recoverable(rank))
        return replace(rank, profile=packed(profile, texts[place]))

    return replace(analysis, ranks=side_by_side(with_profile, range(len(own))))


def _header(
    analysis: Analysis, rank: Rank, tables: Tables, facts: StepFacts, settings: tuple[tuple[str, str], ...]
) -> Header:
    export = analysis.inputs[rank.input]
    gpu = export.gpu(rank.gpu)
    return Header(
        rank=rank.rank,
        device=rank.device,
        work=Work(
            kind=analysis.anchor.kind,
            unit=analysis.anchor.unit,
            name=analysis.anchor.name,
            tokens_per_step=facts.tokens,
            gpu=None if gpu is None else gpu.name,
            sm_count=None if gpu is None else gpu.sm_count,
            world_size=analysis.capture.world_size,
            graphs=analysis.capture.cuda_graphs,
            communicators=tables.communicators,
            settings=settings,
        ),
        inputs=(
            ProfiledInput(
                fingerprint=export.fingerprint,
                name=export.name,
                nsys_version=export.nsys_version,
                hostname=export.hostname,
                session_start_utc_ns=export.session_start_utc_ns,
                findings=tuple(sorted({finding.code for finding in analysis.capture.findings})),
            ),
        ),
    )


def _recoverable(rank: Rank) -> pl.DataFrame:
    known = sorted(
        (0, cause.cause, cause.recoverable_ns) for cause in rank.causes if cause.recoverable_ns is not None
    )
    return pl.DataFrame(known, schema=RECOVERABLE, orient="row")
