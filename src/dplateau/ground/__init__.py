"""What every room stands on: checks, array types, the compiler's door, files and seals."""

VERSION = "0.2.0"
