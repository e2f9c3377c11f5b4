"""Register map: one table for decode logic, C header, JSON, documentation and host software."""

from dataclasses import dataclass

from hw.isa import PHASES, Kind

#: ID register: "SOLS".
ID = 0x534F4C53
#: Bits of every counter; it is read as two 32-bit words, low word first.
COUNTER_BITS = 48
#: Bytes of the register space (AXI4-Lite address bits: 12).
SPACE = 0x1000


@dataclass(frozen=True)
class Register:
    """One 32-bit register (or, `words` = 2, a counter)."""

    name: str
    offset: int
    access: str  #: "ro", "rw", "wo" or "w1c" (reads status, writing 1 clears)
    doc: str
    bits: tuple[tuple[str, int], ...] = ()  #: (name, bit position) of single-bit fields
    words: int = 1


STATIC = (
    Register("ID", 0x000, "ro", "0x534F4C53, \"SOLS\""),
    Register("CONFIG_HASH", 0x004, "ro", "identity of the configuration; programs carry it"),
    Register("CONTROL", 0x008, "wo", "START runs the program at PROGRAM_ADDR (ignored while BUSY); "
             "STOP abandons it: bus transfers that have begun are finished, then BUSY falls",
             (("START", 0), ("STOP", 1))),
    Register("STATUS", 0x00C, "ro", "BUSY: a program runs; DONE: the last one reached END; ERROR: "
             "the last one was stopped by an error",
             (("BUSY", 0), ("DONE", 1), ("ERROR", 2))),
    Register("IRQ_STATUS", 0x010, "w1c", "DONE: the program ended or was stopped; ERROR: an error "
             "stopped it; irq is high while any is set and enabled",
             (("DONE", 0), ("ERROR", 1))),
    Register("IRQ_ENABLE", 0x014, "rw", "enables of the interrupt causes",
             (("DONE", 0), ("ERROR", 1))),
    Register("PROGRAM_ADDR", 0x018, "rw", "offset of the first instruction in the region"),
    Register("REGION_BASE_LO", 0x01C, "rw", "DRAM region: byte address, low word (4 KiB steps)"),
    Register("REGION_BASE_HI", 0x020, "rw", "DRAM region: byte address, high word"),
    Register("REGION_SIZE", 0x024, "rw", "DRAM region: bytes; an access beyond is refused"),
    Register("SEED", 0x028, "rw", "seed of stochastic rounding"),
    Register("ERROR_CODE", 0x02C, "ro", "why the last program was stopped (Error); 0 after START"),
    Register("ERROR_ADDR", 0x030, "ro", "what the error is about: see the codes"),
    Register("ERROR_PC", 0x034, "ro", "offset of the refused instruction, else of the latest one "
             "fetched"),
    Register("EXCEPTIONS", 0x038, "w1c", "sticky: NONFINITE, a NaN or Inf was written in a result; "
             "OVERFLOW, a finite sum or product became Inf", (("NONFINITE", 0), ("OVERFLOW", 1))),
    Register("COUNTERS_CLEAR", 0x03C, "wo", "any write sets all counters to zero"),
    Register("LEARNING_RATE", 0x040, "rw", "SGD: learning rate, FP32"),
    Register("MOMENTUM", 0x044, "rw", "SGD: momentum, FP32"),
    Register("WEIGHT_DECAY", 0x048, "rw", "SGD: weight decay, FP32"),
)

#: Counters in order: (name, documentation).
COUNTERS = (
    ("CYCLES_TOTAL", "clocks from START to the done or error interrupt"),
    ("CYCLES_OP", "clocks from the dispatch of the last layer instruction to the last accepted "
                  "write beat"),
    ("INSTRUCTIONS", "instructions taken, END included"),
    ("NONFINITE_TILES", "result tiles written with a NaN or Inf among their valid elements"),
    ("ARRAY_BUSY", "clocks in which a row enters the array"),
    ("ARRAY_STALL_LOAD", "clocks in which the next operation waits for an operand"),
    ("ARRAY_STALL_STORE", "clocks in which it waits for its accumulator slot"),
    ("ARRAY_STALL_BANK", "clocks in which it waits because A and B share a scratchpad bank"),
    ("ARRAY_STALL_WEIGHTS", "clocks in which it waits for the stationary tile to be loaded"),
    ("ARRAY_STALL_ACC", "clocks in which it waits for the adder (same accumulator tile)"),
    ("ARRAY_IDLE", "clocks of CYCLES_TOTAL in which there is no operation to do"),
    ("OPERATIONS", "tile operations executed"),
    ("VECTOR_BUSY", "clocks in which the vector unit works on a tile"),
    ("VECTOR_OVERLAP", "clocks of VECTOR_BUSY in which a row enters the array"),
    ("VECTOR_OPERATIONS", "vector commands executed"),
    *((f"READ_{k.name}", f"bytes read from DRAM, kind {k.name}") for k in Kind),
    *((f"WRITE_{k.name}", f"bytes written to DRAM, kind {k.name}") for k in Kind),
)
COUNTER_BASE = 0x100
PHASE_BASE = 0x400

REGISTERS = STATIC + tuple(
    Register(name, COUNTER_BASE + 8 * i, "ro", doc, words=2)
    for i, (name, doc) in enumerate(COUNTERS)) + tuple(
    Register(f"PHASE_{name}_{p}", PHASE_BASE + 16 * p + offset, "ro", f"{doc} in phase {p}",
             words=2)
    for p in range(PHASES)
    for name, offset, doc in (("CYCLES", 0, "clocks of CYCLES_TOTAL"),
                              ("BUSY", 8, "clocks of ARRAY_BUSY")))
assert COUNTER_BASE + 8 * len(COUNTERS) <= PHASE_BASE

OFFSETS = {r.name: r.offset for r in REGISTERS}
