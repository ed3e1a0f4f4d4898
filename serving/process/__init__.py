"""The server as a process: its files, and the hand-over to the next one."""
