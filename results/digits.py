"""Numbers as readers take them: rounded to some digits, and never with an exponent."""

from decimal import Decimal


def significant(value: float, digits: int) -> str:
    """Return a number with so many significant digits, and with all that it has before the point."""
    text = f"{value:,.{digits}g}"
    if "e" not in text:
        return text
    return f"{value:,.0f}" if abs(value) >= 1 else format(Decimal(text), "f")
