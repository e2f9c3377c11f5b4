"""Plans are legal on every machine, keep what the architecture promises, and choose well."""

import numpy as np
import pytest

from hw.config import Config, load
from hw.isa import Error, Opcode, Order
from sw.compiler.assembler import instruction
from sw.compiler.cost import Bus
from sw.compiler.planner import Layer, PlanError, paper_order, plan
from sw.compiler.reuse import best_window, visits
from sw.compiler.share import Share
from sw.compiler.splits import splits
from sw.golden.decode import check, decode
from sw.golden.traffic import trace

MACHINES = [
    load("tiny"), load("edge"), load("small45"),
    Config(tile=16, spad_kib=1, spad_banks=1, acc_kib=2, acc_banks=2),    # 4 and 2 slots
    Config(tile=16, spad_kib=1, spad_banks=2, acc_kib=2, acc_banks=2),
    Config(tile=16, spad_kib=1, spad_banks=4, acc_kib=2, acc_banks=2),
    Config(tile=13, spad_kib=1, spad_banks=2, acc_kib=3, acc_banks=2),    # 3 slots a bank
    Config(tile=5, mant_width=12, spad_kib=4, spad_banks=16, acc_kib=2, acc_banks=8),
    Config(tile=4, spad_kib=4, spad_banks=8, acc_kib=1, acc_banks=2),
]


def fields_of(cfg, layer, plan_):
    return decode(np.frombuffer(instruction(cfg, **plan_.fields), np.uint8))


def bytes_of(cfg, layer, **how):
    return trace(cfg, fields_of(cfg, layer, plan(cfg, layer, **how))).counters()


def windows(cfg, fields, names):
    return [range(w["base"], w["base"] + (1 << w["h_log2"] + w["w_log2"]))
            for w in (fields[f"{name}_window"] for name in names)]


@pytest.mark.parametrize("cfg", MACHINES, ids=lambda c: f"T{c.tile}b{c.spad_banks}")
@pytest.mark.parametrize("order", [None, *Order])
def test_plans_are_legal_and_windows_disjoint(cfg, order):
    rng = np.random.default_rng(1)
    for _ in range(4):
        m, k, n = (int(rng.integers(1, 12 * cfg.tile)) for _ in range(3))
        layer = Layer(opcode=Opcode.GEMM if order is None else Opcode.GRAD, m=m, k=k, n=n)
        name = order.name.lower().replace("_", "-") if order else "auto"
        fields = fields_of(cfg, layer, plan(cfg, layer, order=name))
        assert check(cfg, fields) is Error.NONE
        spad = ["x", "w"] if order is None else ["x", "w", "dy"]
        spad += ["dy2"] if order is Order.INTERLEAVED else []
        for names in (spad, ["y"] if order is None else ["y", "dw"]):
            used = [s for w in windows(cfg, fields, names) for s in w]
            assert len(used) == len(set(used))


@pytest.mark.parametrize("limit", [2, 3, 5, 44])
@pytest.mark.parametrize("first", [0, 7])
def test_only_the_given_accumulator_slots_are_used(first, limit):
    cfg = load("tiny")
    share = Share(Share.whole(cfg).spad, range(first, first + limit))
    for layer in (Layer(opcode=Opcode.GEMM, m=90, k=30, n=70),
                  Layer(opcode=Opcode.GRAD, m=90, k=30, n=70),
                  Layer(opcode=Opcode.GRAD, m=90, k=30, n=70, y_off=True),
                  Layer(opcode=Opcode.GRAD, m=90, k=30, n=70, dw_off=True)):
        fields = fields_of(cfg, layer, plan(cfg, layer, order="dx-major", share=share))
        assert check(cfg, fields) is Error.NONE
        names = [name for name, off in (("y", layer.y_off), ("dw", layer.dw_off)) if not off]
        names = ["y"] if layer.opcode is Opcode.GEMM else names
        used = [s for w in windows(cfg, fields, names) for s in w]
        assert len(used) == len(set(used))
        assert set(used) <= set(share.acc)


SHARES = [(load("edge"), range(552, 1024)), (load("edge"), range(512, 1024)),
          (load("edge"), range(300, 1024)), (load("edge"), range(100, 1024)),
          (load("edge"), range(900, 1024)), (load("edge"), range(512, 552)),
          (load("small45"), range(300, 481)), (load("small45"), range(60, 340)),
          (load("tiny"), range(30, 37)),
          (Config(tile=13, spad_kib=1, spad_banks=2, acc_kib=3, acc_banks=2), range(1, 7))]


@pytest.mark.parametrize(("cfg", "spad"), SHARES, ids=str)
@pytest.mark.parametrize("order", [None, *Order])
def test_plans_keep_to_their_share(cfg, spad, order):
    """And operands that are read together have banks of their own if the share has two."""
    share = Share(spad, range(1, cfg.acc_slots))
    name = order.name.lower().replace("_", "-") if order else "auto"
    m, k, n = (factor * cfg.tile - 1 for factor in (19, 20, 18))
    layer = Layer(opcode=Opcode.GRAD if order else Opcode.GEMM, m=m, k=k, n=n)
    fields = fields_of(cfg, layer, plan(cfg, layer, order=name, share=share))
    assert check(cfg, fields) is Error.NONE
    streamed = {"dy", "dy2"} if order else {"x"}
    names = ["x", "w"] if order is None else ["x", "w", "dy"]
    names += ["dy2"] if order is Order.INTERLEAVED else []
    slots = {n: set(windows(cfg, fields, [n])[0]) for n in names}
    used = [s for n in names for s in slots[n]]
    assert len(used) == len(set(used))
    assert set(used) <= {s for bank in share.banks(cfg) for s in bank}
    banks = {n: {s >> cfg.slot_index_bits for s in slots[n]} for n in names}
    if len(share.banks(cfg)) >= 2:
        for one in streamed & set(names):
            for other in set(names) - streamed:
                assert not banks[one] & banks[other]


@pytest.mark.parametrize("opcode", [Opcode.GEMM, Opcode.GRAD])
def test_half_of_the_scratchpad_is_enough(opcode):
    """A training step's operations take about as long, and use most of the share."""
    cfg = load("edge")
    share = Share(range(552, 1024), range(24, 64))
    for m, k, n in ((64, 256, 256), (64, 64, 256)):
        layer = Layer(opcode=opcode, m=m, k=k, n=n, y_bfp=True)
        assert plan(cfg, layer, share=share).clocks < 1.1 * plan(cfg, layer).clocks
    layer = Layer(opcode=opcode, m=900, k=900, n=900)
    fields = fields_of(cfg, layer, plan(cfg, layer, order="dx-major", share=share))
    names = ["x", "w"] if opcode is Opcode.GEMM else ["x", "w", "dy"]
    assert sum(map(len, windows(cfg, fields, names))) >= 256


def test_halves_of_a_share_end_at_banks():
    cfg = load("edge")
    assert Share.whole(cfg).quarters(cfg) == [range(256 * i, 256 * i + 256) for i in range(4)]
    assert Share(range(552, 1024), range(8)).quarters(cfg) \
        == [range(552, 660), range(660, 768), range(768, 896), range(896, 1024)]
    assert Share(range(300, 1024), range(8)).quarters(cfg) \
        == [range(300, 512), range(512, 768), range(768, 896), range(896, 1024)]
    small = load("small45")  # 97 slots a bank, numbers in steps of 128
    assert Share(range(300, 481), range(8)).banks(small) == [range(300, 353), range(384, 481)]
    assert Share.whole(small).banks(small) == [range(128 * i, 128 * i + 97) for i in range(4)]


def test_either_half_is_for_either_operand():
    """Where halves are of different sizes; X and W in one bank, dY in the other."""
    cfg, share = load("edge"), Share(range(552, 1024), range(8))
    assert splits(cfg, share, Opcode.GEMM, Order.SEQUENTIAL) \
        == (((552, 216), (768, 256)), ((768, 256), (552, 216)))
    assert splits(cfg, share, Opcode.GRAD, Order.DX_MAJOR) \
        == (((552, 108), (660, 108), (768, 256)), ((768, 128), (896, 128), (552, 216)))
    assert splits(cfg, Share(range(512, 1024), range(8)), Opcode.GEMM, Order.SEQUENTIAL) \
        == (((512, 256), (768, 256)),)


@pytest.mark.parametrize(("spad", "acc", "found"), [
    (range(5, 8), range(8), "not 3 and 8"), (range(8), range(1), "not 8 and 1"),
    (range(0), range(8), "not 0 and 8"), (range(127, 131), range(8), "not 4 and 8")])
def test_shares_that_are_too_small_are_named(spad, acc, found):
    cfg = load("tiny")
    with pytest.raises(PlanError) as error:
        plan(cfg, Layer(opcode=Opcode.GEMM, m=9, k=9, n=9), share=Share(spad, acc))
    assert str(error.value) == "a share must have at least 4 scratchpad slots, 2 in each of two " \
        f"banks, and 2 accumulator slots, {found}"


def test_an_output_that_fits_is_never_spilled():
    """dX of 2 x 8 tiles stays in the accumulator as a whole, though half the slots are fewer."""
    cfg = load("tiny")
    layer = Layer(opcode=Opcode.GRAD, m=8, k=32, n=16)
    share = Share(range(256), range(24))
    assert bytes_of(cfg, layer, order="sequential", share=share)["WRITE_PARTIAL"] == 0


@pytest.mark.parametrize("banks", [2, 4, 8])
def test_operands_that_are_read_together_have_their_own_banks(banks):
    cfg = Config(spad_banks=banks)
    index = cfg.slot_index_bits

    def used(layer, **how):
        fields = fields_of(cfg, layer, plan(cfg, layer, **how))
        return {n: {s >> index for s in windows(cfg, fields, [n])[0]} for n in ("x", "w", "dy")}

    gemm = used(Layer(opcode=Opcode.GEMM, m=900, k=900, n=900))
    assert not gemm["x"] & gemm["w"]
    for order in ("sequential", "dx-major", "dw-major"):
        grad = used(Layer(opcode=Opcode.GRAD, m=900, k=900, n=900), order=order)
        assert not grad["x"] & grad["dy"]
        assert not grad["w"] & grad["dy"]


@pytest.mark.parametrize("order", ["dx-major", "dw-major"])
def test_fused_orders_read_dy_once(order):
    """And with everything resident, every operand once and nothing spilled."""
    cfg = load("edge")
    counts = bytes_of(cfg, Layer(opcode=Opcode.GRAD, m=128, k=64, n=64), order=order)
    assert counts["READ_DY"] == 8 * 4 * cfg.bfp_bytes
    assert counts["READ_X"] == 8 * 4 * cfg.bfp_bytes
    assert counts["READ_W"] == 4 * 4 * cfg.bfp_bytes
    assert counts["READ_PARTIAL"] == counts["WRITE_PARTIAL"] == 0


def test_auto_is_no_slower_than_any_order():
    cfg = load("tiny")
    for m, k, n in ((40, 40, 40), (200, 16, 24), (16, 100, 20)):
        layer = Layer(opcode=Opcode.GRAD, m=m, k=k, n=n)
        bus = Bus()
        costs = {o: plan(cfg, layer, order=o, bus=bus).cost(cfg, bus)
                 for o in ("sequential", "interleaved", "dx-major", "dw-major", "paper", "auto")}
        assert costs["auto"] == min(costs.values())


@pytest.mark.parametrize(("m", "k", "n", "order"), [
    (64, 64, 255, Order.INTERLEAVED), (64, 64, 256, Order.DX_MAJOR),
    (64, 256, 64, Order.DW_MAJOR), (256, 64, 64, Order.DX_MAJOR),
    (10, 256, 256, Order.DX_MAJOR)])
def test_order_of_the_paper(m, k, n, order):
    assert paper_order(m, k, n) is order
    layer = Layer(opcode=Opcode.GRAD, m=m, k=k, n=n)
    assert plan(load("edge"), layer, order="paper").fields["order"] is order


def test_blocks_are_taken_as_told():
    layer = Layer(opcode=Opcode.GEMM, m=200, k=200, n=200)
    fields = plan(load("edge"), layer, blocks=(3, 99, 0)).fields
    assert (fields["bm"], fields["bn"], fields["bk"]) == (3, 0, 0)


@pytest.mark.parametrize(("how", "message"), [
    ({"order": "best"}, "order must be auto, paper, sequential, interleaved, dx-major, dw-major, "
                        "not 'best'"),
    ({"blocks": (1, -1, 1)}, "blocks must be 0..65535 tiles, not 1 -1 1")])
def test_mistakes_are_named(how, message):
    with pytest.raises(PlanError) as error:
        plan(load("tiny"), Layer(opcode=Opcode.GRAD, m=9, k=9, n=9), **how)
    assert str(error.value) == message


def test_planned_clocks_follow_the_array():
    """An edge machine is bound by its array on a cube of 256, with results in BFP."""
    cfg = load("edge")
    layer = Layer(opcode=Opcode.GEMM, m=256, k=256, n=256, y_bfp=True)
    clocks = plan(cfg, layer).clocks
    assert 65536 < clocks < 66500
    assert plan(cfg, layer, bus=Bus(bytes_per_cycle=2)).clocks > 66500


def test_closed_form_counts_reloads():
    loops = [("k", 1), ("m", 4.0), ("n", 2.0), ("k", 3.0), ("n", 2.0), ("m", 1.0)]
    assert visits("mk", loops, (1, 4)) == 12          # a row of X stays for all of N
    assert visits("mk", loops, (1, 2)) == 24          # else it is read again for every block
    assert visits("kn", loops, (4, 4)) == 12          # W is resident
    assert visits("kn", loops, (4, 2)) == 48
    assert best_window("kn", [loops, loops], {"m": 4, "n": 4, "k": 3}, 16) == (12, (4, 4))
