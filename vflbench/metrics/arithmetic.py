"""What guarantees of noise assume of arithmetic and of random numbers, in words that every claim shares.

Noise that is drawn in floating point has gaps: the outcomes that one input can have are not those that another can have, and
tell the two apart however much noise there is. Source: Mironov, "On significance of the least significant bits for
differential privacy", CCS 2012.
"""

_BITS = "random bits that nobody can predict, and the generator of this run is no cryptographic one"

EXACT = f"whole numbers, drawn without rounding: this holds of the very numbers that cross, for {_BITS}"
ALSO_FLOAT = (
    "real numbers: its noise is drawn in floating point, whose least bits may reveal what the proof hides (Mironov, 2012); "
    f"and {_BITS}"
)
BINOMIAL_SAMPLER = (
    "an exact binomial distribution: its whole numbers are drawn by rejection in floating point, which is near it; and "
    f"{_BITS}"
)
COINS = (
    "coins of the stated probability: they are drawn with 53 bits, which changes eps by 2^-50 (K - 1 + e^eps) at most for K "
    f"classes; and {_BITS}"
)
