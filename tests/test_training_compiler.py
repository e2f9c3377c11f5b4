"""Programs of training and inference: what runs side by side may, and every size works."""

import numpy as np
import pytest

from hw.config import Config, load
from hw.isa import INSTRUCTION_BYTES, PHASES, Function, Opcode
from sw.compiler import phases
from sw.compiler.inference import InferencePlan
from sw.compiler.layout import LayoutError
from sw.compiler.network import Linear, Network, NetworkError, perceptron
from sw.compiler.schedule import Command, dispatch
from sw.compiler.slots import SlotError, Slots
from sw.compiler.training import TrainingPlan
from sw.golden.decode import decode
from sw.golden.program import steps
from tests.overlap import conflicts, with_field

SMALLEST = Config(tile=16, spad_kib=1, spad_banks=4, acc_kib=4, acc_banks=2)  # 4 and 4 slots
FEW = Config(tile=4, spad_kib=1, acc_kib=1, axi_width=64)  # 16 accumulator slots


def found(plan, code=None):
    memory = plan.image()
    if code:
        memory[plan.program:plan.program + len(code)] = np.frombuffer(code, np.uint8)
    return list(conflicts(plan.cfg, memory, plan.program))


def instructions(plan):
    return [decode(np.frombuffer(plan.code, np.uint8)[at:at + INSTRUCTION_BYTES])
            for at in range(0, len(plan.code), INSTRUCTION_BYTES)]


def executed(plan):
    return [s for s in steps(plan.cfg, plan.image(), plan.program) if s.walk]


@pytest.mark.parametrize("cfg", [load("tiny"), load("edge"), load("small45"), load("large128"),
                                 SMALLEST, FEW], ids=lambda c: f"T{c.tile}a{c.acc_slots}")
@pytest.mark.parametrize("sizes", [(9, 5), (20, 33, 7), (30, 17, 40, 6, 10)], ids=str)
def test_what_runs_side_by_side_may(cfg, sizes):
    for loss, samples, rounding in (("cross-entropy", 41, "stochastic"), ("mse", 36, "even")):
        plan = TrainingPlan(cfg, perceptron(sizes, loss), 12, samples, order="dx-major",
                            rounding=rounding)
        assert found(plan) == []
    assert found(InferencePlan(cfg, perceptron(sizes), 12, 41, rows=True)) == []


@pytest.mark.parametrize("name", ["tiny", "edge", "small45", "large128"])
def test_updates_run_beside_the_array(name):
    """With a large batch beside the gradients of the next layer; with a small one, whose updates
    take longer, beside the next forward."""
    t = load(name).tile
    sizes = [5 * t, 5 * t, 5 * t, 10]

    def overlap(batch, number, step, opcode=Opcode.VECTOR, y_off=0):
        plan = TrainingPlan(load(name), perceptron(sizes), batch, 3 * batch, order="dx-major")
        return [f["overlap"] for f in instructions(plan)
                if f["phase"] == phases.phase(number, step) and f["opcode"] == opcode.value
                and f["y_off"] == y_off]

    assert overlap(40 * t, 3, "update") == overlap(40 * t, 2, "update") == [1]
    assert overlap(40 * t, 1, "update") == [0]
    assert overlap(t, 1, "forward", Opcode.GEMM)[0] >= 1


def test_no_overlap_can_be_raised():
    """What the compiler vouches for is all that it can: and the checker sees one step too far."""
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 11, 5]), 4, 12)
    raised = 0
    for index, f in enumerate(instructions(plan)):
        if f["opcode"] not in (Opcode.GEMM.value, Opcode.GRAD.value, Opcode.VECTOR.value):
            continue
        wrong = found(plan, with_field(plan.code, index, "overlap", f["overlap"] + 1))
        raised += any("memory" in text for text in wrong)
        most = found(plan, with_field(plan.code, index, "overlap", 15))
        assert not most or wrong
    assert raised >= 6


@pytest.mark.parametrize(("first", "second", "slots", "overlap"), [
    (({"x": "a"}, "b"), ({"x": "a"}, "c"), range(4, 8), 1),
    (({"x": "a"}, "b"), ({"x": "b"}, "c"), range(4, 8), 0),   # read after write
    (({"x": "a"}, "b"), ({"x": "d"}, "a"), range(4, 8), 0),   # write after read
    (({"x": "a"}, "b"), ({"x": "d"}, "b"), range(4, 8), 0),   # write after write
    (({"x": "a"}, "b"), ({"x": "a"}, "c"), range(3, 8), 0)])  # a common slot
def test_conflicts_forbid_overlap(first, second, slots, overlap):
    def command(opcode, tensors, slots):
        return Command(fields={"opcode": opcode}, reads=tensors[0], writes=(tensors[1],),
                       slots=slots, clocks=1.0, layer=1)

    for one, other in ((Opcode.GEMM, Opcode.VECTOR), (Opcode.VECTOR, Opcode.GRAD)):
        later = command(other, second, slots)
        dispatch([command(one, first, range(4)), later])
        assert later.overlap == overlap


def test_independent_flags_are_seen():
    """COLUMN_SUM writes the gradient that the bias's SGD reads."""
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 5]), 4, 4)
    listing = instructions(plan)
    index = next(i for i, f in enumerate(listing)
                 if f["function"] == Function.SGD.value and f["y_off"])
    assert not listing[index]["x_independent"]
    wrong = found(plan, with_field(plan.code, index, "x_independent", 1))
    assert wrong
    assert "is not independent of VECTOR COLUMN_SUM" in wrong[0]


def test_shared_slots_are_seen():
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 5]), 4, 4)
    index = next(i for i, f in enumerate(instructions(plan))
                 if f["function"] == Function.COLUMN_SUM.value)
    wrong = found(plan, with_field(plan.code, index, "y_window", 4 << 20))
    assert any("accumulator slots" in text for text in wrong)


def test_every_rounded_result_has_a_salt_of_its_own():
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 7, 5]), 4, 22, rounding="stochastic")
    salts = [s.fields["salt"] for s in executed(plan) if s.fields["stochastic"]]
    assert len(salts) == len(set(salts)) == 6 * (2 + 3 + 3)


def test_every_batch_is_used_once():
    """Addresses follow the batches, the smaller last one too, forward and in the gradient."""
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 5]), 6, 20)
    stride = plan.batches["x"].stride
    first = plan.batches["x"].addr
    uses = [(s.fields["x_addr"], s.fields["m"]) for s in executed(plan)
            if s.fields["opcode"] == Opcode.GEMM.value and s.fields["k"] == 12]
    assert uses == [(first + i * stride, 6) for i in range(3)] + [(first + 3 * stride, 2)]
    grads = [s.fields["x_addr"] for s in executed(plan)
             if s.fields["opcode"] == Opcode.GRAD.value and s.fields["k"] == 12]
    assert grads == [addr for addr, _ in uses]
    for operand, name in (("w", "targets"), ("dw", "losses")):
        place = plan.batches[name]
        assert [s.fields[f"{operand}_addr"] for s in executed(plan)
                if s.fields["function"] == Function.SOFTMAX.value] \
            == [place.addr + i * place.stride for i in range(4)]


def test_phases_have_names():
    names = phases.names(3)
    assert names[0] == "prepare"
    assert names[1] == "loss"
    assert names[phases.phase(2, "gradient")] == "layer 2 gradient"
    deep = phases.names(14)
    assert len(deep) == PHASES
    assert phases.phase(14, "update") == phases.phase(10, "update") == PHASES - 1
    assert deep[PHASES - 1] == "layers 10 to 14 update"
    plan = TrainingPlan(load("tiny"), perceptron([5] * 13), 2, 2, order="dx-major")
    assert {s.fields["phase"] for s in executed(plan)} == set(plan.phases)


def test_places_are_named():
    plan = TrainingPlan(load("tiny"), perceptron([12, 9, 5]), 6, 20)
    place, x = plan.places["weights_2"], plan.batches["x"]
    image = plan.cfg.fp32_bytes
    assert plan.locate(place.addr + (2 * place.pitch + 1) * image + 7) \
        == "weights_2, tile (2, 1), byte 7"
    assert plan.locate(x.addr + 3 * x.stride) == "x, batch 3, tile (0, 0), byte 0"
    assert plan.locate(plan.program + 130) == "the program, instruction 1"


def test_slots_are_disjoint_where_there_are_enough():
    for kib in range(1, 9):
        total = 16 * kib
        for share in (range(total), range(total // 2, total), range(3, total)):
            slots = Slots.of(Config(tile=4, acc_kib=kib, acc_banks=4, axi_width=64), share)
            assert slots.array.start == share.start
            assert slots.array.stop == slots.epilogue.start
            assert share.start <= slots.staging.start
            assert slots.staging.stop <= share.stop
            if len(share) >= 12:
                assert slots.epilogue.stop == slots.staging.start
                assert slots.staging.stop == share.stop
            assert len(slots.staging) >= 4


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: perceptron([5]), NetworkError,
     "a network must have at least two sizes: inputs and outputs"),
    (lambda: Network(()), NetworkError, "a network must have at least one layer"),
    (lambda: Linear(0, 4), NetworkError, "inputs of a layer must be 1..1048575, not 0"),
    (lambda: Linear(4, 1 << 20), NetworkError,
     "outputs of a layer must be 1..1048575, not 1048576"),
    (lambda: Network((Linear(4, 5), Linear(6, 7))), NetworkError,
     "layer 2 must have 5 inputs, the outputs of the layer before it, not 6"),
    (lambda: Network((Linear(4, 5, relu=True),)), NetworkError,
     "the last layer must have no ReLU: the loss takes its outputs"),
    (lambda: perceptron([4, 5], "hinge"), NetworkError,
     "loss must be cross-entropy or mse, not 'hinge'"),
    (lambda: TrainingPlan(load("tiny"), perceptron([4, 5]), 0, 5), NetworkError,
     "batch must be 1..1048575, not 0"),
    (lambda: TrainingPlan(load("tiny"), perceptron([4, 5]), 4, 0), NetworkError,
     "samples must be 1..1048575, not 0"),
    (lambda: TrainingPlan(load("tiny"), perceptron([4, 5]), 4, 8, rounding="up"), NetworkError,
     "rounding must be even or stochastic, not 'up'"),
    (lambda: TrainingPlan(Config(tile=16, acc_kib=2, acc_banks=2), perceptron([4, 5]), 4, 8),
     SlotError, "networks need 4 accumulator tiles: acc_kib must be at least 4, not 2"),
    (lambda: InferencePlan(load("tiny"), perceptron([200_000, 5]), 200_000, 200_000), LayoutError,
     "matrices must fit into 4 GiB, these take "),
])
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


