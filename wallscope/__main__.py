"""Entry point of `wallscope` and `python -m wallscope`."""

from wallscope.cli import main as command_line
from wallscope.process_tuning import ending


def main() -> None:
    """Run the command line, and end at once."""
    try:
        command_line()
    finally:
        ending()


if __name__ == "__main__":
    main()
