"""Entry point of `wallscope` and `python -m wallscope`."""

from wallscope.cli import main

if __name__ == "__main__":
    main()
