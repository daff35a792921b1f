"""Log-space numerics: the only room that writes special functions, tails and inversions."""
