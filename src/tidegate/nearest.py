"""What somebody probably meant who wrote a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, None if none is close."""
    from difflib import get_close_matches  # here, for nobody needs it while all is well

    close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6) if isinstance(word, str) else []
    return close[0] if close else None
