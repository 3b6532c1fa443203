"""Which edges of the computational graph carry an answer."""
