"""``python -m tiercel.broker.simulation``."""

from tiercel.broker.simulation.command_line import main

main()
