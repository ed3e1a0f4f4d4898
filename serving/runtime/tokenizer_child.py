"""The process that has one tokenizer: ``python -m tiercel.serving.runtime.tokenizer_child``.

To load a ``tokenizer.json`` keeps Python's lock for half a second, to read a long prompt for a third, and whoever wrote
the file is not trusted: none of it happens in the server. It talks over the socket that is its stdin, in frames of
:func:`send`, and leaves when that ends, so it outlives the server by one prompt at most.

First comes the file. The answer is why it is refused, or an empty frame and the three of :class:`Vocabulary`. After
that each frame is a prompt's text, and each answer is why it has no ids, or an empty frame and its ids.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tiercel.core.errors import ArtefactRefusedError
from tiercel.core.tokenizers import MAX_TOKENIZER_BYTES, TEXT_OF_BYTES
from tiercel.serving.runtime.specs import first_line
from tiercel.serving.runtime.tokenizer_bounds import check_bounds

if TYPE_CHECKING:
    import tokenizers

# Ids have 4 bytes each, and the server's answers are made of those tokens.
_MOST_IDS: Final = 2**21
_MOST_DECODER_BYTES: Final = 16 * 1024
_MEMORY_BYTES: Final = 2 * 1024**3
_HEAD: Final = struct.Struct(">I")


class Vocabulary(NamedTuple):
    """What makes texts of ids."""

    ends: bytes  # uint32 by id: where its token ends in the tokens
    tokens: bytes  # UTF-8 of all of them; those that stand for no text are empty
    decoder: bytes  # JSON of the ``tokenizer.json``'s decoder


def send(to: socket.socket, *frames: bytes) -> None:
    """Send some frames."""
    to.sendall(b"".join(_HEAD.pack(len(frame)) + frame for frame in frames))


def receive(source: socket.socket, most: int) -> bytes:
    """The next frame.

    Raises:
        OSError: The other side is gone, or sends more than it should.
    """
    (size,) = _HEAD.unpack(_exactly(source, _HEAD.size))
    if size > most:
        raise OSError(f"a frame of {size} bytes; {most} are possible")
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = source.recv(min(size - len(content), 2**20))
        if not part:
            raise EOFError("the other side is gone")
        content += part
    return bytes(content)


def loaded(said: str) -> tokenizers.Tokenizer:
    """The tokenizer of a ``tokenizer.json``, in this process.

    Raises:
        ArtefactRefusedError: It is none, or may do what is not bounded, or cannot be run here.
    """
    content = _object_of(said)
    check_bounds(content)
    if len(json.dumps(content.get("decoder"))) > _MOST_DECODER_BYTES:
        raise ArtefactRefusedError(f"its tokenizer.json has a decoder of more than {_MOST_DECODER_BYTES} bytes")
    try:
        import tokenizers  # an extra; a server whose models bring none does without it
    except ImportError as error:
        raise ArtefactRefusedError(
            "it brings a tokenizer.json, and this server lacks the package to run it: pip install "
            "'tiercel[tokenizers]' where the server runs, and deliver it again"
        ) from error
    try:
        # Written anew: what is read is what was checked, whatever others make of a key that is there twice.
        found = tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # a defect in Rust is no Exception
        _raise_if_asked_to_end(error)
        raise ArtefactRefusedError(f"its tokenizer.json cannot be loaded: {first_line(error)}") from error
    if max(found.get_vocab().values(), default=0) >= _MOST_IDS:
        raise ArtefactRefusedError(f"its tokenizer.json has an id above {_MOST_IDS - 1}")
    found.no_padding()
    found.no_truncation()
    return found


def _object_of(said: str) -> dict[str, Any]:
    try:
        content = json.loads(said)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ArtefactRefusedError(
            f"its metadata 'tokenizer' begins with {said[:40]!r}, and is neither '{TEXT_OF_BYTES}' nor a Hugging Face "
            "tokenizer.json; leave it out to have callers send ids"
        )
    return content


def vocabulary_of(tokenizer: tokenizers.Tokenizer, said: str) -> Vocabulary:
    """What makes texts of a tokenizer's ids; special tokens stand for none."""
    special = {each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special}
    count = max(tokenizer.get_vocab().values(), default=-1) + 1
    ends, tokens = array("I"), bytearray()
    for number in range(count):
        token = tokenizer.id_to_token(number)
        if token is not None and token not in special:
            tokens += token.encode()
        ends.append(len(tokens))
    return Vocabulary(ends.tobytes(), bytes(tokens), json.dumps(json.loads(said).get("decoder")).encode())


def _ids(tokenizer: tokenizers.Tokenizer, text: bytes) -> tuple[bytes, ...]:
    try:
        return b"", array("I", tokenizer.encode(text.decode()).ids).tobytes()
    except BaseException as error:  # a defect in Rust is no Exception
        _raise_if_asked_to_end(error)
        return (first_line(error).encode(),)


def _raise_if_asked_to_end(error: BaseException) -> None:
    if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
        raise error


def _serve(server: socket.socket) -> None:
    said = receive(server, MAX_TOKENIZER_BYTES).decode()
    try:
        tokenizer = loaded(said)
        frames = vocabulary_of(tokenizer, said)
    except ArtefactRefusedError as error:
        send(server, error.message.encode())
        return
    del said
    send(server, b"", *frames)
    while True:
        send(server, *_ids(tokenizer, receive(server, MAX_TOKENIZER_BYTES)))


def main() -> None:
    """Answer until the server is gone."""
    for which, amount in ((resource.RLIMIT_DATA, _MEMORY_BYTES), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        _, hard = resource.getrlimit(which)
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(which, (amount, amount))
    # When the server is gone, so is whoever wanted to know.
    with socket.socket(fileno=0) as server, contextlib.suppress(OSError, EOFError):
        _serve(server)


if __name__ == "__main__":
    main()
    sys.exit(0)
