"""What `wallscope capture` recorded next to a report, used where no option says otherwise."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.jobs.inputs import Source
    from wallscope.model.capture import Options


def add_recorded_facts(sources: "Sequence[Source]", options: "Options") -> "Options":
    """Return the options with the unprofiled step and the parallel sizes that records next to the files give.

    What the user gives comes first. One line on standard error says what was taken, or why it is unknown.
    """
    from wallscope.capture.record import (  # noqa: PLC0415  # keeps --help fast
        CONFIGURATION,
        describe_versions,
        find_records,
        measure_unprofiled_step,
    )
    from wallscope.jobs.inputs import list_input_files  # noqa: PLC0415  # same
    from wallscope.units import duration  # noqa: PLC0415  # same

    reports = [
        entry
        for one in list_input_files(sources)
        for entry in (sorted(one.iterdir()) if one.is_dir() else [one])
    ]
    records = find_records(reports)
    if not records:
        return options
    parts = [describe_versions(records)]
    facts = options.step_facts
    if facts.unprofiled_step_ns is None:
        step = measure_unprofiled_step(records)
        if step.step_ns is None:
            parts.append(f"the step without the profiler is unknown: {step.reason}")
        else:
            parts.append(f"a step without the profiler takes {duration(step.step_ns)}")
            facts = replace(facts, unprofiled_step_ns=step.step_ns)
    configuration = options.configuration
    written = reports[0].parent / CONFIGURATION
    if configuration is None and any(one.parallel for one in records) and written.is_file():
        configuration = written
    _say_recorded("; ".join(filter(None, parts)))
    return replace(options, step_facts=facts, configuration=configuration)


def _say_recorded(line: str) -> None:
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

    sys.stderr.write(f"Recorded by wallscope capture: {visible(line, most=1_000)}\n")
