"""Keys of reports: what they mean in every command (docs/commands.md)."""

#: Key: (commands of `python -m sw` whose report has it; none if it lies inside others), meaning.
#: Times are in clocks. What does not apply, or was not measured, is null.
KEYS: dict[str, tuple[str, str]] = {
    "accuracy": ("infer serve", "part of the samples or requests whose largest output is their "
                 "label"),
    "arrivals": ("serve", "as the flag"),
    "backend": ("op train infer serve", "as the flag"),
    "batch_clocks": ("serve", "clocks a batch when full batches follow each other: load 1"),
    "batch_max": ("serve", "as the flag"),
    "batch_timeout": ("serve", "as the flag"),
    "batches": ("serve", "batch size: how many"),
    "blocks": ("op", "sides BM, BN, BK of the blocks in tiles; 0 is all"),
    "busiest": ("serve", "the unit of which inference takes most: array, vector, bus"),
    "busiest_share": ("serve", "that part u"),
    "busy": ("", "`phases`: clocks in which the array works; `vector`: the vector unit"),
    "config": ("op train infer serve", "as the flag"),
    "cycles": ("op train infer", "clocks of what was asked for: the operation (CYCLES_OP), or the "
               "programs (CYCLES_TOTAL), of a training its epochs on the RTL; `phases`: of the "
               "phase"),
    "cycles_planned": ("op", "the planner's estimate of `cycles`"),
    "cycles_total": ("op", "clocks of the program (CYCLES_TOTAL)"),
    "data": ("train infer", "as the flag"),
    "dram_bytes": ("op train", "bytes `read` and `write`, by kind (the counters READ_kind, "
                   "WRITE_kind)"),
    "epoch": ("", "number of the epoch, from 1"),
    "epochs": ("train", "the same measures, epoch by epoch"),
    "float32_loss": ("train", "`loss` of the float32 reference"),
    "float32_test_accuracy": ("train", "`test_accuracy` of the float32 reference"),
    "float32_test_loss": ("train", "`test_loss` of the float32 reference"),
    "harvest": ("serve", "steps_per_million_clocks / (steps_per_million_clocks_alone x (1 - u))"),
    "holds": ("serve", "unit: [largest hold seen, bound under `priority`]"),
    "hyperparameters": ("train", "settings of the training, by their flags"),
    "latency": ("serve", "doorbell to acknowledged output: p50, p99, p999, max"),
    "latency_training_off": ("serve", "the same in the run without training"),
    "layer": ("", "`phases`: the layer; null for what is no layer's"),
    "load": ("serve", "as the flag; null with --arrivals FILE"),
    "loss": ("train infer", "mean loss of the samples; in training, of the last epoch"),
    "match": ("op train infer serve", "RTL equal to golden, bit for bit; serve: outputs and "
              "trained weights equal to solo runs, and nothing wrong on the bus"),
    "model": ("infer serve", "as on the command line"),
    "nonfinite_tiles": ("op train infer", "tiles with NaN or Inf that were quantised (the counter "
                        "NONFINITE_TILES)"),
    "operation": ("op", "gemm or grad"),
    "operations": ("op", "tile operations (the counter OPERATIONS)"),
    "order": ("op", "order of the tile operations of a grad that was chosen"),
    "overlap": ("", "`vector`: those of its `busy` clocks in which the array works too"),
    "overlapped": ("", "`vector`: overlap / busy"),
    "overrides": ("op train infer serve", "the parameters of --set"),
    "phase": ("", "`phases`: prepare, forward, loss, gradient, update"),
    "phases": ("train", "clocks by phase and layer"),
    "policy": ("serve", "as the flag"),
    "read_credits": ("serve", "as the register"),
    "requests": ("serve", "as the flag"),
    "requests_per_million_clocks": ("serve", "throughput until the last completion"),
    "requests_per_million_clocks_training_off": ("serve", "the same in the run without training"),
    "samples": ("train infer", "samples used; of a training {train, test}"),
    "seed": ("serve", "as the flag"),
    "service": ("serve", "launch to acknowledged output: p50, p99, p999, max"),
    "service_training_off": ("serve", "the same in the run without training"),
    "service_mean": ("serve", "mean of `service`"),
    "service_mean_training_off": ("serve", "the same in the run without training"),
    "shape": ("op", "[M, K, N]"),
    "shares": ("serve", "unit: part of the clocks in which it works for [training, inference]; "
               "bus: read and write together"),
    "sizes": ("train serve", "inputs of the network, outputs of each layer"),
    "spike_cycles": ("serve", "clocks in which the spike guard held training (the counter)"),
    "spike_threshold": ("serve", "as the flag"),
    "stalls": ("op", "clocks of the array by what it does or waits for (the counters ARRAY_*)"),
    "steps_per_million_clocks": ("serve", "training_steps over the clocks until the last "
                                 "completion"),
    "steps_per_million_clocks_alone": ("serve", "training with an idle inference context"),
    "test_accuracy": ("train", "`accuracy` of the test's samples after the last epoch; null "
                      "without labels"),
    "test_loss": ("train", "`loss` of the test's samples after the last epoch"),
    "train": ("serve", "as the flag"),
    "training_steps": ("serve", "optimizer steps until the last completion. A part of a step "
                       "counts as the part of its time alone in which the units, together, work as "
                       "much"),
    "utilisation": ("op train", "op: products over what the array could do in `cycles`; train: "
                    "part of `cycles` in which the array is busy"),
    "vector": ("train", "the vector unit's clocks"),
}
