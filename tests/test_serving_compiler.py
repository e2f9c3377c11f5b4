"""Serving programs: on golden the same bits as plain inference, and all on chip that fits."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from hw.config import Config, load
from hw.isa import INSTRUCTION_BYTES, WINDOW, Error, Opcode, XSource, YTarget
from hw.regs import OFFSETS
from sw.compiler.inference import InferencePlan
from sw.compiler.network import Linear, Network, perceptron
from sw.compiler.planner import PlanError
from sw.compiler.serving import ServingPlan
from sw.compiler.share import Share
from sw.golden.decode import decode
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
from sw.nn.parameters import initial
from sw.runtime.tensors import write
from sw.runtime.trainer import Trainer, infer, one_hot

#: Slots of a bank that are no power of two; one bank; wide mantissas.
ODD = Config(tile=5, axi_width=64, spad_kib=8, acc_kib=8)
SINGLE = Config(tile=4, axi_width=256, spad_kib=8, spad_banks=1, acc_kib=2, mant_width=12)
PLANS = [(load("tiny"), [64, 32, 10], 4), (load("tiny"), [64, 32, 10], 16),
         (load("edge"), [64, 256, 256, 10], 32), (load("edge"), [20, 300], 7),
         (load("small45"), [100, 90, 60, 10], 50), (ODD, [13, 22, 9, 31, 3], 12),
         (SINGLE, [9, 6, 14, 5], 3), (load("tiny"), [9] * 16, 2)]
IDS = [f"T{cfg.tile}-{'-'.join(map(str, sizes[:5]))}-{batch}" for cfg, sizes, batch in PLANS]
plans = pytest.mark.parametrize(("cfg", "sizes", "batch"), PLANS, ids=IDS)


def instructions(plan, at):
    raw = plan.image()[at:]
    result = []
    while not result or result[-1]["opcode"] != Opcode.END.value:
        result.append(decode(raw[len(result) * INSTRUCTION_BYTES:][:INSTRUCTION_BYTES]))
    return result


def slots(window):
    return range(window["base"], window["base"] + (1 << window["h_log2"] + window["w_log2"]))


def region(share):
    return {"spad_region": (share.spad[0], share.spad[-1]),
            "acc_region": (share.acc[0], share.acc[-1])}


def prepared(plan, parameters):
    """The inference context of the golden model with parameters and their BFP copies."""
    memory = plan.image()
    for name in plan.parameters:
        write(plan.cfg, memory, plan.places[name], parameters[name])
    machine = Machine(plan.cfg, memory, inference=True, **region(plan.share))
    assert machine.run(plan.prepare).error is Error.NONE
    return machine


def post(plan, machine, x, first=0):
    """Write the inputs of requests from number `first` on; their descriptors."""
    requests = []
    for number, raw in enumerate(encode_input(plan.cfg, x), first):
        at = plan.input(number)
        machine.memory[at:at + len(raw)] = raw
        requests.append(Request(at, plan.output(number), number))
    return requests


def outputs(plan, machine, requests):
    count = output_bytes(plan.cfg, plan.network.outputs)
    raw = np.array([machine.memory[r.output:r.output + count] for r in requests])
    return decode_output(plan.cfg, raw, plan.network.outputs)


@plans
def test_requests_get_what_inference_computes(cfg, sizes, batch):
    """Bit for bit, for every size of a batch."""
    network, rng = perceptron(sizes), np.random.default_rng(3)
    parameters = initial(network, 1)
    for name, value in parameters.items():
        if name.startswith("bias"):
            value[...] = rng.standard_normal(value.shape)
    plan = ServingPlan(cfg, network, batch)
    machine = prepared(plan, parameters)
    server = Server(machine, Service(*plan.service))
    x = rng.standard_normal((batch, network.inputs)).astype(np.float32)
    reference = InferencePlan(cfg, network, batch, batch, rows=True)
    expected = infer(reference, parameters, x, "golden")[0]
    for count in {*range(1, min(batch, 8) + 1), batch - 1, batch} - {0}:
        requests = post(plan, machine, x[:count], first=count)
        assert server.serve(requests, [count]) == [Status.OK] * count
        got = outputs(plan, machine, requests)
        assert np.array_equal(got.view(np.uint32), expected[:count].view(np.uint32))


@plans
def test_weights_are_read_once(cfg, sizes, batch):
    network = perceptron(sizes)
    plan = ServingPlan(cfg, network, batch)
    machine = prepared(plan, initial(network, 1))
    server = Server(machine, Service(*plan.service))
    x = np.ones((batch, network.inputs), np.float32)
    moved = []
    for _ in range(2):
        server.serve(post(plan, machine, x))
        moved.append({name: count for name, count in server.counters.items()
                      if name.startswith(("READ_", "WRITE_")) and count})
    beats = sum(cfg.image_beats(True, min(cfg.tile, place.rows - top)) * place.pitch
                for name, place in plan.places.items() if name.startswith("weights_bfp")
                for top in range(0, place.rows, cfg.tile))
    assert moved[0]["READ_W"] == beats * cfg.beat_bytes
    again = {name: count - moved[0][name] for name, count in moved[1].items()}
    assert again["READ_W"] == again["READ_BIAS"] == again["READ_PROGRAM"] == 0
    biases = sum(-(-n // cfg.tile) for n in sizes[1:])
    assert moved[0]["READ_BIAS"] == biases * cfg.image_beats(False, 1) * cfg.beat_bytes
    assert again["READ_X"] == batch * input_bytes(cfg, network.inputs)
    assert again["WRITE_Y"] == batch * output_bytes(cfg, network.outputs)
    assert set(moved[1]) == {"READ_W", "READ_PROGRAM", "READ_X", "READ_BIAS", "READ_REQUEST",
                             "WRITE_Y", "WRITE_REQUEST"}


@plans
def test_everything_has_a_window_of_its_own(cfg, sizes, batch):
    plan = ServingPlan(cfg, perceptron(sizes), batch)
    *layers, _ = instructions(plan, plan.program)
    first, last = layers[0]["x_window"], layers[-1]["y_window"]
    assert (plan.service.input_window, plan.service.output_window) == \
        tuple({name: window[name] for name in ("base", "h_log2", "w_log2")}
              for window in (first, last))
    buffers = range(slots(first).start, slots(first).start + 2 * len(slots(first)))
    spad = [buffers, *(slots(f["w_window"]) for f in layers),
            *(slots(f["x_window"]) for f in layers[1:])]
    used = [s for window in spad for s in window]
    assert len(used) == len(set(used))
    assert set(used) <= {s for bank in plan.share.banks(cfg) for s in bank}
    assert plan.share.spad == range(max(used) + 1)
    for f in layers:
        for name, rows, cols in (("x", "m", "k"), ("w", "k", "n")):
            window = f[f"{name}_window"]
            assert f[rows] <= cfg.tile << window["h_log2"]
            assert f[cols] <= cfg.tile << window["w_log2"]
    # Results on their way, biases and outputs have slots of their own.
    passing = {s for f in layers[:-1] for s in slots(f["y_window"])}
    biases = [s for f in layers for s in slots(f["e_window"])]
    for f in layers:
        assert f["n"] <= cfg.tile**2 * len(slots(f["e_window"])) <= 4 * cfg.tile**2
    assert len(biases) == len(set(biases))
    biases, outputs = set(biases), set(slots(last))
    assert all(len(slots(f["y_window"])) >= 2 for f in layers[:-1] if f["n"] > cfg.tile)
    assert not passing & biases
    assert not (passing | biases) & outputs
    assert passing | biases | outputs == set(plan.share.acc)
    for f in layers[:-1]:
        block = [f[b] or -(-f[d] // cfg.tile) for b, d in (("bm", "m"), ("bn", "n"))]
        assert block[0] * block[1] <= len(slots(f["y_window"]))
        assert f["bk"] == 0


@pytest.mark.parametrize(("name", "sizes", "batch"), [
    ("edge", [64, 256, 256, 10], 16), ("edge", [64, 256, 256, 10], 32),
    ("edge", [64, 256, 256, 10], 64), ("tiny", [64, 32, 10], 4), ("tiny", [64, 32, 10], 8),
    ("tiny", [64, 32, 10], 16), ("large128", [784, 256, 10], 128)])
def test_operands_have_banks_of_their_own(name, sizes, batch):
    cfg = load(name)
    plan = ServingPlan(cfg, perceptron(sizes), batch)
    for f in instructions(plan, plan.program)[:-1]:
        x, w = ({s >> cfg.slot_index_bits for s in slots(f[f"{n}_window"])} for n in "xw")
        assert not x & w
    left = sum(map(len, plan.rest.banks(cfg))), len(plan.rest.acc)
    least = {"edge": (440, 36), "tiny": (128, 29), "large128": (256, 24)}[name]
    assert left >= least


def test_layers_follow_one_another():
    plan = ServingPlan(load("tiny"), perceptron([9, 8, 7, 6]), 5)
    *layers, end = instructions(plan, plan.program)
    assert end["opcode"] == Opcode.END.value
    assert [f["x_source"] for f in layers] == \
        [XSource.REQUEST.value, XSource.CHIP.value, XSource.CHIP.value]
    assert [f["y_target"] for f in layers] == \
        [YTarget.CHIP.value, YTarget.CHIP.value, YTarget.ACC.value]
    for below, above in pairwise(layers):
        assert below["dw_window"] == above["x_window"]
        assert (below["y_bfp"], below["y_row"]) == (1, 1)
    assert [f["w_keep"] for f in layers] == [1, 2, 3]
    assert all(f["run_m"] and f["w_independent"] and f["dy_independent"] for f in layers)
    assert {f["opcode"] for f in instructions(plan, plan.prepare)} == \
        {Opcode.CONVERT.value, Opcode.END.value}


def test_registers_say_where_things_are():
    plan = ServingPlan(load("tiny"), perceptron([64, 32, 10]), 16, ring_log2=3)
    registers = plan.registers
    assert set(registers) <= set(OFFSETS)
    assert all(isinstance(value, int) and 0 <= value < 1 << 32 for value in registers.values())
    assert registers["INFERENCE_SPAD_REGION"] == plan.share.spad[-1] << 16
    assert registers["INFERENCE_ACC_REGION"] == plan.share.acc[-1] << 16
    assert (registers["REQUEST_RING"], registers["COMPLETION_RING"]) == (plan.entry(0),
                                                                         plan.completion(0))
    assert (registers["RING_LOG2"], registers["BATCH_MAX"]) == (3, 16)
    assert (registers["REQUEST_INPUTS"], registers["REQUEST_OUTPUTS"]) == (64, 10)
    assert registers["INFERENCE_PROGRAM_ADDR"] == plan.service.program == plan.program
    assert registers["INFERENCE_REGION_SIZE"] == plan.size == len(plan.image())
    for name in ("input_window", "output_window"):
        window = WINDOW.from_bits(registers[name.upper()])
        assert {part: getattr(window, part) for part in ("base", "h_log2", "w_log2")} \
            == getattr(plan.service, name)


def test_what_lies_in_the_region_does_not_overlap():
    cfg = load("edge")
    plan = ServingPlan(cfg, perceptron([300, 40, 270]), 4, ring_log2=2)
    spans = [(p.addr, -(-p.rows // cfg.tile) * p.pitch * cfg.image_bytes(p.bfp))
             for p in plan.places.values()]
    spans += [(at(number), size) for number in range(4) for at, size in (
        (plan.entry, cfg.entry_bytes), (plan.completion, cfg.entry_bytes),
        (plan.input, input_bytes(cfg, 300)), (plan.output, output_bytes(cfg, 270)))]
    spans += [(at, len(instructions(plan, at)) * INSTRUCTION_BYTES)
              for at in (plan.prepare, plan.program)]
    spans.sort()
    assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))
    assert sum(spans[-1]) <= plan.size
    assert all(addr % cfg.beat_bytes == 0 for addr, _ in spans)
    for at in (plan.entry, plan.completion, plan.input, plan.output):
        assert at(5) == at(1) != at(0)


@pytest.mark.parametrize(("cfg", "batch"), [(load("tiny"), 4), (load("tiny"), 16), (ODD, 4)])
def test_training_fits_beside(cfg, batch, monkeypatch):
    """With the slots that are left, and no others, training computes the same as with all."""
    network = perceptron([20, 16, 10])
    plan = ServingPlan(cfg, network, batch)
    assert plan.rest.spad.start == plan.share.spad.stop
    # A half of the accumulator each, if it is enough.
    assert plan.rest.acc.start == max(plan.share.acc.stop, cfg.acc_slots // 2)
    whole = Share.whole(cfg)
    assert (plan.rest.spad.stop, plan.rest.acc.stop) == (whole.spad.stop, whole.acc.stop)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((21, 20)).astype(np.float32)
    targets, results = one_hot(rng.integers(0, 10, 21), 10), []
    for share in (plan.rest, whole):
        monkeypatch.setattr("sw.runtime.backends.Machine", partial(Machine, **region(share)))
        trainer = Trainer(cfg, network, batch=8, samples=21, share=share)
        trainer.set_parameters(initial(network, 1))
        trainer.run_epoch(0, x, targets, learning_rate=0.1)
        results.append(trainer.parameters() | {"outputs": trainer.evaluate(x)})
    for name, value in results[0].items():
        assert np.array_equal(value, results[1][name])


def test_capacity_follows_array_and_bus():
    cfg, network = load("edge"), perceptron([64, 256, 256, 10])
    operations = 4 * 16 + 16 * 16 + 16
    one, two = (ServingPlan(cfg, network, batch).capacity for batch in (16, 32))
    assert operations * 16 < one < 1.2 * operations * 16
    assert 2 * operations * 16 < two < 2.2 * operations * 16


@pytest.mark.parametrize(("cfg", "network", "batch", "options", "message"), [
    (load("tiny"), perceptron([4, 3]), 0, {}, "batch_max must be 1..128, not 0"),
    (load("tiny"), perceptron([4, 3]), 129, {}, "batch_max must be 1..128, not 129"),
    (load("tiny"), perceptron([4, 3]), 1, {"ring_log2": 8}, "ring_log2 must be 0..7, not 8"),
    (load("tiny"), Network((Linear(4, 4),) * 16), 1, {},
     "a network that is served must have at most 15 layers, not 16"),
    (load("tiny", ["spad_kib=4"]), perceptron([64, 32, 10]), 16, {},
     "batches of 16 take 320 scratchpad slots (128 of them in one window), training at least 4 "
     "more; there are 256 in 4 banks, each window in one: spad_kib=8 is enough, or a smaller "
     "batch_max or network"),
    (load("tiny"), perceptron([5000, 5000]), 1, {},
     "batches of 1 take 4198400 scratchpad slots (4194304 of them in one window), training at "
     "least 4 more; there are 512 in 4 banks, each window in one: no spad_kib is enough, or a "
     "smaller batch_max or network"),
    (load("tiny"), perceptron([8, 64]), 16, {},
     "batches of 16 take 68 accumulator slots, training at least 4 more; there are 64: acc_kib "
     "must be at least 5, or a smaller batch_max or network"),
    (load("tiny"), perceptron([8, 65, 4]), 4, {},
     "layer 1 has 17 tiles of biases; there is room on chip for at most 16 of a layer: 64 "
     "outputs"),
    (load("tiny", ["acc_kib=1"]), perceptron([8, 8, 32]), 4, {},
     "batches of 4 take 13 accumulator slots, training at least 4 more; there are 16: acc_kib "
     "must be at least 2, or a smaller batch_max or network")])
def test_mistakes_are_named(cfg, network, batch, options, message):
    with pytest.raises(PlanError) as error:
        ServingPlan(cfg, network, batch, **options)
    assert str(error.value) == message
