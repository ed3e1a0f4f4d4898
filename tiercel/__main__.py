"""The command ``tiercel``, which is ``python -m tiercel`` as well."""

import signal


def main() -> None:
    """Entry point; Ctrl-C ends it without a traceback also while it is imported, where a busy machine takes a while."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tiercel.broker.cli import main as command_line

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


if __name__ == "__main__":
    main()
