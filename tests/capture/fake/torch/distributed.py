"""No process groups."""


def is_available():
    return False
