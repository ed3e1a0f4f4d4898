"""The transport of an HTTP connection that has no socket: what is written to it is kept."""

from __future__ import annotations


class Transport:
    """Keeps what is written, and ``b"closed"`` where it is closed."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _: str) -> None:
        return None

    def close(self) -> None:
        self.written.append(b"closed")

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass
