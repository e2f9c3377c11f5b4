"""`python -m sw op`: run one operation on a backend."""

import argparse
import sys
from pathlib import Path

import numpy as np

from hw.config import DIM_BITS, Config, load
from hw.generate import add_config_arguments
from hw.isa import Kind, Opcode
from hw.regs import COUNTERS
from sw.commands.arguments import check_ranges, check_writable
from sw.compiler.cost import Bus
from sw.compiler.planner import ORDERS
from sw.files import UsageError, read_arrays, replacing, write_json
from sw.runtime.backends import BACKENDS, Timing, run
from sw.runtime.operation import Operation, Request

STALLS = tuple(name for name, _ in COUNTERS if name.startswith("ARRAY_"))


def add_arguments(commands) -> None:
    """Add `op` to the subparsers `commands`."""
    op = commands.add_parser("op", help="run one GEMM or GRAD and check it")
    op.add_argument("operation", choices=("gemm", "grad"), help="Y = X W, or dX and dW of it")
    op.add_argument("--shape", nargs=3, type=int, required=True, metavar=("M", "K", "N"),
                    help="X is M x K, W is K x N")
    add_config_arguments(op)
    op.add_argument("--order", choices=(*ORDERS, "auto", "paper"),
                    help="grad: order of the tile operations (default auto: by cost)")
    op.add_argument("--blocks", nargs=3, type=int, metavar=("BM", "BN", "BK"),
                    help="blocks in tiles, 0 is all (default: by cost)")
    op.add_argument("--exponents", choices=("square", "row"), default="square",
                    help="one exponent per tile, or per row of X's and Y's tiles (gemm)")
    op.add_argument("--rounding", choices=("even", "stochastic"), default="even",
                    help="of numbers that become BFP: to even, or stochastic (default even)")
    op.add_argument("--result", choices=("fp32", "bfp"), default="fp32",
                    help="format of Y, or of dX and dW, in memory (default fp32)")
    op.add_argument("--backend", choices=BACKENDS, default="golden",
                    help="rtl is also compared with golden, word for word")
    op.add_argument("--seed", type=int, default=0,
                    help="of random matrices, stochastic rounding and stalls")
    op.add_argument("--stall", type=float, default=0.0, metavar="P",
                    help="rtl: probability that a bus channel pauses in a clock")
    op.add_argument("--latency", type=int, default=100, metavar="L", help="memory latency, clocks")
    op.add_argument("--bytes-per-cycle", type=int, default=0, metavar="B",
                    help="memory bandwidth (default 0: no limit)")
    op.add_argument("--data", metavar="IN.npz", help="matrices X, W and dY instead of random ones")
    op.add_argument("--out", metavar="OUT.npz", help="write Y, or dX and dW, as float32")
    op.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is stdout")
    op.set_defaults(run=run_command)


def _check(args: argparse.Namespace):
    """Refuse what argparse cannot see."""
    for name, size in zip("MKN", args.shape, strict=True):
        if not 1 <= size < 1 << DIM_BITS:
            raise UsageError(f"{name} must be 1..{(1 << DIM_BITS) - 1}, not {size}")
    if args.operation == "grad" and args.exponents == "row":
        raise UsageError("--exponents row is for gemm: grad reads its operands by columns too")
    if args.operation == "gemm" and args.order:
        raise UsageError("--order is for grad: gemm has one order")
    check_ranges(args, ("seed", 0, 0xFFFFFFFF), ("stall", 0, 0.9), ("latency", 1, 0xFFFF),
                 ("bytes_per_cycle", 0, 0xFFFF))
    if args.out == "-":
        raise UsageError("--out must be a file, not standard output")
    check_writable(args.out, args.json)


def _random_matrices(request: Request, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in request.inputs.items()}


def _read_matrices(request: Request, path: str) -> dict[str, np.ndarray]:
    found = read_arrays(path)
    matrices = {}
    for name, shape in request.inputs.items():
        if name not in found:
            raise UsageError(f"{path} must hold {', '.join(request.inputs)}; {name} is missing")
        value = found[name]
        if value.shape != shape:
            raise UsageError(f"{name} must be {shape[0]} x {shape[1]}, "
                             f"not {' x '.join(map(str, value.shape)) or 'a scalar'}")
        if value.dtype.kind not in "fiub":
            raise UsageError(f"{name} must hold real numbers, not {value.dtype}")
        with np.errstate(over="ignore"):
            matrices[name] = value.astype(np.float32)
    if extra := found.keys() - request.inputs.keys():
        raise UsageError(f"{path} holds {', '.join(sorted(extra))}, which is no operand; "
                         f"operands are {', '.join(request.inputs)}")
    return matrices


def run_command(args: argparse.Namespace) -> int:
    """Run it; returns the exit status."""
    _check(args)
    cfg = load(args.config, args.overrides)
    m, k, n = args.shape
    request = Request(opcode=Opcode[args.operation.upper()], m=m, k=k, n=n,
                      row_exponents=args.exponents == "row",
                      stochastic=args.rounding == "stochastic", bfp_result=args.result == "bfp")
    operation = Operation(cfg, request, order=args.order or "auto",
                          blocks=tuple(args.blocks) if args.blocks else None,
                          bus=Bus(args.latency, args.bytes_per_cycle))
    before = operation.image(_read_matrices(request, args.data) if args.data else
                             _random_matrices(request, args.seed))
    memory, outcomes = run("golden", cfg, before, operation.programs, seed=args.seed)
    mismatch, match = None, None
    if args.backend == "rtl":
        golden_memory, golden_outcomes = memory, outcomes
        memory, outcomes = run("rtl", cfg, before, operation.programs, seed=args.seed,
                               timing=_timing(args, operation))
        mismatch = _mismatch(operation, memory, golden_memory, outcomes, golden_outcomes)
        match = mismatch is None
    report = _report(args, cfg, operation, outcomes[-1].counters, match)
    if args.out:
        with replacing(Path(args.out)) as file:
            np.savez(file, **operation.results(memory))
    if args.json:
        write_json(args.json, report)
    if args.json != "-":
        print(_table(report))
    if mismatch:
        print(f"sw op: the simulation differs from the golden model: {mismatch}", file=sys.stderr)
        return 1
    return 0


def _timing(args: argparse.Namespace, operation: Operation) -> Timing:
    tiles = [-(-size // operation.cfg.tile) for size in args.shape]
    work = operation.plan.clocks + operation.size / 4
    work += 2 * np.prod(tiles) * (4 * args.latency + 4 * operation.cfg.tile)
    return Timing(latency=args.latency, bytes_per_cycle=args.bytes_per_cycle, stall=args.stall,
                  stall_seed=args.seed, timeout_cycles=100_000 + int(10 * work / (1 - args.stall)))


def _mismatch(operation, memory, golden_memory, outcomes, golden_outcomes) -> str | None:
    """The first difference between simulation and golden model."""
    different = np.flatnonzero(memory != golden_memory)
    if len(different):
        first = int(different[0])
        return (f"byte {first:#x} ({operation.locate(first)}) is {memory[first]:#04x}, "
                f"not {golden_memory[first]:#04x}; {len(different)} bytes differ")
    for name, got, expected in zip(("quantising", "computing"), outcomes, golden_outcomes,
                                   strict=True):
        if found := got.differences(expected):
            return f"{name}: {found[0]}"
    return None


def _report(args, cfg: Config, operation: Operation, counters: dict[str, int], match) -> dict:
    m, k, n = args.shape
    cycles = counters.get("CYCLES_OP")
    products = m * k * n * (2 if args.operation == "grad" else 1)
    blocks = operation.plan.fields
    return {
        "operation": args.operation, "shape": [m, k, n], "config": args.config,
        "overrides": args.overrides, "backend": args.backend,
        "order": operation.order.name.lower().replace("_", "-") if args.operation == "grad"
        else None,
        "blocks": [blocks[f"b{d}"] for d in "mnk"],
        "cycles": cycles,
        "cycles_total": counters.get("CYCLES_TOTAL"),
        "cycles_planned": round(operation.plan.clocks),
        "utilisation": products / (cfg.tile**2 * cycles) if cycles else None,
        "dram_bytes": {way.lower(): {kind.name: counters[f"{way}_{kind.name}"] for kind in Kind
                                     if counters[f"{way}_{kind.name}"]}
                       for way in ("READ", "WRITE")},
        "stalls": {name: counters[name] for name in STALLS if name in counters} or None,
        "operations": counters["OPERATIONS"],
        "nonfinite_tiles": counters["NONFINITE_TILES"],
        "match": match,
    }


def _table(report: dict) -> str:
    """The report for people."""
    rows = [("operation", f"{report['operation']} {' x '.join(map(str, report['shape']))} on "
                          f"{' '.join([report['config'], *report['overrides']])}"),
            ("blocks", " ".join(str(b) if b else "all" for b in report["blocks"]) + " tiles")]
    if report["order"]:
        rows.append(("order", report["order"]))
    rows.append(("tile operations", f"{report['operations']:,}"))
    rows.append(("clocks planned", f"{report['cycles_planned']:,}"))
    if report["cycles"]:
        rows += [("clocks", f"{report['cycles']:,} (program {report['cycles_total']:,})"),
                 ("utilisation", f"{report['utilisation']:.1%}")]
    for way, kinds in report["dram_bytes"].items():
        rows.append((f"bytes {way}", ", ".join(f"{k} {v:,}" for k, v in kinds.items())))
    if report["stalls"]:
        rows.append(("clocks of the array", ", ".join(
            f"{name.removeprefix('ARRAY_').lower().replace('_', ' ')} {v:,}"
            for name, v in report["stalls"].items() if v)))
    if report["nonfinite_tiles"]:
        rows.append(("tiles with NaN or Inf", f"{report['nonfinite_tiles']:,}"))
    if report["match"] is not None:
        rows.append(("golden model", "equal" if report["match"] else "DIFFERS"))
    return "\n".join(f"{name:22}{value}" for name, value in rows)
