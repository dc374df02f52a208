"""Letters of Word's symbol fonts: there a code shows another sign than Unicode's."""

from __future__ import annotations

_GREEK = dict(zip("abcdefghijklmnopqrstuvwxyz", "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)) | dict(
    zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)
)
_SYMBOLS = {
    0x22: "∀", 0x24: "∃", 0x27: "∋", 0x2A: "∗", 0x2D: "−", 0x40: "≅", 0x5C: "∴", 0x5E: "⊥", 0x7E: "∼",
    0xA2: "′", 0xA3: "≤", 0xA4: "/", 0xA5: "∞", 0xAB: "↔", 0xAC: "←", 0xAD: "↑", 0xAE: "→", 0xAF: "↓",
    0xB0: "°", 0xB1: "±", 0xB2: "″", 0xB3: "≥", 0xB4: "×", 0xB5: "∝", 0xB6: "∂", 0xB7: "•", 0xB8: "÷",
    0xB9: "≠", 0xBA: "≡", 0xBB: "≈", 0xBC: "…", 0xC5: "⊕", 0xC6: "∅", 0xC7: "∩", 0xC8: "∪", 0xC9: "⊃",
    0xCA: "⊇", 0xCB: "⊄", 0xCC: "⊂", 0xCD: "⊆", 0xCE: "∈", 0xCF: "∉", 0xD0: "∠", 0xD1: "∇", 0xD2: "®",
    0xD3: "©", 0xD4: "™", 0xD5: "∏", 0xD6: "√", 0xD7: "⋅", 0xD8: "¬", 0xD9: "∧", 0xDA: "∨", 0xDB: "⇔",
    0xDC: "⇐", 0xDE: "⇒", 0xE5: "∑", 0xF2: "∫",
}  # fmt: skip
_CHECKS = {0xFC: "✓", 0xFE: "☑", 0xFB: "✗", 0xFD: "☒", 0xA8: "☐", 0x6F: "☐", 0xE0: "→", 0xF0: "⇨", 0xA7: "▪"}


def symbol(code: int, font: str) -> str:
    """Return the sign that a font shows for a code (Word keeps it at 0xF000 and up); "" if it is unknown.

    >>> symbol(0xF061, "Symbol"), symbol(0xF0FC, "Wingdings"), symbol(0x2265, "Cambria Math")
    ('α', '✓', '≥')
    """
    private = 0xE000 <= code <= 0xF8FF
    low = code - 0xF000 if 0xF000 <= code <= 0xF0FF else code
    if font.lower().startswith("wingdings"):
        return _CHECKS.get(low, "")
    if font.lower() == "symbol" or (private and low != code):
        return _SYMBOLS.get(low) or _GREEK.get(chr(low)) or (chr(low) if 0x20 <= low < 0x7F else "")
    return "" if private else chr(code)
