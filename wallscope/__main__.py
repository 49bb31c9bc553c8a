"""Entry point of `wallscope` and `python -m wallscope`."""

from wallscope.cli import main as command_line
from wallscope.process_tuning import end_process


def main() -> None:
    """Run the command line, and end at once."""
    try:
        command_line()
    finally:
        end_process()


if __name__ == "__main__":
    main()
