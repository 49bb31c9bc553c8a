"""Who waits for whom in a trace, as plain values."""


def producers(found, op):
    """What an operation waits for, the one before it in its stream too."""
    before = found.stream_before[[op]]
    return {*found.producers.of(op), *before[before >= 0].tolist()} - {op}


def awaited(found):
    """What each blocking call waited for."""
    return {call: set(found.list_awaited_by(call)) for call in found.blocking.tolist()}
