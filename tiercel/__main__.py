"""``python -m tiercel`` is the command ``tiercel``."""

from tiercel.broker.cli import main

if __name__ == "__main__":
    main()
