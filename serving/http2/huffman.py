"""HPACK's Huffman code (RFC 7541, section 5.2 and appendix B), decoded four bits at a time.

The code is canonical: the lengths of the codes of all symbols determine the codes.
"""

from __future__ import annotations

from functools import lru_cache

# Bits of the code of each byte in order, and of the end of the string (EOS) as the last, two hexadecimal digits each.
_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b08060606"
    "0505050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717171817"
    "181816171817171717151617161717181615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a17"
    "1a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
_EOS = 256
_NO_SYMBOL = -1


class HuffmanError(ValueError):
    """This is not a string in HPACK's Huffman code."""


def _codes() -> list[tuple[int, int]]:
    """Code and its length in bits, by symbol."""
    codes = [(0, 0)] * len(_LENGTHS)
    code = length = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol)):
        code <<= _LENGTHS[symbol] - length
        length = _LENGTHS[symbol]
        codes[symbol] = (code, length)
        code += 1
    return codes


def _nodes() -> list[list[int]]:
    """The code's tree: children of each inner node; a leaf is -1 - symbol."""
    nodes: list[list[int]] = [[0, 0]]
    for symbol, (code, length) in enumerate(_codes()):
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if nodes[node][bit] == 0:
                nodes.append([0, 0])
                nodes[node][bit] = len(nodes) - 1
            node = nodes[node][bit]
        nodes[node][code & 1] = -1 - symbol
    return nodes


def _steps(nodes: list[list[int]]) -> list[list[tuple[int, int]]]:
    """Next node and the symbol that ended, by node and the next four bits; no code is shorter than five."""
    table: list[list[tuple[int, int]]] = []
    for start in range(len(nodes)):
        row: list[tuple[int, int]] = []
        for bits in range(16):
            node, symbol = start, _NO_SYMBOL
            for shift in (3, 2, 1, 0):
                node = nodes[node][bits >> shift & 1]
                if node < 0:
                    node, symbol = 0, -1 - node
            row.append((node, symbol))
        table.append(row)
    return table


def _ends(nodes: list[list[int]]) -> frozenset[int]:
    """Nodes at which a string may end: after fewer than eight bits of padding, which are all ones."""
    ends, node = [0], 0
    for _ in range(7):
        node = nodes[node][1]
        ends.append(node)
    return frozenset(ends)


_TREE = _nodes()
_STEPS = _steps(_TREE)
_ENDS = _ends(_TREE)


@lru_cache(maxsize=1024)
def decode_short(data: bytes) -> bytes:
    """As :func:`decode`, remembered; for short strings, since callers repeat them."""
    return decode(data)


def decode(data: bytes) -> bytes:
    """The string that ``data`` encodes.

    Raises:
        HuffmanError: It contains EOS, or its padding is not the beginning of EOS or longer than seven bits.
    """
    decoded = bytearray()
    node = 0
    for byte in data:
        for bits in (byte >> 4, byte & 15):
            node, symbol = _STEPS[node][bits]
            if symbol != _NO_SYMBOL:
                if symbol == _EOS:
                    raise HuffmanError("a string contains the end-of-string symbol")
                decoded.append(symbol)
    if node not in _ENDS:
        raise HuffmanError("a string's padding is wrong")
    return bytes(decoded)
