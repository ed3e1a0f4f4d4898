"""A template of requests as the bytes around their id and their contents. Pure.

JSON has no context: whatever list stands where the contents stand, or text where the id stands, all around it means the
same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tiercel.serving.rest.head import Head
from tiercel.serving.rest.template import RequestTemplate

HEADER_LENGTH = b"inference-header-content-length"
# An id that is not escaped, so that its bytes are what it is. A request with a longer one is read in full.
_ID_BYTES = re.compile(rb"[ !#-\[\]-~]{1,256}")

# A request that was recognised: its template, its id as in JSON, and where in the body its contents begin and end.
Recognised = tuple[RequestTemplate, bytes, int, int]


@dataclass(frozen=True, slots=True)
class JsonBytes:
    """A template of JSON without an id, or with one that is part of the bytes, since it is escaped or long."""

    template: RequestTemplate  # what they say
    before: bytes  # up to and with the bracket before the contents
    after: bytes  # what comes after their last bracket
    fixed_id: bytes  # the id, as in JSON; empty for none

    def find(self, head: Head, body: bytes | bytearray) -> Recognised | None:
        """Where a request of this template has its contents; None for one that is not."""
        before = self.before
        if not body.startswith(before) or HEADER_LENGTH in head.headers:
            return None
        begin = len(before)
        end = body.find(b"]", begin) + 1
        return (self.template, self.fixed_id, begin - 1, end) if end and body[end:] == self.after else None


@dataclass(frozen=True, slots=True)
class BinaryBytes:
    """A template of JSON, likewise, with one tensor after it."""

    before: bytes  # the JSON
    length: bytes  # its length as the header says it
    size: int  # bytes of the whole body
    recognised: Recognised  # what each request of it is

    def find(self, head: Head, body: bytes | bytearray) -> Recognised | None:
        """Where a request of this template has its contents; None for one that is not."""
        if len(body) != self.size or head.headers.get(HEADER_LENGTH) != self.length:
            return None
        return self.recognised if body.startswith(self.before) else None


@dataclass(frozen=True, slots=True)
class IdBytes:
    """A template with an id that differs from request to request."""

    template: RequestTemplate  # what the bytes say
    before: bytes  # up to the id or the contents, whichever comes first; with their bracket where those are JSON
    between: bytes  # what is between the two, likewise
    after: bytes  # what comes after both
    id_first: bool  # the id is before the contents
    binary_size: int | None = None  # bytes of the contents after the JSON; None for contents in JSON

    def find(self, head: Head, body: bytes | bytearray) -> Recognised | None:
        """Where a request of this template has its id and its contents; None for one that is not."""
        if not body.startswith(self.before):
            return None
        begin = len(self.before)
        announced = head.headers.get(HEADER_LENGTH)
        found = None
        if self.id_first:
            found = _ID_BYTES.match(body, begin)
            if found is None or not body.startswith(self.between, found.end()):
                return None
            begin = found.end() + len(self.between)
            if self.binary_size is not None:
                end = begin + self.binary_size
                is_whole = announced == b"%d" % begin and len(body) == end
                return (self.template, found[0], begin, end) if is_whole else None
        rest = end = body.find(b"]", begin) + 1
        if announced is not None or not end:
            return None
        if found is None:
            found = _ID_BYTES.match(body, end + len(self.between))
            if found is None or not body.startswith(self.between, end):
                return None
            rest = found.end()
        return (self.template, found[0], begin - 1, end) if body[rest:] == self.after else None


TemplateBytes = JsonBytes | BinaryBytes | IdBytes
