"""Requests on the golden machine: against the literal server, and properties of batches."""

import numpy as np
import pytest
from chains import Chain
from literal_serving import LiteralServer

from hw.config import Config, load
from hw.isa import Function, Kind, Opcode, XSource, YTarget
from sw.compiler.assembler import assemble
from sw.golden import images
from sw.golden.machine import Machine
from sw.golden.serving import (
    Request,
    Server,
    Service,
    Status,
    decode_output,
    encode_input,
    input_bytes,
    output_bytes,
)

OK, BAD = Status.OK, Status.BAD_DESCRIPTOR


class Served:
    """A random network with `count` random requests; `server` serves them on its `memory`."""

    def __init__(self, seed, count, *, special=None, exact=False):
        chain = self.chain = Chain(seed, most_rows=2, special=special)
        cfg, self.seed = chain.cfg, seed
        for number, layer in enumerate(chain.layers):
            layer |= {"m": 0, "run_m": 1, "w_keep": number + 1, "y_row": 1}
            if exact:  # no stochastic bits: they depend on the row in the batch
                layer |= {"stochastic": 0}
        chain.layers[0] |= {"x_source": XSource.REQUEST}
        chain.layers[-1] |= {"y_target": YTarget.ACC,
                             "y_window": chain.acc(chain.tm, chain.tiles[-1])}
        self.inputs, self.outputs = chain.sizes[0], chain.sizes[-1]
        self.x = chain.rng.standard_normal((count, self.inputs)).astype(np.float32)
        data = encode_input(cfg, self.x)
        rubbish = chain.rng.integers(0, 256, output_bytes(cfg, self.outputs) + 3 * cfg.beat_bytes,
                                     np.uint8)
        self.requests = [Request(chain.place(row), chain.place(rubbish), number)
                         for number, row in enumerate(data)]
        self.batch_max = int(chain.rng.integers(1, cfg.tile * chain.tm + 1))
        self.service = Service(0, self.batch_max, self.inputs, self.outputs,
                               chain.layers[0]["x_window"], chain.layers[-1]["y_window"])

    def server(self):
        self.memory = self.chain.memory()
        return Server(Machine(self.chain.cfg, self.memory, seed=self.seed), self.service)

    def raw(self):
        """Bytes of every output."""
        count = output_bytes(self.chain.cfg, self.outputs)
        return np.stack([self.memory[r.output:r.output + count] for r in self.requests])

    def results(self):
        """Numbers of every output."""
        return decode_output(self.chain.cfg, self.raw(), self.outputs)


def random_sizes(rng, count, most):
    sizes = []
    while sum(sizes) < count:
        sizes.append(min(int(rng.integers(1, most + 1)), count - sum(sizes)))
    return sizes


@pytest.mark.parametrize("seed", range(40))
def test_requests_are_served_to_the_letter(seed):
    """Whole memory, statuses, counters; with descriptors that are refused."""
    served = Served(seed, 9)
    rng, cfg = np.random.default_rng(seed), served.chain.cfg
    server = served.server()
    end = len(served.memory)
    broken = [(0, 1), (cfg.beat_bytes // 2, 0), (end, 0), (0, end), (2**32, 0)]
    for number, (i, o) in zip((2, 3, 5, 6), rng.permutation(broken).tolist(), strict=False):
        r = served.requests[number]
        served.requests[number] = r._replace(input=r.input + i, output=r.output + o)
    sizes = random_sizes(rng, 9, server.full)
    expected = served.memory.copy()
    literal = LiteralServer(cfg, expected, served.service, served.chain.layers, seed)
    # Rows that are not gathered hold what was there: nothing, in a machine that is new.
    for slot in range(1 << cfg.spad_slot_bits):
        literal.chip.spad |= {(slot, row): (0, [0] * cfg.tile) for row in range(cfg.tile)}
    good, rest = [], list(served.requests)
    for size in sizes:
        good += literal.batch(rest[:size])
        rest = rest[size:]
    assert server.serve(served.requests, sizes) == [OK if g else BAD for g in good]
    assert good.count(False) == 4
    assert (served.memory == expected).all()
    found = server.counters
    for name in (f"{way}_{k.name}" for way in ("READ", "WRITE") for k in Kind):
        if name not in ("READ_PROGRAM", "READ_REQUEST", "WRITE_REQUEST"):
            assert found[name] == literal.total(name), name
    assert found["READ_REQUEST"] == found["WRITE_REQUEST"] == 9 * cfg.entry_bytes
    done = literal.instructions
    assert found["READ_PROGRAM"] == 128 * (len(served.chain.layers) + 1)
    assert found["INSTRUCTIONS"] == len(done) + len(sizes)
    assert found["OPERATIONS"] == sum(i.operations for i in done)
    assert found["VECTOR_OPERATIONS"] == sum(i.vector_operations for i in done)
    tiles = literal.bytes["NONFINITE_TILES"] + sum(i.nonfinite for i in done)
    assert found["NONFINITE_TILES"] == tiles
    assert server.nonfinite == (tiles > 0)
    assert server.overflow == any(i.check.overflow for i in done)


@pytest.mark.parametrize("seed", range(30))
def test_results_do_not_depend_on_batches(seed):
    served = Served(seed, 12, exact=True)
    found, rng = [], np.random.default_rng(seed)
    for turn in range(5):
        server = served.server()
        if turn == 4:  # in several calls
            for request in served.requests:
                assert server.serve([request]) == [OK]
        else:
            sizes = [None, [1] * 12, random_sizes(rng, 12, server.full),
                     random_sizes(rng, 12, server.full)][turn]
            assert server.serve(served.requests, sizes) == [OK] * 12
        found.append(served.raw().tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_nan_stays_in_its_request(seed):
    served = Served(seed, 8, special=False, exact=True)
    server = served.server()
    server.serve(served.requests)
    healthy = served.results()
    sick = served.x.copy()
    sick[3, seed % served.inputs], sick[6, 0] = np.nan, np.inf
    server = served.server()
    data = encode_input(served.chain.cfg, sick)
    for request, row in zip(served.requests, data, strict=True):
        served.memory[request.input:request.input + len(row)] = row
    assert server.serve(served.requests) == [OK] * 8
    others = [0, 1, 2, 4, 5, 7]
    assert np.array_equal(served.results()[others], healthy[others], equal_nan=True)
    assert np.isnan(served.results()[[3, 6]]).all()
    assert server.nonfinite


def test_weights_are_loaded_once():
    served = Served(5, 12)
    server, cfg = served.server(), served.chain.cfg
    size = sum(-(-layer["n"] // cfg.tile) * cfg.beat_bytes
               * cfg.image_beats(True, min(cfg.tile, layer["k"] - top))
               for layer in served.chain.layers for top in range(0, layer["k"], cfg.tile))
    server.serve(served.requests[:1])
    assert server.counters["READ_W"] == size
    server.serve(served.requests[1:])
    assert server.counters["READ_W"] == size
    again = Server(server.machine, served.service)  # ENABLE forgets
    again.serve(served.requests)
    assert again.counters["READ_W"] == size


@pytest.mark.parametrize(("length", "again"), [(3, 0), (16, 0), (17, 2), (20, 8), (32, 32)])
def test_program_cache(length, again):
    """Sixteen instructions by address: those that share a place push each other out."""
    cfg = load("tiny")
    memory = np.zeros(1 << 14, np.uint8)
    code = assemble(cfg, [{"opcode": Opcode.FENCE}] * (length - 1))
    memory[128:128 + len(code)] = np.frombuffer(code, np.uint8)
    machine = Machine(cfg, memory, inference=True)
    read = [machine.run(128, keep=True).counters["READ_PROGRAM"] / 128 for _ in range(3)]
    assert read == [length, again, again]
    assert machine.run(128).counters["READ_PROGRAM"] == 128 * length
    assert machine.run(128, keep=True).counters["READ_PROGRAM"] == 128 * again
    machine.enable()
    assert machine.run(128, keep=True).counters["READ_PROGRAM"] == 128 * length


def test_an_error_fails_all_that_follows():
    served = Served(4, 9)
    server = served.server()
    code = assemble(served.chain.cfg, [*served.chain.layers, {"opcode": 99}])
    served.memory[:len(code)] = np.frombuffer(code, np.uint8)
    before = served.raw()
    assert server.serve(served.requests) == [Status.FAILED] * 9
    assert server.serve(served.requests[:1]) == [Status.FAILED]
    assert (served.raw() == before).all()
    assert server.counters["READ_REQUEST"] == 10 * served.chain.cfg.entry_bytes


def test_sizes_of_batches():
    served = Served(4, 3)
    server = served.server()
    for sizes in ([1, 1], [0, 3], [server.full + 1, 2 - server.full], [4]):
        with pytest.raises(ValueError, match=r"batches of 1\.\.\d+ must add up to 3 requests"):
            server.serve(served.requests, sizes)
    window = {"base": 0, "h_log2": 1, "w_log2": 0}
    cfg = served.chain.cfg
    for most, full in ((0, 1), (1, 1), (2 * cfg.tile, 2 * cfg.tile), (128, 2 * cfg.tile)):
        service = served.service._replace(batch_max=most, inputs=1, input_window=window)
        assert Server(server.machine, service).full == full


WINDOWS = {"input_window": {"base": 2, "h_log2": 1, "w_log2": 1},
           "output_window": {"base": 1, "h_log2": 0, "w_log2": 1}}


@pytest.mark.parametrize(("wrong", "reason"), [
    ({"inputs": 9}, "INPUT_WINDOW is not as wide as REQUEST_INPUTS"),
    ({"outputs": 9}, "OUTPUT_WINDOW is not as wide as REQUEST_OUTPUTS"),
    ({"inputs": 1 << 20}, "INPUT_WINDOW is not as wide"),
    ({"input_window": {"base": 1}}, "INPUT_WINDOW leaves the context's slots"),
    ({"input_window": {"base": 3}}, "INPUT_WINDOW leaves the context's slots"),
    ({"output_window": {"base": 0}}, "OUTPUT_WINDOW leaves the context's slots"),
    ({"output_window": {"base": 2}}, "OUTPUT_WINDOW leaves the context's slots"),
    ({"input_window": {"base": 505}}, "INPUT_WINDOW has slots that do not exist"),
    ({"output_window": {"base": 63}}, "OUTPUT_WINDOW has slots that do not exist")])
def test_enable_is_refused(wrong, reason):
    """Two buffers of four slots in slots 2 to 9, two slots in 1 and 2; T = 4."""
    cfg = load("tiny")
    machine = Machine(cfg, np.zeros(4096, np.uint8), spad_region=(2, 9), acc_region=(1, 2))
    good = {"inputs": 8, "outputs": 8, **WINDOWS}
    assert Server(machine, Service(0, 4, **good)).full == 4
    bad = {name: value | wrong[name] if name in WINDOWS and name in wrong else
           wrong.get(name, value) for name, value in good.items()}
    with pytest.raises(ValueError, match=f"ENABLE is refused: {reason}"):
        Server(machine, Service(0, 4, **bad))


# --- coding -----------------------------------------------------------------------------------

@pytest.mark.parametrize("cfg", [
    load("tiny"), Config(tile=3, mant_width=4, axi_width=32, spad_kib=4, acc_kib=4),
    Config(tile=16, axi_width=1024), Config(tile=5, mant_width=12, spad_kib=4, acc_kib=4)])
def test_coding(cfg):
    """Inputs are what CONVERT makes of rows of T; outputs are read in the same order."""
    t, rng = cfg.tile, np.random.default_rng(0)
    for count in (1, t - 1, t, t + 1, t * t, t * t + 1, 3 * t * t - 1):
        x = rng.standard_normal((5, count)).astype(np.float32)
        x[1, 0], x[2], x[3, -1] = np.nan, 0, -np.inf
        raw = encode_input(cfg, x)
        assert raw.shape == (5, input_bytes(cfg, count))
        rows = -(-count // t)
        for values, data in zip(x, raw, strict=True):
            memory = np.zeros(1 << 16, np.uint8)
            padded = np.zeros(rows * t, np.float32)
            padded[:count] = values
            whole = np.zeros((-(-rows // t) * t, t), np.float32)
            whole[:rows] = padded.reshape(rows, t)
            fp32 = images.pack_fp32(cfg, whole).reshape(-1)
            memory[1024:1024 + len(fp32)] = fp32
            code = assemble(cfg, [{"opcode": Opcode.CONVERT, "m": rows, "n": t, "x_fp32": 1,
                                   "x_addr": 1024, "x_pitch": 1, "y_addr": 1 << 15, "y_pitch": 1,
                                   "y_bfp": 1, "y_row": 1, "function": Function.NONE}])
            memory[:len(code)] = np.frombuffer(code, np.uint8)
            Machine(cfg, memory).run(0)
            assert (memory[1 << 15:(1 << 15) + len(data)] == data).all()
            assert not memory[(1 << 15) + len(data):].any()
            short = fp32[:output_bytes(cfg, count)][None]
            assert np.array_equal(decode_output(cfg, short, count)[0], values, equal_nan=True)
