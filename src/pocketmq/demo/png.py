"""A picture of coloured rectangles and short words, as PNG: enough for a bar chart, and nothing to install.

signature │ IHDR width, height, 8 bits, palette │ PLTE colours │ IDAT rows, each after a 0, deflated │ IEND
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

Colour = tuple[int, int, int]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
GLYPH_WIDTH: Final = 3
GLYPH_HEIGHT: Final = 5
_ROWS: Final = """
075557 126227 271747 371717 455711 574717 674757 771111 875757 975717 a75755 b65656
c74447 d65556 e74647 f74644 g74557 h55755 i72227 j11157 k55655 l44447 m57755 n75555
o75557 p75744 q75571 r75655 s74717 t72222 u55557 v55552 w55775 x55255 y55222 z71247
.00002 ,00024 :02020 -00700 /11244
"""
# A letter and its rows of three dots from the top, each an octal digit: 7 is ███, 5 is █ █.
_GLYPHS: Final = {word[0]: word[1:] for word in _ROWS.split()}


class Picture:
    """Dots of numbered colours; number 0 is the ground."""

    def __init__(self, width: int, height: int, colours: Sequence[Colour]) -> None:
        self.width = width
        self.height = height
        self._colours = colours
        self._rows = [bytearray(width) for _ in range(height)]

    def colour_at(self, left: int, top: int) -> Colour:
        return self._colours[self._rows[top][left]]

    def fill(self, left: int, top: int, width: int, height: int, colour: int) -> None:
        """A rectangle; what is outside of the picture is left out."""
        begin, end = max(0, left), min(self.width, left + width)
        for row in self._rows[max(0, top) : max(0, top + height)]:
            row[begin:end] = bytes([colour]) * max(0, end - begin)

    def write(self, left: int, top: int, text: str, colour: int, scale: int = 2) -> None:
        """A short text; letters that it does not have are left out."""
        for place, letter in enumerate(text.lower()):
            for line, digit in enumerate(_GLYPHS.get(letter, "00000")):
                for dot in range(GLYPH_WIDTH):
                    if int(digit) >> (GLYPH_WIDTH - 1 - dot) & 1:
                        x = left + (place * (GLYPH_WIDTH + 1) + dot) * scale
                        self.fill(x, top + line * scale, scale, scale, colour)

    def png(self) -> bytes:
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        palette = b"".join(bytes(colour) for colour in self._colours)
        rows = b"".join(b"\0" + row for row in self._rows)
        parts = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def text_width(text: str, scale: int = 2) -> int:
    return len(text) * (GLYPH_WIDTH + 1) * scale


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
