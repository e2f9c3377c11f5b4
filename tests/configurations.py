"""Configurations at the limits of the generator, of which each simulator serves several tests."""

from hw.config import Config

CONFIGS = {
    # A dot-product tree, one scratchpad bank, one command and one burst at a time.
    "tree": Config(tile=2, dot_width=2, mant_width=6, spad_kib=1, spad_banks=1, acc_kib=1,
                   acc_banks=2, axi_width=128, addr_width=32, outstanding=1, queue_depth=2,
                   write_buffer=4),
    # Rows of 12 bits on a bus of 32; one lane, a row in three groups of columns.
    "nibbles": Config(tile=3, dot_width=1, mant_width=4, spad_kib=1, spad_banks=2, acc_kib=2,
                      acc_banks=4, axi_width=32, addr_width=48, outstanding=2, queue_depth=3,
                      write_buffer=8, vector_lanes=1),
    # Banks of five slots, the widest addresses, rows of 80 bits on a bus of 32; one burst at a
    # time; a last group of one column.
    "five": Config(tile=5, dot_width=5, mant_width=12, spad_kib=1, spad_banks=4, acc_kib=4,
                   acc_banks=2, axi_width=32, addr_width=64, outstanding=1, queue_depth=5,
                   write_buffer=4, vector_lanes=4),
    # A beat of two rows, the widest mantissas.
    "wide": Config(tile=4, dot_width=2, mant_width=16, spad_kib=1, spad_banks=1, acc_kib=1,
                   acc_banks=8, axi_width=256, addr_width=40, outstanding=4, queue_depth=2,
                   write_buffer=16, vector_lanes=1),
    # The smallest memories: one tile in a bank. Rows in four groups of columns.
    "single": Config(tile=8, dot_width=4, mant_width=12, spad_kib=1, spad_banks=8, acc_kib=1,
                     acc_banks=4, axi_width=64, addr_width=40, outstanding=8, queue_depth=4,
                     write_buffer=4, vector_lanes=2),
    # The deepest queues, the most banks.
    "roomy": Config(tile=3, dot_width=3, mant_width=16, spad_kib=4, spad_banks=16, acc_kib=2,
                    acc_banks=8, axi_width=128, addr_width=33, outstanding=64, queue_depth=64,
                    write_buffer=512),
    # The widest bus: a BFP image is a beat of exponents and one of mantissas.
    "one_beat": Config(tile=4, dot_width=4, mant_width=4, spad_kib=1, spad_banks=4, acc_kib=1,
                       acc_banks=2, axi_width=1024, addr_width=56, outstanding=3, queue_depth=2,
                       write_buffer=32),
}
