"""Register map: one table for decode logic, C header, JSON, documentation and host software."""

from dataclasses import dataclass, replace

from hw.isa import PHASES, Kind

#: ID register: "SOLS".
ID = 0x534F4C53
#: Bits of every counter; it is read as two 32-bit words, low word first.
COUNTER_BITS = 48
#: Bytes of a block of registers. The training context's is the first, the inference context's the
#: second; both have the same layout. The third block is shared.
BLOCK = 0x1000
INFERENCE_BASE, SHARED_BASE = BLOCK, 2 * BLOCK
#: Bytes of the register space (AXI4-Lite address bits: 14).
SPACE = 4 * BLOCK


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
             "STOP abandons it: bus transfers that have begun are finished, then BUSY falls "
             "(inference: all requests that are posted complete with status ABORTED)",
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
    Register("SPAD_REGION", 0x04C, "rw", "scratchpad slots of the context: first (low 16 bits) and "
             "last (high); a window beyond is refused. After reset: all"),
    Register("ACC_REGION", 0x050, "rw", "the same for accumulator slots"),
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

#: Registers of a context; offsets count from its block.
CONTEXT_REGISTERS = STATIC + tuple(
    Register(name, COUNTER_BASE + 8 * i, "ro", doc, words=2)
    for i, (name, doc) in enumerate(COUNTERS)) + tuple(
    Register(f"PHASE_{name}_{p}", PHASE_BASE + 16 * p + offset, "ro", f"{doc} in phase {p}",
             words=2)
    for p in range(PHASES)
    for name, offset, doc in (("CYCLES", 0, "clocks of CYCLES_TOTAL"),
                              ("BUSY", 8, "clocks of ARRAY_BUSY")))
assert COUNTER_BASE + 8 * len(COUNTERS) <= PHASE_BASE

#: Shared units in order: (name, what of training an inference operation can wait for, in what).
UNITS = (
    ("ARRAY", "clocks from an operation's offer to its take, while one of training is inside"),
    ("VECTOR", "clocks from a row's request to its read, taken by rows of training"),
    ("QUANTISER", "clocks from a row's request to its grant, taken by rows of training"),
    ("READ", "training's beats that arrive between a read burst's request and its first beat"),
    ("WRITE", "training's beats that leave between a write burst's request and its first beat"),
)
#: Registers of the shared block, from its base: scheduling, then requests.
SHARED_STATIC = (
    Register("POLICY", 0x000, "rw", "who gets a unit that both contexts ask for: 0 priority, "
             "inference; 1 fair, in turns; 2 exclusive, training is held. Other values are 0"),
    Register("MAX_BURST_BEATS", 0x004, "rw", "most beats of a burst of training, 1..256 (0 is 1); "
             "after reset 16"),
    Register("READ_CREDITS", 0x008, "rw", "most read beats of training that are outstanding while "
             "inference is active; one burst is always allowed. After reset 64"),
    Register("READ_CREDITS_IDLE", 0x00C, "rw", "the same while it is not; after reset 65535"),
    Register("SPIKE_THRESHOLD", 0x010, "rw", "training is held while more requests are posted and "
             "not launched; 0 (after reset) is never"),
    Register("REQUEST_CONTROL", 0x020, "rw", "ENABLE: serve requests; setting it empties the rings "
             "and drops kept tiles, an error or STOP of the context clears it; refused "
             "(RING_ERROR) while posted requests are not completed, and if rings, windows or sizes "
             "do not fit; LAUNCH_IDLE: launch a batch also when the array would otherwise idle",
             (("ENABLE", 0), ("LAUNCH_IDLE", 1))),
    Register("REQUEST_RING", 0x024, "rw", "offset of the request ring in the inference region"),
    Register("COMPLETION_RING", 0x028, "rw", "offset of the completion ring"),
    Register("RING_LOG2", 0x02C, "rw", "log2 of the entries of each ring, 0..7"),
    Register("DOORBELL", 0x030, "wo", "requests posted since ENABLE, modulo 65536; refused "
             "(RING_ERROR) if that is more than REQUEST_SPACE further"),
    Register("CONSUMED", 0x034, "rw", "completions that the host has taken since ENABLE, modulo "
             "65536; refused (RING_ERROR) if beyond COMPLETED"),
    Register("COMPLETED", 0x038, "ro", "completions written since ENABLE, modulo 65536"),
    Register("REQUEST_SPACE", 0x03C, "ro", "requests that can be posted now: entries less those "
             "posted and not CONSUMED; 0 is a full ring"),
    Register("REQUEST_QUEUE", 0x040, "ro", "requests posted and not launched"),
    Register("BATCH_MAX", 0x044, "rw", "most requests of a batch, 1..128; after reset 1"),
    Register("BATCH_TIMEOUT", 0x048, "rw", "clocks after which the oldest request's batch is "
             "launched, full or not"),
    Register("REQUEST_INPUTS", 0x04C, "rw", "elements of a request's input, 1 .. 2**20 - 1 (0 is "
             "1); in tiles no more than INPUT_WINDOW is wide"),
    Register("REQUEST_OUTPUTS", 0x050, "rw", "the same of its output and OUTPUT_WINDOW"),
    Register("INPUT_WINDOW", 0x054, "rw", "scratchpad window of a batch's inputs, as in "
             "instructions; the other batch's follows it; both in the context's SPAD_REGION"),
    Register("OUTPUT_WINDOW", 0x058, "rw", "accumulator window of a batch's outputs, in the "
             "context's ACC_REGION"),
    Register("COALESCE_COUNT", 0x05C, "rw", "completions that raise the interrupt; 0 is 1"),
    Register("COALESCE_CLOCKS", 0x060, "rw", "clocks after a completion that raise it anyway; 0 is "
             "never"),
    Register("REQUEST_IRQ_STATUS", 0x064, "w1c", "COMPLETION: completions as COALESCE_* ask; "
             "RING_ERROR: ENABLE, DOORBELL or CONSUMED was refused",
             (("COMPLETION", 0), ("RING_ERROR", 1))),
    Register("REQUEST_IRQ_ENABLE", 0x068, "rw", "enables of these interrupt causes",
             (("COMPLETION", 0), ("RING_ERROR", 1))),
    Register("SHARED_COUNTERS_CLEAR", 0x06C, "wo", "any write clears the counters of this block"),
    Register("BATCH_ROWS", 0x070, "ro", "requests of the running batch; 0 if none runs"),
)
#: What each request is timed for, in clocks.
TIMES = (
    ("WAIT", "DOORBELL to launch of its batch"),
    ("SERVICE", "launch to the acknowledgement of the batch's last output"),
    ("LATENCY", "DOORBELL to that"),
)
#: Bins of a histogram: bin b counts the times t with 2**(b-1) <= t < 2**b, bin 0 t = 0, the last
#: one all above too.
BINS = 32
SHARED_COUNTERS = (
    ("BATCHES", "batches launched"),
    ("SPIKE_CYCLES", "clocks in which training is held because of SPIKE_THRESHOLD"),
    *((f"{unit}_{what}", f"{doc} ({unit.lower()})") for unit, _ in UNITS for what, doc in (
        ("TRAINING", "clocks in which the unit works for training"),
        ("INFERENCE", "clocks in which it works for inference"),
        ("TRAINING_HELD", "clocks in which training asks for it and inference has it"),
        ("INFERENCE_HELD", "clocks in which inference asks for it and training has it"),
        ("UNUSED", "clocks in which it works for neither"))),
    *((f"{time}_{what}", f"{doc}: {text}") for time, text in TIMES for what, doc in (
        ("COUNT", "requests completed with status OK"), ("SUM", "sum"), ("MIN", "smallest; all "
         "ones if there is none"), ("MAX", "largest"))),
)
SHARED_COUNTER_BASE, HOLD_BASE, HISTOGRAM_BASE = 0x100, 0x400, 0x800
SHARED_REGISTERS = SHARED_STATIC + tuple(
    Register(name, SHARED_COUNTER_BASE + 8 * i, "ro", doc, words=2)
    for i, (name, doc) in enumerate(SHARED_COUNTERS)) + tuple(
    Register(f"{unit}_{name}", HOLD_BASE + 8 * i + offset, "ro", f"{doc}: {text}")
    for i, (unit, text) in enumerate(UNITS)
    for name, offset, doc in (("HOLD_MAX", 0, "longest hold of inference by training"),
                              ("HOLD_BOUND", 4, "its bound under `priority`"))) + tuple(
    Register(f"{time}_BIN_{b}", HISTOGRAM_BASE + 4 * (BINS * t + b), "ro",
             f"requests by {text}: bin {b}")
    for t, (time, text) in enumerate(TIMES) for b in range(BINS))
assert SHARED_COUNTER_BASE + 8 * len(SHARED_COUNTERS) <= HOLD_BASE


def _moved(registers, base, prefix=""):
    return tuple(replace(r, name=prefix + r.name, offset=base + r.offset) for r in registers)


#: All registers: the training context's, the inference context's (INFERENCE_...), the shared ones.
REGISTERS = (*CONTEXT_REGISTERS, *_moved(CONTEXT_REGISTERS, INFERENCE_BASE, "INFERENCE_"),
             *_moved(SHARED_REGISTERS, SHARED_BASE))

OFFSETS = {r.name: r.offset for r in REGISTERS}
