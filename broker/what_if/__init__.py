"""What if: the present as the scheduler sees it, gone on with in the simulator, as things are and with changes."""
