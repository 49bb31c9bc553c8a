"""Points of a history for trackers of experiments, through their own clients, which are extras.

A client is imported only where the user names its tracker. Nothing but the points, their testbed and the
metric is handed to it: W&B's runs have no code, no Git, no console and no figures of the machine.
"""

import contextlib
import io
import os
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby

from wallscope.cli.options import Tracker
from wallscope.errors import OptionError, OutputError
from wallscope.extras import name_install_command
from wallscope.render.texts import spell_out, visible
from wallscope.units import plural
from wallscope.views.history import Point

_MOST_ERROR_LETTERS = 300
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""What keeps clients from sending reports of their own."""


def send_points(tracker: Tracker, points: Sequence[Point], metric: str, project: str) -> list[str]:
    """Send points of a metric to a tracker, and return a line for each testbed.

    W&B gets a run for each testbed, MLflow a run for each commit. Each has the same id in every export.

    Raises:
        OptionError: the client is not installed, or does not know its server.
        OutputError: the client refused the points or could not send them.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    send = _send_to_wandb if tracker is Tracker.WANDB else _send_to_mlflow
    return send(points, metric, project)


def _send_to_wandb(points: Sequence[Point], metric: str, project: str) -> list[str]:
    try:
        import wandb  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise _make_absence_error(Tracker.WANDB, "wandb") from error

    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        host="",
        x_save_requirements=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
    )
    lines = []
    try:
        for testbed, own in _group_by_testbed(points):
            title = f"{metric} · {testbed}"
            with wandb.init(
                project=project,
                id=_name_run(metric, testbed),
                name=title,
                config={"metric": metric, "testbed": testbed},
                settings=settings,
            ) as run:
                run.define_metric("*", step_metric="recorded_utc_s")
                for point in own:
                    texts = {"commit": point.commit, "origin": point.origin or "reference"}
                    run.log({**point.values, **texts, "recorded_utc_s": point.recorded_utc_ns / 1e9})
                place = run.dir.removesuffix("/files") if run.offline else str(run.url)
            lines.append(_describe_sent(own, title, place))
    except wandb.Error as error:
        raise _make_failure(Tracker.WANDB, error, "check WANDB_API_KEY, or set WANDB_MODE=offline") from error
    return lines


def _send_to_mlflow(points: Sequence[Point], metric: str, project: str) -> list[str]:
    try:
        import mlflow  # noqa: PLC0415  # an extra
        from mlflow.entities import Metric  # noqa: PLC0415  # same
    except ImportError as error:
        raise _make_absence_error(Tracker.MLFLOW, "mlflow-skinny") from error

    if not mlflow.is_tracking_uri_set():
        raise OptionError("--to mlflow — knows no server — set MLFLOW_TRACKING_URI to its URL")
    lines = []
    try:
        client = mlflow.MlflowClient()
        found = client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else client.create_experiment(project)
        for testbed, own in _group_by_testbed(points):
            for point in own:
                at_ms = point.recorded_utc_ns // 10**6
                name = _name_run(metric, testbed, point.commit, point.origin or "")
                tags = {
                    "mlflow.source.git.commit": point.commit,
                    "wallscope.metric": metric,
                    "wallscope.origin": point.origin or "reference",
                    "wallscope.point": name,
                    "wallscope.testbed": testbed,
                }
                sent = client.search_runs([experiment], f"tags.`wallscope.point` = '{name}'", max_results=1)
                title = f"{metric} · {point.commit[:12]}"
                run = sent[0] if sent else client.create_run(experiment, at_ms, tags, title)
                values = [
                    Metric(name, value, time.time_ns() // 10**6, 0) for name, value in point.values.items()
                ]
                client.log_batch(run.info.run_id, values)
                with contextlib.redirect_stdout(io.StringIO()):  # it prints where each run is
                    client.set_terminated(run.info.run_id, end_time=at_ms)
            lines.append(_describe_sent(own, f"{metric} · {testbed}", f"experiment {project}"))
    except mlflow.MlflowException as error:
        raise _make_failure(
            Tracker.MLFLOW, error, "check MLFLOW_TRACKING_URI and your rights there"
        ) from error
    return lines


def _group_by_testbed(points: Iterable[Point]) -> list[tuple[str, list[Point]]]:
    return [(spell_out(bed), list(own)) for bed, own in groupby(points, lambda point: point.testbed)]


def _name_run(*parts: str) -> str:
    """Return an id that is the same in each export, so that a later one replaces what an earlier one sent."""
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _describe_sent(points: Sequence[Point], title: str, place: str) -> str:
    return f"{visible(title)}: {plural(len(points), 'row')} sent · {visible(place)}"


def _make_absence_error(tracker: Tracker, package: str) -> OptionError:
    return OptionError(
        f"--to {tracker} — needs the package `{package}`, which is not installed"
        f" — {name_install_command(tracker, package)}"
    )


def _make_failure(tracker: Tracker, error: Exception, cure: str) -> OutputError:
    shown = visible(" ".join(str(error).split()), most=_MOST_ERROR_LETTERS)
    return OutputError(f"--to {tracker} — {shown} — {cure}")
