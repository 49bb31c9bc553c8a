"""Steps simulated with work that takes other shares of its time."""

from wallscope.model.whatif import Question
from wallscope.replay.engine import Engine, WindowReplay

SHARES = (0.0, 0.01, *(number / 6 for number in range(1, 13)))
_MATERIAL = 0.01


def measure_scaled(window, step_ns=None):
    """The length of the step with each share, by target, of those that change it by more than a hundredth.

    Without a change it is the typical step.
    """
    steps = window.steps.filter(window.steps["typical"])
    length_ns = step_ns or round((steps["end_ns"] - steps["start_ns"]).mean())
    replay = WindowReplay(window, length_ns, Engine(window, lambda _: None))
    found = {}
    for target in replay.changes.targets:

        def ask(share, target=target):
            return replay.measure_ns((Question("scale", target, share),))

        assert ask(1.0) == length_ns, target
        if ask(SHARES[-1]) - ask(SHARES[0]) > _MATERIAL * length_ns:
            found[target] = [ask(share) for share in SHARES]
    return found
