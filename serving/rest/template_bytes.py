"""A template of requests as the bytes around their id and their contents. Pure."""

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
class TemplateBytes:
    """A template as the bytes that requests are recognised by.

    JSON has no context: whatever list stands where the contents stand, or text where the id stands, all around it means
    the same.

    Attributes:
        template: What they say.
        before: Up to the id or the contents, whichever comes first; with their bracket where those are JSON.
        between: What is between the two, likewise; empty where there is no id.
        after: What comes after both.
        id_first: There is an id before the contents.
        id_last: There is an id after the contents.
        fixed_id: As in JSON, the id that is part of the other bytes, since it is escaped or long; empty for none.
        binary_size: Bytes of the contents after the JSON; None for contents in JSON.
        json_size: Length of the JSON before binary contents, as the header says it; empty where an id changes it.
    """

    template: RequestTemplate
    before: bytes
    between: bytes
    after: bytes
    id_first: bool
    id_last: bool
    fixed_id: bytes
    binary_size: int | None
    json_size: bytes

    def find(self, head: Head, body: bytes | bytearray) -> Recognised | None:
        """Where a request of this template has its id and its contents; None for one that is not."""
        if not body.startswith(self.before):
            return None
        begin = len(self.before)
        request_id = self.fixed_id
        if self.id_first:
            found = _ID_BYTES.match(body, begin)
            if found is None or not body.startswith(self.between, found.end()):
                return None
            request_id = found[0]
            begin = found.end() + len(self.between)
        announced = head.headers.get(HEADER_LENGTH)
        if self.binary_size is not None:
            end = begin + self.binary_size
            size = self.json_size if not self.id_first else b"%d" % begin
            return (self.template, request_id, begin, end) if announced == size and len(body) == end else None
        rest = end = body.find(b"]", begin) + 1
        if announced is not None or not end:
            return None
        if self.id_last:
            found = _ID_BYTES.match(body, end + len(self.between))
            if found is None or not body.startswith(self.between, end):
                return None
            request_id = found[0]
            rest = found.end()
        return (self.template, request_id, begin - 1, end) if body[rest:] == self.after else None
