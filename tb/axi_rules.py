"""The rules of the NPU's buses, watched on every clock."""

from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

#: Signals that the NPU must hold from valid until ready, by bus and channel.
ADDRESS = ("addr", "len", "size", "burst", "id", "lock", "cache", "prot")
HELD = {
    "m_axi": {"ar": ADDRESS, "aw": ADDRESS, "w": ("data", "strb", "last")},
    "s_axil": {"b": ("resp",), "r": ("data", "resp")},
}
#: Channels of m_axi that the memory drives, with the signals that are looked at.
ANSWERS = {"b": (), "r": ("last",)}
PAGE = 4096
INCR = 1


class Channel:
    """Handshakes of one channel; its payload must stay while it waits for ready."""

    def __init__(self, dut, bus: str, name: str, signals: tuple[str, ...], held: bool):
        self.name = f"{bus}_{name}"
        self._valid, self._ready = (getattr(dut, f"{self.name}{n}") for n in ("valid", "ready"))
        self._signals = {s: getattr(dut, f"{self.name}{s}") for s in signals}
        self._held, self._waiting = held, None

    def reset(self):
        """Forget a transfer that waits."""
        self._waiting = None

    def sample(self) -> dict[str, int] | None:
        """Payload that is handed over in this clock, if any."""
        if not int(self._valid.value):
            assert self._waiting is None, f"{self.name}valid fell before {self.name}ready"
            return None
        payload = {name: int(signal.value) for name, signal in self._signals.items()}
        if self._waiting is not None:
            assert payload == self._waiting, \
                f"{self.name} changed before {self.name}ready: {self._waiting}, then {payload}"
        taken = bool(int(self._ready.value))
        self._waiting = payload if self._held and not taken else None
        return payload if taken else None


class Rules:
    """Watches both buses; a broken rule fails the running test.

    * What the NPU offers stays until it is taken, on every channel that it drives.
    * Bursts are INCR of whole beats, aligned to a beat, inside one page of 4 KiB; all strobes are
      set; WLAST is on the last beat and on no other.
    * No byte is read while it is written: from AW to B and from AR to the last R.

    Attributes
    ----------
    reads, writes : list of (int, int)
        Address and bytes of every burst since the last reset.
    transfers : int
        Handshakes on all channels of m_axi since the last reset.
    """

    def __init__(self, dut, beat_bytes: int):
        self._dut, self._beat_bytes = dut, beat_bytes
        self._lite = [Channel(dut, "s_axil", c, s, True) for c, s in HELD["s_axil"].items()]
        self._axi = {c: Channel(dut, "m_axi", c, s, True) for c, s in HELD["m_axi"].items()}
        # Answers first: a burst ends in the clock of its answer, before others may begin.
        self._axi = {c: Channel(dut, "m_axi", c, s, False)
                     for c, s in ANSWERS.items()} | self._axi
        self._clear()
        cocotb.start_soon(self._watch())

    def _clear(self):
        for channel in (*self._lite, *self._axi.values()):
            channel.reset()
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.transfers = 0
        self._open_reads, self._open_writes = deque(), deque()
        self._lengths, self._data = deque(), deque()  # beats of bursts: by AWLEN, by WLAST
        self._beats = 0

    @property
    def outstanding(self) -> bool:
        """A burst has begun and not ended."""
        return bool(self._open_reads or self._open_writes or self._data or self._beats)

    async def _watch(self):
        edge = RisingEdge(self._dut.clk)
        while True:
            await edge
            if int(self._dut.rst.value):
                self._clear()
                continue
            for channel in self._lite:
                channel.sample()
            for name, channel in self._axi.items():
                payload = channel.sample()
                if payload is not None:
                    self.transfers += 1
                    getattr(self, f"_{name}")(payload)

    def _burst(self, payload: dict[str, int], others) -> tuple[int, int]:
        """Check an address; first and one past the last byte of its burst."""
        begin, beat = payload["addr"], self._beat_bytes
        end = begin + (payload["len"] + 1) * beat
        text = f"burst of {payload['len'] + 1} beats at {begin:#x}"
        assert (1 << payload["size"], payload["burst"]) == (beat, INCR), f"{text}: {payload}"
        assert begin % beat == 0, f"{text} is not aligned to {beat} bytes"
        assert begin // PAGE == (end - 1) // PAGE, f"{text} crosses a 4 KiB boundary"
        for low, high in others:
            assert end <= low or high <= begin, \
                f"{text} overlaps {low:#x}..{high:#x} of the other direction, which is not finished"
        return begin, end

    def _ar(self, payload):
        begin, end = self._burst(payload, self._open_writes)
        self._open_reads.append((begin, end))
        self.reads.append((begin, end - begin))

    def _aw(self, payload):
        begin, end = self._burst(payload, self._open_reads)
        self._open_writes.append((begin, end))
        self.writes.append((begin, end - begin))
        self._lengths.append(payload["len"] + 1)
        self._match()

    def _w(self, payload):
        assert payload["strb"] == (1 << self._beat_bytes) - 1, f"strobes {payload['strb']:#x}"
        self._beats += 1
        if payload["last"]:
            self._data.append(self._beats)
            self._beats = 0
        elif self._lengths and not self._data:
            assert self._beats < self._lengths[0], "WLAST is missing"
        self._match()

    def _match(self):
        """Compare bursts whose address and data are both known."""
        while self._lengths and self._data:
            length, beats = self._lengths.popleft(), self._data.popleft()
            assert length == beats, f"WLAST on beat {beats} of {length}"

    def _b(self, payload):
        self._open_writes.popleft()

    def _r(self, payload):
        if payload["last"]:
            self._open_reads.popleft()
