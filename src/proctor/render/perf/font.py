"""A fixed-width font of five by seven dots, for charts as PNG where no font can be counted on."""

from __future__ import annotations

WIDTH = 5
HEIGHT = 7
DROPPED = frozenset("gpqy")
"""Letters that stand two rows lower."""
DROP = 2
_DIGITS = "0123456789abcdefghijklmnopqrstuv"

# Each glyph is seven rows from the top; a row is one base-32 digit, its highest bit the leftmost dot.
_GLYPHS = (
    "0000000 4444404 aa00000 aavavaa 4fke5u4 pp248jj cik8lid 4400000 "
    "2488842 8422248 04lel40 044v440 0000648 000v000 00000cc 01248g0 "
    "ehjlphe 4c4444e eh1248v v2421he 26aiv22 vgu11he 68guhhe v124888 "
    "ehhehhe ehhf12c 0cc0cc0 0cc0c48 248g842 00v0v00 8421248 eh12404 "
    "eh1dlle ehhhvhh uhhuhhu ehggghe sihhhis vgguggv vgguggg ehgnhhf "
    "hhhvhhh e44444e 72222ic hikokih ggggggv hrllhhh hhpljhh ehhhhhe "
    "uhhuggg ehhhlid uhhukih fgge11u v444444 hhhhhhe hhhhha4 hhhllla "
    "hha4ahh hha4444 v1248gv e88888e 0g84210 e22222e 4ah0000 000000v "
    "8400000 00e1fhf ggmphhu 00egghe 11djhhf 00ehvge 698s888 fhhhf1e "
    "ggmphhh 40c444e 20622ic ggikoki c44444e 00qllhh 00mphhh 00ehhhe "
    "uhhhugg fhhhf11 00mpggg 00fge1u 88s8896 00hhhjd 00hhha4 00hhlla "
    "00ha4ah hhhhf1e 00v248v 2448442 4444444 8442448 008l200 0ha4ah0 "
    "00hhrlg 000e000 000000l 0004000 "
)
_ORDER = "".join(map(chr, range(32, 127))) + "×µ–…·"


def _rows(code: str) -> tuple[int, ...]:
    return tuple(_DIGITS.index(digit) for digit in code)


_FONT = {char: _rows(code) for char, code in zip(_ORDER, _GLYPHS.split(), strict=True)}
_FONT["\u202f"] = _FONT["\u00a0"] = _FONT[" "]


def glyph(char: str) -> tuple[int, ...]:
    """The rows of a character; a question mark for one that is not drawn."""
    return _FONT.get(char, _FONT["?"])
