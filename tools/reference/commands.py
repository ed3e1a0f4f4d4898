"""The command line, from the commands themselves."""

from __future__ import annotations

from collections import Counter

import click

from testing.command_line import all_commands
from tiercel.broker.cli import exit_codes
from tiercel.broker.cli.app import app
from tiercel.broker.cli.commands import COMMANDS, SECTIONS
from tools.reference.text import code, constants_of, described, inline, one_line, table

_SHARED_BY = 10
"""An option that means the same for so many commands is told of once."""


def page() -> str:
    """The page of the command line."""
    commands = {name.removeprefix("tiercel "): command for name, command in all_commands()}
    uses = Counter(_key(option) for command in commands.values() for option in _options(command))
    shared = {key for key, count in uses.items() if count >= _SHARED_BY}
    first = {_key(option): option for command in commands.values() for option in _options(command)}
    parts = ["# Command line\n", "Every command with its options. `tiercel COMMAND --help` prints the same.\n"]
    parts.append("## Options of many commands\n")
    parts.append(_table([first[key] for key in first if key in shared]))
    parts.append("## Options of `tiercel` itself\n")
    parts.append(_table([one for one in _options(commands["tiercel"]) if _key(one) not in shared]))
    parts.append("## Exit codes\n")
    parts.append(table(("code", "means"), [(code(value), words) for value, words in _exit_codes()]))
    for section, entries in SECTIONS.items():
        parts.append(f"## {section}\n")
        parts += [_command(name, commands[name], shared) for name in entries if COMMANDS[name].home]
    return "\n".join(parts)


def _exit_codes() -> list[tuple[int, str]]:
    texts = constants_of(exit_codes)
    codes = {value: name for name, value in vars(exit_codes).items() if name.isupper()}
    told = [(value, described(f"exit code {name}", texts.get(name, ""))) for value, name in sorted(codes.items())]
    return [(0, "Done."), *told]


def _context(command: click.Command, name: str | None = None) -> click.Context:
    # A command keeps the help option of whoever looks first: one without -h would stay so for all in this process.
    return click.Context(command, info_name=name, **app.context_settings)


def _options(command: click.Command) -> list[click.Option]:
    context = _context(command)
    return [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]


def _key(option: click.Option) -> tuple[str, str]:
    return " ".join(option.opts), option.help or ""


def _command(name: str, command: click.Command, shared: set[tuple[str, str]]) -> str:
    context = _context(command, f"tiercel {name}")
    usage = one_line(f"tiercel {name} {' '.join(command.collect_usage_pieces(context))}")
    parts = [f"### tiercel {name}\n", f"```\n{usage}\n```\n"]
    parts += [described(f"tiercel {name}", piece) + "\n" for piece in (command.help or "").split("\n\n")]
    arguments = [one for one in command.get_params(context) if isinstance(one, click.Argument)]
    if arguments:
        rows = [(code(one.make_metavar(context)), _help(f"{name} {one.name}", one)) for one in arguments]
        parts.append(table(("argument", "means"), rows))
    own = [option for option in _options(command) if _key(option) not in shared]
    parts.append(_table(own, name))
    others = [code(option.opts[0]) for option in _options(command) if _key(option) in shared]
    if others:
        parts.append(f"Also: {', '.join(others)}.\n")
    examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    parts.append("```sh\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(parts)


def _help(name: str, parameter: click.Parameter) -> str:
    return described(name, getattr(parameter, "help", None) or "")


def _table(options: list[click.Option], name: str = "") -> str:
    rows = [(_names(one), described(f"tiercel {name} {one.opts[0]}", one.help or ""), _default(one)) for one in options]
    return table(("option", "means", "default"), rows)


def _names(option: click.Option) -> str:
    context = click.Context(click.Command("tiercel"))
    names = ", ".join(sorted(option.opts, key=len, reverse=True))
    off = f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else ""
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    again = ", repeatable" if option.multiple else ""
    return f"`{names}{off}{value}`{again}"


def _default(option: click.Option) -> str:
    default = option.get_default(click.Context(click.Command("tiercel")), call=False)
    if isinstance(option.show_default, str):
        return inline(option.show_default)
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    required = "required" if option.required else ""
    return inline(required) or (code(default) if plain else "")
