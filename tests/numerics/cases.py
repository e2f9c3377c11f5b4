"""Random instructions with their memory."""

import numpy as np

from hw.config import Config, load
from hw.isa import Function, Kind, Opcode
from sw.compiler.assembler import window

CONFIGS = [
    load("tiny"),
    Config(tile=3, mant_width=5, axi_width=32, spad_kib=4, acc_kib=4),
    Config(tile=2, mant_width=4, axi_width=64, spad_kib=4, acc_kib=4),
    Config(tile=5, mant_width=12, axi_width=128, spad_kib=4, acc_kib=4),
    Config(tile=4, mant_width=16, axi_width=256, spad_kib=4, acc_kib=4),
]


def random_bfp(rng, cfg, count, low, high, special):
    """Images with exponent bytes in low..high, zero and NaN now and then, rubbish in padding."""
    images = rng.integers(0, 256, (count, cfg.bfp_bytes), np.uint8)
    images[:, :cfg.tile] = rng.integers(low, high + 1, (count, cfg.tile))
    if special:
        images[:, :cfg.tile][rng.random((count, cfg.tile)) < 0.1] = 0
        images[:, :cfg.tile][rng.random((count, cfg.tile)) < 0.05] = 255
    start = cfg.exp_beats * cfg.beat_bytes
    codes = rng.integers(-1 << cfg.mant_width - 1, 1 << cfg.mant_width - 1, (count, cfg.tile**2))
    if cfg.container == 4:
        padded = np.zeros((count, -(-cfg.tile**2 // 2) * 2), np.int64)
        padded[:, :cfg.tile**2] = codes & 15
        data = (padded[:, ::2] | padded[:, 1::2] << 4).astype(np.uint8)
    else:
        data = np.ascontiguousarray(codes.astype(f"<i{cfg.container // 8}")).view(np.uint8)
    images[:, start:start + data.shape[1]] = data
    return images.reshape(-1)


def random_fp32(rng, cfg, count, low, high, special):
    """Images of random words, or of exponents in low..high."""
    words = rng.integers(0, 2**32, count * cfg.fp32_bytes // 4, np.uint32)
    if not special:
        words = words & 0x807FFFFF | rng.integers(low, high + 1, len(words), np.uint32) << 23
    return words.view(np.uint8)


def random_case(seed):
    """Configuration, memory, fields of a random GEMM or GRAD."""
    rng = np.random.default_rng(seed)
    cfg = CONFIGS[seed % len(CONFIGS)]
    grad = bool(rng.integers(2))
    m, n, k = (int(rng.integers(1, 4 * cfg.tile)) for _ in range(3))
    tm, tn, tk = (-(-d // cfg.tile) for d in (m, n, k))
    low, high = [(100, 140), (1, 254), (60, 70), (180, 254), (63, 66),
                 (66, 70), (70, 76)][rng.integers(7)]
    special = rng.random() < 0.5
    f = {"opcode": Opcode.GRAD if grad else Opcode.GEMM, "m": m, "n": n, "k": k,
         "bm": int(rng.integers(0, 4)), "bn": int(rng.integers(0, 4)),
         "bk": int(rng.integers(0, 4)), "salt": int(rng.integers(2**32)),
         "stochastic": int(rng.integers(2))}
    f |= {f"{w}_window": window(0, int(rng.integers(3)), int(rng.integers(3)))
          for w in ("x", "w", "dy", "dy2", "y", "dw")}
    f |= {"e_window": window(0, int(rng.integers(2)), int(rng.integers(2)))}
    f |= {name: int(rng.integers(2**20)) for name in ("y_row0", "y_col0", "dw_row0", "dw_col0")}
    f |= {"y_bfp": int(rng.integers(2)), "dw_bfp": int(rng.integers(2))}
    f |= {"y_accumulate": int(rng.integers(2)) & ~f["y_bfp"],
          "dw_accumulate": int(rng.integers(2)) & ~f["dw_bfp"]}
    if grad:
        f |= {"order": int(rng.integers(4))}
        if rng.random() < 0.3:
            f[["y_off", "dw_off"][rng.integers(2)]] = 1
        if not f.get("y_off"):
            f["function"] = rng.choice([Function.NONE, Function.RELU_GRAD])
    else:
        f |= {"x_row": int(rng.integers(2)), "y_row": int(rng.integers(2)),
              "function": rng.choice([Function.NONE, Function.BIAS, Function.RELU,
                                      Function.BIAS_RELU])}
    chunks, addr = [np.zeros(1024, np.uint8)], 1024
    for name, (rows, cols) in {"x": (tm, tk), "w": (tk, tn), "dy": (tm, tn)}.items():
        pitch = cols + int(rng.integers(2))
        f |= {f"{name}_addr": addr, f"{name}_pitch": pitch}
        chunks.append(random_bfp(rng, cfg, rows * pitch, low, high, special))
        addr += len(chunks[-1])
    for name, (rows, cols) in {"y": (tm, tk if grad else tn), "dw": (tk, tn)}.items():
        for part in ("", "_part"):
            f |= {f"{name}{part}_addr": addr, f"{name}{part}_pitch": cols}
            chunks.append(random_fp32(rng, cfg, rows * cols, low, high, special))
            addr += len(chunks[-1])
    if not grad:
        f |= {"dy_addr": addr}  # the bias
        chunks.append(random_fp32(rng, cfg, tn, low, high, special))
    return cfg, np.concatenate(chunks), f


#: Exponents of a VECTOR's operands: moderate, any, small, so large that sums overflow.
RANGES = [(100, 140), (118, 128), (124, 131), (1, 254), (1, 30), (252, 254), (253, 254)]
VECTOR_CONFIGS = [*CONFIGS, Config(tile=16, spad_kib=4, acc_kib=16),
                  Config(tile=7, mant_width=6, axi_width=64, spad_kib=4, acc_kib=8)]


def random_vector(seed):
    """Configuration, memory, fields of a random CONVERT or VECTOR, and SGD's registers."""
    rng = np.random.default_rng(seed)
    cfg = VECTOR_CONFIGS[seed % len(VECTOR_CONFIGS)]
    function = Function(seed // len(VECTOR_CONFIGS) % len(Function))
    most = {16: 24, 7: 20}.get(cfg.tile, 4 * cfg.tile)
    m, n = (int(rng.integers(1, most)) for _ in range(2))
    tm, tn = -(-m // cfg.tile), -(-n // cfg.tile)
    low, high = RANGES[rng.integers(len(RANGES))]
    special = rng.random() < 0.3
    f = {"opcode": Opcode.CONVERT if function is Function.NONE else Opcode.VECTOR,
         "function": function, "m": m, "n": n, "salt": int(rng.integers(2**32)),
         "y_row0": int(rng.integers(2**20)), "y_col0": int(rng.integers(2**20)),
         "y_window": window(0, *[(1, 1), (2, 1), (0, 2)][rng.integers(3)])}
    f |= {name: int(rng.integers(2)) for name in (
        "x_row", "y_row", "x_fp32", "w_fp32", "y_bfp", "stochastic")}
    f |= {f"{name}_kind": rng.choice(list(Kind)) for name in ("x", "w", "dy", "y")}
    numbers = random_fp32(rng, Config(axi_width=128), 1, low, high, False).view(np.uint32)
    f["scalar"] = int(numbers[0])
    if function is Function.SGD:
        f |= {"w_fp32": 1, "y_off": int(rng.integers(2))}
    elif function in (Function.SOFTMAX, Function.MSE):
        f[["y_off", "dw_off", "unused0"][rng.integers(3)]] = 1
        f["unused0"] = 0
    chunks, addr = [np.zeros(1024, np.uint8)], 1024
    for name, fp32 in {"x": f["x_fp32"], "w": f["w_fp32"], "dy": 1, "y": 1, "dw": 1}.items():
        pitch = tn + int(rng.integers(2))
        f |= {f"{name}_addr": addr, f"{name}_pitch": pitch}
        chunks.append((random_fp32 if fp32 else random_bfp)(rng, cfg, tm * pitch, low, high,
                                                            special))
        if function is Function.RSQRT and fp32 and high < 200:
            chunks[-1] = (chunks[-1].view(np.uint32) & 0x7FFFFFFF).view(np.uint8)
        addr += len(chunks[-1])
    return cfg, np.concatenate(chunks), f, numbers[1:4].tolist()
