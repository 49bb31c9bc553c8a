"""The recommendation about what holds a job up; its bound is the replay of the job without that delay."""

from collections.abc import Callable

from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.rules import Rule, fix_rules
from wallscope.model.advice import Fix, Setting
from wallscope.model.analysis import UnitKind
from wallscope.units import capitalize, duration

_PEERS = {
    UnitKind.LINK: "links of like groups",
    UnitKind.STAGE: "the other stages",
    UnitKind.JOB: "its usual steps",
}
_REFUTED = "The change is in effect, and the waits of the other ranks do not change."


def is_for_unit(fix: Fix) -> bool:
    """Return whether a fix is for what holds a job up."""
    return any(rule.late for rule in fix_rules() if rule.id == fix.id)


def build_unit_fix(run: MeasuredRun, select_settings: Callable[[Rule], tuple[Setting, ...]]) -> Fix | None:
    """Return the fix for the unit that a job gains most from; `None` where nothing holds it up.

    Args:
        run: the run, with its job.
        select_settings: returns the settings of a rule that the program has.
    """
    job = run.analysis.job
    if job is None or not job.stragglers:
        return None
    late = max(job.leading, key=lambda one: one.saved_ns)
    named = " and ".join(one.name for one in job.leading)
    saved_ns = sum(one.saved_ns for one in job.leading)
    rule = next((one for one in fix_rules() if one.answers_unit(late.unit, late.reason)), None)
    if rule is None:
        return None
    replayed_ns = job.leading[-1].replayed_step_ns
    step_ns = replayed_ns + saved_ns
    assumption = (
        f"comes from replaying all ranks with {named} performing like {_PEERS.get(late.unit, 'its peers')}"
    )
    return Fix(
        id=rule.id,
        title=rule.title_of_unit.format(unit=named)
        if rule.title_of_unit and late.unit is not UnitKind.JOB
        else rule.title,
        wall=late.cause_wall or rule.wall,
        causes=(late.cause,) if late.cause else (),
        why=f"{capitalize(late.name)}: {late.why}. {rule.because}",
        settings=select_settings(rule),
        preconditions=(),
        blocked=False,
        recoverable_ns=saved_ns,
        speedup_ceiling=step_ns / max(replayed_ns, 1),
        expected_gain=None,
        caveats=rule.all_caveats if run.framework == "megatron" else rule.caveats,
        verify=rule.active,
        source=rule.source,
        evidence=(f"replay of the job: {duration(step_ns)} → {duration(replayed_ns)} per {run.window}",),
        refuted_by=rule.refuted or _REFUTED,
        assumes=f"the bound {assumption}",
        assumption=assumption,
    )
