"""The tree of errors.

WallscopeError                  one clear line and exit code 2; never a traceback
├── InputError                  the file is not a readable Nsight Systems export
│   └── NothingToAnalyzeError   it is one, but lacks data for the question
├── KernelRulesError            a file of kernel-name rules is wrong
├── SelectionError              the selected ranks, steps or time are not in the export
├── OptionError                 the value of an option cannot be read
├── ConfigurationError          a run's configuration cannot be read, or contradicts itself
├── LayoutError                 a parallel layout is impossible
├── UnknownWordError            a word without an explanation
├── StepRangeError              the pattern for steps is wrong or finds no range
├── ProfileError                a profile or a JSON answer is damaged or has another version
├── ComparisonError             two runs cannot be compared as requested
├── StoreError                  a store of profiles cannot be read or written, or lacks the requested data
├── CaptureError                a program cannot be captured; it has an exit code of its own
├── OutputError                 a result cannot be written to the requested place
└── InternalError               results violate an invariant: a bug of wallscope, exit code 70

The text of each states which file, what is wrong, and what to do.
"""


class WallscopeError(Exception):
    """The base class of all errors that the user can fix."""


class InputError(WallscopeError):
    """The input is not a readable Nsight Systems export."""


class NothingToAnalyzeError(InputError):
    """The export is readable and holds nothing that answers the question.

    Args:
        what: what it holds or lacks, as a verb with its object where `path` is given: "holds no kernel".
        cure: what to do.
        path: the file, empty where the reader knows it.
        because: the same as a clause, where `what` is one already.
    """

    def __init__(self, what: str, cure: str = "", path: str = "", because: str = "") -> None:
        super().__init__(what, cure, path, because)
        self.what, self.cure = what, cure
        self.because = because or (f"the file {what}" if path else what)
        self._path = path

    def __str__(self) -> str:
        """Return the line for the user: file, what is wrong, what to do."""
        return " — ".join(filter(None, (self._path, self.what, self.cure)))


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
    """The word is not a cause, fix, finding, fact or topic."""


class StepRangeError(WallscopeError):
    """The user's pattern for the ranges that are steps finds none."""


class ProfileError(WallscopeError):
    """A profile, or the file that holds it, is damaged or of another version."""


class ComparisonError(WallscopeError):
    """Two sides cannot be compared as the user asked."""


class StoreError(WallscopeError):
    """A store of profiles cannot be used, or holds no such commit."""


class CaptureError(WallscopeError):
    """A program cannot be captured, or a record of a capture cannot be read.

    Args:
        line: which program or file, what is wrong, what to do.
        code: the exit code of `wallscope capture`.
    """

    def __init__(self, line: str, code: int = 2) -> None:
        super().__init__(line)
        self.code = code


class OutputError(WallscopeError):
    """A result cannot be written to the place that the user named."""


class InternalError(WallscopeError):
    """Results break a law that they must keep: a defect of wallscope, not of the input."""


def find_kinds(base: type[WallscopeError] = WallscopeError) -> tuple[type[WallscopeError], ...]:
    """Return all kinds of errors."""
    return (base, *(kind for child in base.__subclasses__() for kind in find_kinds(child)))
