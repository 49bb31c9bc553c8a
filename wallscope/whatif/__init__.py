"""What a step would take if something were otherwise: its stretch played again with that changed."""

from wallscope.whatif.answering import answered
from wallscope.whatif.composition import composition
from wallscope.whatif.of_fixes import answers_of_fixes, refusal
from wallscope.whatif.player import NO_STEP, Player

__all__ = ["NO_STEP", "Player", "answered", "answers_of_fixes", "composition", "refusal"]
