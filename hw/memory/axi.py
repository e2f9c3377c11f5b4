"""Limits of AXI4 bursts."""

#: No burst crosses a multiple of this address.
PAGE_BYTES = 4096
#: A burst has at most this many beats.
MAX_BEATS = 256
