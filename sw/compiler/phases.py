"""Phases by which the hardware counts clocks, for networks of any depth."""

from hw.isa import PHASES

#: What a layer does in a training step: GEMM; GRAD and the bias's gradient; optimizer.
STEPS = ("forward", "gradient", "update")
#: Before the first batch, weights are copied to BFP; SOFTMAX or MSE.
PREPARE, LOSS = 0, 1
#: Layers that have phases of their own.
LAYERS = (PHASES - 2) // len(STEPS)


def phase(layer: int, step: str) -> int:
    """Phase of `layer` (1 is the first). Layers from number `LAYERS` on share the last phases."""
    return 2 + len(STEPS) * (min(layer, LAYERS) - 1) + STEPS.index(step)


def names(layers: int) -> dict[int, str]:
    """Phases that a network of `layers` layers uses, and their names: "layer 1 forward"."""
    result = {PREPARE: "prepare", LOSS: "loss"}
    for layer in range(1, min(layers, LAYERS) + 1):
        shared = f"layers {LAYERS} to {layers}" if layer == LAYERS < layers else f"layer {layer}"
        result |= {phase(layer, step): f"{shared} {step}" for step in STEPS}
    return result
