"""Entry point of `wallscope` and `python -m wallscope`."""

import errno
import sys

USAGE, INTERNAL = 2, 70


def main() -> None:
    """Run the command line, and exit at once with the code that `wallscope.cli` returns."""
    code: object = INTERNAL
    try:
        from wallscope.process_tuning import collect_rarely, end_process  # noqa: PLC0415  # what fails is 70, not 1

        collect_rarely()
        from wallscope.cli.streams import end_on_signals, guard_streams  # noqa: PLC0415  # same

        out, _ = guard_streams()
        end_on_signals()
        from wallscope.cli import main as command_line  # noqa: PLC0415  # same

        try:
            command_line()
            code = 0
        except SystemExit as left:
            code = left.code or 0
        sys.stdout.flush()
        if out.failure is not None and code == 0:
            code = USAGE
            if out.failure.errno != errno.EPIPE:  # a reader that goes away knows it
                sys.stderr.write(
                    f"wallscope: standard output — cannot be written: {out.failure.strerror}"
                    " — make room there\n"
                )
        end_process()
    except KeyboardInterrupt:
        code = 130
    except MemoryError:
        code = USAGE
        sys.stderr.write("wallscope: there is not enough memory — raise the limit\n")
    except Exception:  # noqa: BLE001  # an installation that is broken
        import traceback  # noqa: PLC0415

        traceback.print_exc()
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
