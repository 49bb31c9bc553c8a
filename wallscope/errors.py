"""What can go wrong, as a tree.

WallscopeError                  one clear line and exit code 2; never a traceback
├── InputError                  the file is no readable Nsight Systems export
│   └── NothingToAnalyzeError   it is one, and lacks what the question needs
├── KernelRulesError            a file of kernel-name rules is wrong
├── SelectionError              the selected ranks, steps or time are not in the export
├── OptionError                 the value of an option cannot be read
├── ConfigurationError          a run's configuration cannot be read, or contradicts itself
├── LayoutError                 a parallel layout cannot be
├── UnknownWordError            a word that nothing explains
├── StepRangeError              the pattern for steps is wrong or finds no range
├── ProfileError                a profile or a JSON answer is damaged or of another version
├── ComparisonError             two sides cannot be compared as asked
├── StoreError                  a store of profiles cannot be read or written, or lacks what is asked for
├── OutputError                 a result cannot be written where the user asked for it
└── InternalError               results break a law that they must keep: a defect of wallscope, exit code 70

The text of each says which file, what is wrong, and what to do.
"""


class WallscopeError(Exception):
    """Base of every error that the user can mend."""


class InputError(WallscopeError):
    """The input is no Nsight Systems export that can be read."""


class NothingToAnalyzeError(InputError):
    """The export is readable and holds nothing that answers the question."""


class KernelRulesError(WallscopeError):
    """A file of kernel-name rules cannot be used."""


class SelectionError(WallscopeError):
    """What the user selected cannot be read, or is not in the export."""


class OptionError(WallscopeError):
    """The value of an option cannot be read."""


class ConfigurationError(WallscopeError):
    """A run's configuration cannot be read, or contradicts itself."""


class LayoutError(WallscopeError):
    """A parallel layout cannot be: too few GPUs, or sizes that do not divide."""


class UnknownWordError(WallscopeError):
    """The word is no cause, fix, finding, fact or topic."""


class StepRangeError(WallscopeError):
    """The user's pattern for the ranges that are steps finds none."""


class ProfileError(WallscopeError):
    """A profile, or the file that holds it, is damaged or of another version."""


class ComparisonError(WallscopeError):
    """Two sides cannot be compared as the user asked."""


class StoreError(WallscopeError):
    """A store of profiles cannot be used, or holds no such commit."""


class OutputError(WallscopeError):
    """A result cannot be written to the place that the user named."""


class InternalError(WallscopeError):
    """Results break a law that they must keep: a defect of wallscope, not of the input."""
