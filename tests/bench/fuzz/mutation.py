"""Inputs that are nearly what a parser expects: recorded ones, changed; or made of the parser's own words."""

import random
from collections.abc import Sequence

LARGEST = 20_000
"""bytes of an input"""
ODD = (
    *(bytes([mark]) for mark in b"\0\n\r\t |,:=-+[]{}()\\\"'#/@%0\xff"),
    *b"-1 00 1e999 -0 1e-400 NaN Infinity nan inf 4294967295 2147483648 9223372036854775808 0x10 1_000".split(),
    *b"N/A (null) None Unknown UNLIMITED INVALID null true %s".split(),
    *(b"9" * 400, b"9" * 5000, b"[" * 2000, b'{"a":' * 300, b"A" * 3000),
    *(b"\xc3(", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\x1b[2J"),
    *(digit.encode() for digit in "\u0662\u00b2\uff11"),
)
"""what has broken parsers before: marks, numbers at their ends, bytes that are no text, digits of other scripts"""


class Mutator:
    """Draws inputs, the same ones for the same seed."""

    def __init__(self, samples: Sequence[bytes], words: Sequence[bytes], seed: str) -> None:
        """samples: valid inputs; words: what the parser's grammar is made of."""
        self._samples, self._words = samples, [*words, *ODD]
        self._draw = random.Random(seed)

    def next(self) -> bytes:
        """One more input."""
        if self._draw.random() < 0.15:
            made = b"".join(self._draw.choices(self._words, k=self._draw.randrange(1, 12)))
        else:
            made = self._draw.choice(self._samples)
        for _ in range(int(self._draw.expovariate(1.0)) + 1):
            made = self._changed(made)
        return made[:LARGEST]

    def _changed(self, data: bytes) -> bytes:
        """One change."""
        draw = self._draw
        low, high = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        if draw.random() < 0.7:
            high = min(high, low + draw.randrange(1, 9))  # mostly small, so that the rest stays valid
        way = draw.randrange(7)
        if way == 0:
            return data[:low] + draw.choice(self._words) + data[low:]
        if way == 1:
            return data[:low] + draw.choice(self._words) + data[high:]
        if way == 2:
            return data[:low] + data[high:]
        if way == 3:
            return data[:low] + data[low:high] * draw.choice((2, 2, 3, 50)) + data[high:]
        if way == 4:
            return data[:low] + bytes(byte ^ (1 << draw.randrange(8)) for byte in data[low:high]) + data[high:]
        if way == 5:
            other = draw.choice(self._samples)
            at = draw.randint(0, len(other))
            return data[:low] + other[at:]
        return data[:low] + data[high:] + data[low:high]
