"""What a connection's last request and answer had around their contents: a program that keeps asking sends it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.serving.requests import Checked
    from tiercel.serving.rest.template_bytes import TemplateBytes


class Recent:
    """One for each connection; what it holds of requests is shared by all connections.

    Attributes:
        template: What the last request was recognised by; None for one that was not.
    """

    __slots__ = ("_answer", "_answer_of", "_answer_shape", "_contents_size", "_end_size", "template")

    def __init__(self) -> None:
        self.template: TemplateBytes | None = None
        self._answer = b""
        self._answer_of: Checked | None = None
        self._answer_shape: tuple[int, ...] = ()
        self._contents_size = self._end_size = 0

    def before_answer(self, known: Checked, shape: tuple[int, ...], contents: int, end: int) -> bytes | None:
        """What stood first in the last answer, if it was one of this shape and these sizes to the same template."""
        same = (
            self._answer_of is known
            and self._answer_shape == shape
            and self._contents_size == contents
            and self._end_size == end
        )
        return self._answer if same else None

    def keep_before_answer(
        self, known: Checked, shape: tuple[int, ...], contents: int, end: int, answer: bytes
    ) -> None:
        """Remember ``answer`` for :meth:`before_answer`."""
        self._answer_of, self._answer_shape, self._answer = known, shape, answer
        self._contents_size, self._end_size = contents, end
