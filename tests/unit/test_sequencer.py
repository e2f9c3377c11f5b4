"""The sequencer's commands against the golden model's trace, with units that finish at random."""

import random

import numpy as np
import pytest
from amaranth.sim import Simulator

from hw import config
from hw.control.commands import Destination
from hw.control.sequencer import Sequencer
from hw.isa import INSTRUCTION, Kind, Opcode, Order
from sw.compiler.assembler import instruction, window
from sw.golden.decode import decode
from sw.golden.traffic import trace

CFG = config.load("tiny", ["tile=2", "spad_kib=1", "acc_kib=1"])
EVENTS = ("load_done", "exec_read", "exec_done", "store_read", "store_done")


def fields(opcode, shape, seed, **extra):
    rng = random.Random(seed)
    m, n, k = (s * CFG.tile - rng.randrange(CFG.tile) for s in shape)

    def win(base):
        return window(base, rng.randrange(3), rng.randrange(3))

    return {
        "opcode": opcode.value, "m": m, "n": n, "k": k,
        "bm": rng.randrange(4), "bn": rng.randrange(4), "bk": rng.randrange(4),
        "x_addr": 0x0000, "w_addr": 0x10000, "dy_addr": 0x20000, "y_addr": 0x30000,
        "dw_addr": 0x40000, "y_part_addr": 0x50000, "dw_part_addr": 0x60000,
        **{f"{t}_pitch": rng.randrange(8, 12) for t in ("x", "w", "dy", "y", "dw", "y_part",
                                                        "dw_part")},
        "x_window": win(0), "w_window": win(64), "dy_window": win(128), "dy2_window": win(192),
        "y_window": win(0), "dw_window": win(32), "x_kind": 1, "y_kind": 3, **extra,
    }


def commands(dut, ctx, name):
    """One finished handshake of queue `name` in this clock, as a plain dictionary, or None."""
    port = getattr(dut, name)
    if not (ctx.get(port.valid) and ctx.get(port.ready)):
        return None
    p = ctx.get(port.p)
    flat = {f: p[f] for f in p.shape().members if f != "cmd"}
    cmd = p["cmd"]
    return {**flat, **{f: cmd[f] for f in cmd.shape().members}}


def run(programs, seed):
    """All commands of each instruction; asserts that none waits for a number still to come."""
    dut = Sequencer(CFG)
    logs = []

    async def bench(ctx):
        rng = random.Random(seed)
        issued = dict.fromkeys(("load", "exec", "store"), 0)
        done = dict.fromkeys(EVENTS, 0)
        limits = {"load_done": ("load", "load"), "exec_read": ("exec", "exec"),
                  "exec_done": ("exec", "exec_read"), "store_read": ("store", "store"),
                  "store_done": ("store", "store_read")}
        ctx.set(dut.region_size, 0xFFFFFFF0)
        log, waiting = None, list(programs)
        for _ in range(200000):
            if ctx.get(dut.ready) and not ctx.get(dut.start):
                if not waiting:
                    break
                f = waiting.pop(0)
                raw = int.from_bytes(instruction(CFG, Opcode(f["opcode"]), **{
                    key: value for key, value in f.items() if key != "opcode"}), "little")
                ctx.set(dut.instr, INSTRUCTION.from_bits(raw))
                for d in "mnk":
                    ctx.set(getattr(dut, f"count_{d}"), -(-f[d] // CFG.tile))
                    ctx.set(getattr(dut, f"rest_{d}"), (f[d] - 1) % CFG.tile + 1)
                ctx.set(dut.start, 1)
                log = {"load": [], "exec": [], "store": []}
                logs.append(log)
            else:
                ctx.set(dut.start, 0)
            for name in issued:
                ctx.set(getattr(dut, name).ready, rng.random() < 0.7)
            for name in issued:
                cmd = commands(dut, ctx, name)
                if cmd:
                    issued[name] += 1
                    for event in EVENTS:
                        if event in cmd:
                            assert cmd[event] <= issued[limits[event][0]] - (event[:4] == name[:4])
                    log[name].append(cmd)
            for event, (queue, before) in limits.items():
                most = issued[queue] if before == queue else done[before]
                if done[event] < most and (rng.random() < 0.2 or most - done[event] > 60):
                    done[event] += 1
            await ctx.tick()
            for event in EVENTS:
                ctx.set(getattr(dut, event), done[event])
        else:
            pytest.fail("the sequencer is stuck")

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
    return logs


def expected(f):
    raw = instruction(CFG, Opcode(f["opcode"]), **{k: v for k, v in f.items() if k != "opcode"})
    t = trace(CFG, decode(np.frombuffer(raw, np.uint8)))
    out = {False: [], True: []}
    for a in t.accesses:
        out[a.write] += [(int(w), a.kind, int(x)) for w, x in zip(a.when, a.addr, strict=True)]
    order = {w: [e[1:] for e in sorted(v, key=lambda e: e[0])] for w, v in out.items()}
    ops = [tuple(map(int, o)) for o in zip(t.dw, t.m, t.n, t.k, strict=True)]
    return order[False], order[True], ops


CASES = [(Opcode.GEMM, Order.SEQUENTIAL), (Opcode.CONVERT, Order.SEQUENTIAL),
         *((Opcode.GRAD, o) for o in Order)]


@pytest.mark.parametrize(("opcode", "order"), CASES, ids=lambda v: v.name.lower())
def test_commands_equal_the_trace(opcode, order):
    programs = []
    for seed, shape in enumerate([(1, 1, 1), (3, 2, 4), (2, 5, 3), (4, 4, 4)]):
        extra = {"order": order.value}
        if opcode is Opcode.GRAD:
            extra |= {"y_off": seed == 1, "dw_off": seed == 2, "dw_accumulate": seed == 3}
        programs.append(fields(opcode, shape, seed, **extra))
    for f, log in zip(programs, run(programs, 1), strict=True):
        loads, stores, ops = expected(f)
        assert [(Kind(c["kind"]), c["addr"]) for c in log["load"]] == loads
        assert [(Kind(c["kind"]), c["addr"]) for c in log["store"]] == stores
        assert len(log["exec"]) == len(ops)
        rows = {d: [CFG.tile] * (-(-f[d] // CFG.tile) - 1) + [(f[d] - 1) % CFG.tile + 1]
                for d in "mnk"}
        for c, (dw, m, _, k) in zip(log["exec"], ops, strict=True):
            assert c["rows"] == (rows["k"][k] if dw else rows["m"][m])
            assert c["a_col"] == dw
            assert c["b_col"] == (opcode is Opcode.GRAD and not dw)
        partial = {c["addr"] for c in log["store"] if c["kind"] == Kind.PARTIAL}
        for c in log["load"]:
            if c["kind"] == Kind.PARTIAL:
                assert c["dest"] == Destination.ACC
                assert c["addr"] in partial


def test_an_image_outside_the_region_is_refused():
    dut = Sequencer(CFG)

    async def bench(ctx):
        f = fields(Opcode.GEMM, (1, 1, 1), 0)
        raw = int.from_bytes(instruction(CFG, Opcode.GEMM, **{k: v for k, v in f.items()
                                                              if k != "opcode"}), "little")
        ctx.set(dut.instr, INSTRUCTION.from_bits(raw))
        for d in "mnk":
            ctx.set(getattr(dut, f"count_{d}"), 1)
            ctx.set(getattr(dut, f"rest_{d}"), 1)
        ctx.set(dut.region_size, 0x10000)  # W begins where the region ends
        for name in ("load", "exec", "store"):
            ctx.set(getattr(dut, name).ready, 1)
        while not ctx.get(dut.ready):
            await ctx.tick()
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for _ in range(100):
            if ctx.get(dut.bad_address):
                assert ctx.get(dut.bad_offset) == f["w_addr"]
                return
            assert not ctx.get(dut.exec.valid)
            await ctx.tick()
        pytest.fail("no error")

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
