"""What a step would take if something were different: its replay window simulated with that changed."""

from wallscope.whatif.answering import answered, answers_of_fixes, refusal
from wallscope.whatif.composition import composition
from wallscope.whatif.engine import ASKED, FIXES, UPPER_BOUNDS, Engine
from wallscope.whatif.player import NO_STEP, Player

__all__ = [
    "ASKED",
    "FIXES",
    "NO_STEP",
    "UPPER_BOUNDS",
    "Engine",
    "Player",
    "answered",
    "answers_of_fixes",
    "composition",
    "refusal",
]
