"""The server as a process: its sockets, its files, and the hand-over to the next one."""
