"""Pictures as PNG, taken apart again."""

import struct
import zlib

from pocketmq.demo.png import Picture, text_width

WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def chunks(png: bytes) -> dict[bytes, bytes]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    found, place = {}, 8
    while place < len(png):
        (size,) = struct.unpack_from(">I", png, place)
        name, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        assert struct.unpack_from(">I", png, place + 8 + size)[0] == zlib.crc32(name + data)
        found[name] = data
        place += size + 12
    return found


def test_a_picture_becomes_a_sound_png() -> None:
    picture = Picture(4, 2, (WHITE, BLACK))
    picture.fill(1, 0, 2, 1, 1)

    parts = chunks(picture.png())

    assert list(parts) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", parts[b"IHDR"]) == (4, 2, 8, 3, 0, 0, 0)
    assert parts[b"PLTE"] == bytes(WHITE + BLACK)
    assert zlib.decompress(parts[b"IDAT"]) == b"\0\0\1\1\0" + b"\0\0\0\0\0"


def test_what_is_outside_of_the_picture_is_left_out() -> None:
    picture = Picture(2, 2, (WHITE, BLACK))

    picture.fill(-5, -5, 6, 6, 1)
    picture.fill(1, 1, 50, 50, 1)

    seen = [picture.colour_at(left, top) for top in range(2) for left in range(2)]
    assert seen == [BLACK, WHITE, WHITE, BLACK]


def test_letters_are_dots_and_unknown_ones_are_blank() -> None:
    picture = Picture(16, 6, (WHITE, BLACK))

    picture.write(0, 0, "I€", 1, scale=1)

    dots = [[picture.colour_at(left, top) == BLACK for left in range(8)] for top in range(5)]
    assert ["".join("#" if dot else "." for dot in row) for row in dots] == [
        "###.....",
        ".#......",
        ".#......",
        ".#......",
        "###.....",
    ]
    assert text_width("ab", scale=2) == 16
