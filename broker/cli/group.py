"""Groups of commands that are imported when they are called: ``tiercel --help`` imports none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import click

from tiercel.broker.cli.commands import COMMANDS, SECTIONS, names_below
from tiercel.broker.cli.exit_codes import INTERRUPTED, USAGE

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands of the table that begin with the same words.

    Args:
        path: All of its words; the name when left out.
        attributes: As :class:`click.Group` takes them.
    """

    def __init__(self, name: str | None = None, *, path: str | None = None, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._path = (name or "") if path is None else path

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the table."""
        return names_below(self._path)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
        path = self._full(cmd_name)
        if cmd_name not in names_below(self._path):
            return None
        entry = COMMANDS[path]
        if not entry.home:
            shown = {"help": entry.help, "epilog": examples_text(entry.example)}
            return LazyGroup(cmd_name, path=path, no_args_is_help=True, **shown)
        module, _, name = entry.home.partition(":")
        command: click.Command = getattr(import_module(f"tiercel.broker.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and says which name may have been meant."""
        names = names_below(self._path)
        if not (args[0] in names or args[0].startswith("-") or ctx.resilient_parsing):
            raise click.NoSuchCommand(args[0], possibilities=names, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them by what people want to do."""
        names = names_below(self._path)
        widest = max(map(len, names))
        for title, section in SECTIONS.items():
            rows = [
                (name.ljust(widest), section[self._full(name)].help) for name in names if self._full(name) in section
            ]
            if rows:
                with formatter.section("Commands" if self._path else title):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands and options that begin like this."""
        from click.shell_completion import CompletionItem

        names = [name for name in names_below(self._path) if name.startswith(incomplete)]
        offers = [CompletionItem(name, help=COMMANDS[self._full(name)].help) for name in names]
        return [*offers, *click.Command.shell_complete(self, ctx, incomplete)]

    def _full(self, name: str) -> str:
        return f"{self._path} {name}".strip()


class Program(LazyGroup):
    """All of the table. Errors of the command line are one line, which says where help is."""

    def make_context(self, *args: Any, **attributes: Any) -> click.Context:
        """As click does."""
        with _in_one_line():
            return super().make_context(*args, **attributes)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does."""
        with _in_one_line():
            return super().invoke(ctx)


class CommandLineError(click.ClickException):
    """The command line is wrong."""

    exit_code = USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        """Say so on standard error."""
        click.echo(f"Error: {self.format_message()}", file, err=True)


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "tiercel"
        message = " ".join(error.format_message().split())
        message = message.replace("valid integer range", "whole number").replace("valid float range", "number")
        raise CommandLineError(f"{message}{'' if message[-1] in '.?' else '.'} See '{where} --help'.") from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


def examples_text(*examples: str) -> str:
    """The end of a command's help; its lines are left as they are."""
    return "\b\n" + "\n".join(["Example:" if len(examples) == 1 else "Examples:", *(f"  {each}" for each in examples)])
