"""AXI4 master of both contexts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.commands import ContextId

TRAINING, INFERENCE = (context.value for context in ContextId)


class AddressChannel(wiring.Component):
    """Chooses whose burst goes on an address channel (docs/serving.md, "Arbitration").

    Latency 0 clocks, one burst per clock. A burst on the channel stays there until it is accepted.

    Members
    -------
    valid : In(1).array(2), contexts with a burst; each stays until its `ready`
    allowed : In(1).array(2), the context's burst may go on the channel now
    ready : Out(1).array(2)
    fair : In(1), in turns; else inference goes first
    m_valid : Out(1), m_ready : In(1), the channel
    context : Out(1), whose burst is on the channel
    comes : Out(1), a burst is on the channel for the first clock
    """

    def __init__(self):
        super().__init__({
            "valid": In(1).array(2), "allowed": In(1).array(2), "ready": Out(1).array(2),
            "fair": In(1), "m_valid": Out(1), "m_ready": In(1), "context": Out(1),
            "comes": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        locked = Signal()  # `kept` is on the channel
        kept = Signal()
        last = Signal()
        asks = [self.valid[n] & self.allowed[n] for n in range(2)]
        m.d.comb += [
            self.context.eq(Mux(locked, kept, Mux(asks[TRAINING] & asks[INFERENCE],
                                                  ~(self.fair & last), asks[INFERENCE]))),
            self.m_valid.eq(locked | asks[TRAINING] | asks[INFERENCE]),
            self.comes.eq(self.m_valid & ~locked),
        ]
        m.d.comb += [self.ready[n].eq(self.m_valid & self.m_ready & (self.context == n))
                     for n in range(2)]
        m.d.sync += [locked.eq(self.m_valid & ~self.m_ready), kept.eq(self.context)]
        with m.If(self.m_valid & self.m_ready):
            m.d.sync += last.eq(self.context)
        return m


class Bus(wiring.Component):
    """Two load units and two store units on one AXI4 master.

    Latency 0 clocks. Requests are chosen as in docs/serving.md, "Arbitration". The ID of a transfer
    is its context; read data and write responses go by it, so they may come in any order of
    contexts. Write data go in the order of the bursts' addresses, from the clock on after that in
    which the address comes on the bus, accepted or not. A write burst of training goes on the bus
    only while at most one burst owes data, so one of inference waits for the data of two of them at
    most. In turns the same holds for one of inference while training waits, or training would never
    have a turn.

    A write burst's data must be there when its address is raised, or it holds up the other context.

    Pairs are indexed by `ContextId`.

    Members
    -------
    ar_valid, ar_addr, ar_len : In.array(2), ar_ready : Out(1).array(2)
    r_valid : Out(1).array(2), r_ready : In(1).array(2), r_data, r_resp, r_last : Out, shared
        AXI4 read channels of the load units
    aw_valid, aw_addr, aw_len : In.array(2), aw_ready : Out(1).array(2)
    w_valid, w_data, w_last : In.array(2), w_ready : Out(1).array(2)
    b_valid : Out(1).array(2), b_ready : In(1).array(2), b_resp : Out, shared
        AXI4 write channels of the store units
    m_ar*, m_r*, m_aw*, m_w*, m_b* : AXI4 master
    fair : In(1), contexts take turns; else inference goes first
    hold : In(1), training's bursts that are not on the bus yet are kept back
    read_use, write_use : Out(1).array(2), a beat of R, of W, of the context moves
    read_asks, write_asks : Out(1).array(2), the context has a burst requested or unfinished (read:
        data not arrived; write: data owed)
    read_held, write_held : Out(16), training's beats that have moved, while inference asks, since
        inference began to ask or since its last own beat; 0 while it does not ask
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        addr, line = cfg.addr_width, cfg.axi_width
        members = {
            "r_data": Out(line), "r_resp": Out(2), "r_last": Out(1), "b_resp": Out(2),
            "m_rid": In(1), "m_rdata": In(line), "m_rresp": In(2), "m_rlast": In(1),
            "m_rvalid": In(1), "m_rready": Out(1),
            "m_wdata": Out(line), "m_wlast": Out(1), "m_wvalid": Out(1), "m_wready": In(1),
            "m_bid": In(1), "m_bresp": In(2), "m_bvalid": In(1), "m_bready": Out(1),
            "fair": In(1), "hold": In(1), "read_held": Out(16), "write_held": Out(16),
        }
        pairs = {
            "r_valid": Out(1), "r_ready": In(1), "w_valid": In(1), "w_data": In(line),
            "w_last": In(1), "w_ready": Out(1), "b_valid": Out(1), "b_ready": In(1),
            "read_use": Out(1), "write_use": Out(1), "read_asks": Out(1), "write_asks": Out(1),
        }
        for c in "ar", "aw":
            members |= {f"m_{c}id": Out(1), f"m_{c}addr": Out(addr), f"m_{c}len": Out(8),
                        f"m_{c}valid": Out(1), f"m_{c}ready": In(1)}
            pairs |= {f"{c}_valid": In(1), f"{c}_addr": In(addr), f"{c}_len": In(8),
                      f"{c}_ready": Out(1)}
        super().__init__(members | {name: member.array(2) for name, member in pairs.items()})

    def elaborate(self, platform):
        m = Module()
        # Of each context: read bursts not answered, write bursts that owe data.
        unanswered, owing = ([Signal(range(self.cfg.outstanding + 1), name=f"{name}_{n}")
                              for n in range(2)] for name in ("unanswered", "owing"))
        owed = Signal(range(2 * self.cfg.outstanding + 1))
        m.d.comb += owed.eq(owing[TRAINING] + owing[INFERENCE])

        # --- addresses ---------------------------------------------------------------------------
        full = owed > 1
        yields = self.fair & self.aw_valid[TRAINING] & ~self.hold
        for c, training, inference in (("ar", ~self.hold, 1),
                                       ("aw", ~self.hold & ~full, ~(full & yields))):
            m.submodules[c] = channel = AddressChannel()
            m.d.comb += [
                channel.allowed[TRAINING].eq(training), channel.allowed[INFERENCE].eq(inference),
                channel.fair.eq(self.fair), channel.m_ready.eq(getattr(self, f"m_{c}ready")),
                getattr(self, f"m_{c}valid").eq(channel.m_valid),
                getattr(self, f"m_{c}id").eq(channel.context),
            ]
            for n in range(2):
                m.d.comb += [channel.valid[n].eq(getattr(self, f"{c}_valid")[n]),
                             getattr(self, f"{c}_ready")[n].eq(channel.ready[n])]
            for field in "addr", "len":
                pair = getattr(self, f"{c}_{field}")
                m.d.comb += getattr(self, f"m_{c}{field}").eq(
                    Mux(channel.context, pair[INFERENCE], pair[TRAINING]))

        # --- R and B by their IDs ----------------------------------------------------------------
        m.d.comb += [
            self.r_data.eq(self.m_rdata), self.r_resp.eq(self.m_rresp),
            self.r_last.eq(self.m_rlast), self.b_resp.eq(self.m_bresp),
        ]
        for c in "r", "b":
            bus_id, valid, ready = (getattr(self, f"m_{c}{n}") for n in ("id", "valid", "ready"))
            pair = getattr(self, f"{c}_ready")
            m.d.comb += ready.eq(Mux(bus_id, pair[INFERENCE], pair[TRAINING]))
            m.d.comb += [getattr(self, f"{c}_valid")[n].eq(valid & (bus_id == n))
                         for n in range(2)]

        # --- W in the order of AW ----------------------------------------------------------------
        # Whose data go now, and whose next. All behind these are inference's: training's bursts
        # come in only as first or second.
        present = Signal()
        following = Signal(init=INFERENCE)
        moves = Signal()
        ends = Signal()
        entered = channel.comes
        m.d.comb += [
            self.m_wvalid.eq((owed != 0) & Mux(present, self.w_valid[1], self.w_valid[0])),
            self.m_wdata.eq(Mux(present, self.w_data[1], self.w_data[0])),
            self.m_wlast.eq(Mux(present, self.w_last[1], self.w_last[0])),
            moves.eq(self.m_wvalid & self.m_wready), ends.eq(moves & self.m_wlast),
        ]
        with m.If(ends):
            m.d.sync += [present.eq(following), following.eq(INFERENCE)]
        with m.If(entered & (owed == ends)):
            m.d.sync += present.eq(self.m_awid)
        with m.Elif(entered & (owed == 1)):
            m.d.sync += following.eq(self.m_awid)

        # --- who uses and asks -------------------------------------------------------------------
        for n in range(2):
            m.d.comb += [
                self.w_ready[n].eq(self.m_wready & (owed != 0) & (present == n)),
                self.read_use[n].eq(self.r_valid[n] & self.r_ready[n]),
                self.write_use[n].eq(moves & (present == n)),
                self.read_asks[n].eq(self.ar_valid[n] | (unanswered[n] != 0)),
                self.write_asks[n].eq(self.aw_valid[n] | (owing[n] != 0)),
            ]
            m.d.sync += [
                unanswered[n].eq(unanswered[n] + (self.ar_valid[n] & self.ar_ready[n])
                                 - (self.read_use[n] & self.m_rlast)),
                owing[n].eq(owing[n] + (entered & (self.m_awid == n))
                            - (ends & (present == n))),
            ]
        for held, use, asks in ((self.read_held, self.read_use, self.read_asks),
                                (self.write_held, self.write_use, self.write_asks)):
            with m.If(~asks[INFERENCE] | use[INFERENCE]):
                m.d.sync += held.eq(0)
            with m.Elif(use[TRAINING]):
                m.d.sync += held.eq(held + 1)
        return m
