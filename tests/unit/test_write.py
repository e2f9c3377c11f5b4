import random
from itertools import chain

import pytest
from amaranth.sim import Simulator

from hw.config import Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.memory.write import BurstWriter, ImageMerge

CFG = Config(tile=2, axi_width=32, write_buffer=16, outstanding=3, spad_kib=1, acc_kib=1,
             spad_banks=1, acc_banks=2)


def random_images(rng, count, longest=12):
    """Images as lists of beats, at ascending offsets with gaps."""
    images, offset = [], 0
    for _ in range(count):
        beats, kind, source = (rng.randint(1, longest), rng.choice(list(Kind)),
                               rng.choice(list(Source)))
        images.append([dict(data=rng.getrandbits(32), last=k == beats - 1, offset=offset,
                            kind=kind, source=source) for k in range(beats)])
        offset += (beats + rng.randrange(3)) * CFG.beat_bytes
    return images


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


def seen(payload):
    return dict(data=payload.data, last=payload.last, offset=payload.offset,
                kind=Kind(payload.kind), source=Source(payload.source))


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_merged_images_stay_whole_and_the_first_input_goes_first(stall):
    rng = random.Random(stall)
    images = [random_images(rng, 12, 4), random_images(rng, 12, 4)]
    flat = [list(chain(*stream)) for stream in images]
    dut = ImageMerge(CFG)

    async def bench(ctx):
        sent, offered, inside, out = [0, 0], [False, False], None, []
        for _ in range(2000):
            for k, port in enumerate(dut.i):
                offered[k] = offered[k] or (sent[k] < len(flat[k]) and rng.random() >= stall)
                ctx.set(port.valid, offered[k])
                if offered[k]:
                    ctx.set(port.payload, flat[k][sent[k]])
            ready = rng.random() >= stall
            ctx.set(dut.o.ready, ready)
            chosen = inside if inside is not None else 0 if offered[0] else 1
            assert ctx.get(dut.o.valid) == offered[chosen]
            taken = [offered[k] and ctx.get(port.ready) for k, port in enumerate(dut.i)]
            assert taken == [offered[chosen] and ready and k == chosen for k in range(2)]
            if taken[chosen]:
                beat = flat[chosen][sent[chosen]]
                assert seen(ctx.get(dut.o.payload)) == beat
                out.append(chosen)
                sent[chosen], offered[chosen] = sent[chosen] + 1, False
                inside = None if beat["last"] else chosen
            await ctx.tick()
            if sent == [len(f) for f in flat]:
                break
        assert sent == [len(f) for f in flat]
        assert stall or out == [0] * len(flat[0]) + [1] * len(flat[1])

    simulate(dut, bench)


@pytest.mark.parametrize("limits", [[256], [0], [1], [3], [0, 1, 2, 5, 256]])
def test_bursts_keep_to_max_beats(limits):
    """Each burst ends with its image, at a boundary, or at the limit there was at its last beat."""
    rng = random.Random(str(limits))
    images, base = random_images(rng, 30), 0x1000_0FC0
    flat = list(chain(*images))
    places = [image[0]["offset"] + k * CFG.beat_bytes for image in images
              for k in range(len(image))]
    dut = BurstWriter(CFG)

    async def bench(ctx):
        ctx.set(dut.base, base)
        sent, forming, bursts = 0, [], []
        aw, w, answers, due, dones, clocks, counted = [], [], 0, [], [], 0, 0
        while answers < len(bursts) or sent < len(flat) or due:
            clocks += 1
            assert clocks < 3000, "stuck"
            most = rng.choice(limits)
            ctx.set(dut.max_beats, most)
            offered = sent < len(flat) and rng.random() < 0.8
            ctx.set(dut.i.valid, offered)
            if offered:
                ctx.set(dut.i.payload, flat[sent])
            ready, w_ready = rng.random() < 0.7, rng.random() < 0.7
            ctx.set(dut.aw_ready, ready)
            ctx.set(dut.w_ready, w_ready)
            whole = sum(last for _, last in w)
            b_valid = answers < min(len(aw), whole) and rng.random() < 0.5
            ctx.set(dut.b_valid, b_valid)
            ctx.set(dut.b_resp, 0)
            inside = sent - sum(len(burst) for burst in bursts[:answers])
            assert ctx.get(dut.empty) == (inside == 0 and (sent == 0 or flat[sent - 1]["last"]))
            if ctx.get(dut.done):
                dones.append(Source(ctx.get(dut.done_source)))
                assert dones[-1] == due.pop(0)
            if offered and ctx.get(dut.i.ready):
                forming.append((places[sent], flat[sent]))
                if (flat[sent]["last"]
                        or (base + places[sent] + CFG.beat_bytes) % 4096 == 0
                        or len(forming) >= min(max(most, 1), CFG.write_buffer // 2)):
                    bursts.append(forming)
                    forming = []
                sent += 1
            if ctx.get(dut.aw_valid) and ready:
                burst = bursts[len(aw)]
                aw.append((ctx.get(dut.aw_addr), ctx.get(dut.aw_len)))
                assert aw[-1] == (base + burst[0][0], len(burst) - 1)
                assert ctx.get(dut.count_en)
                assert Kind(ctx.get(dut.count_kind)) == burst[0][1]["kind"]
                counted += ctx.get(dut.count_bytes)
            if ctx.get(dut.w_valid) and w_ready:
                w.append((ctx.get(dut.w_data), ctx.get(dut.w_last)))
            if b_valid and ctx.get(dut.b_ready):
                last = bursts[answers][-1][1]
                if last["last"]:
                    due.append(last["source"])
                answers += 1
            await ctx.tick()
        assert w == [(beat["data"], k == len(burst) - 1) for burst in bursts
                     for k, (_, beat) in enumerate(burst)]
        assert dones == [image[0]["source"] for image in images]
        assert counted == len(flat) * CFG.beat_bytes

    simulate(dut, bench)
