"""docs/numerics.md, "Functions", and "Vector sequencer" of docs/architecture.md word by word."""

import itertools
from fractions import Fraction

from literal import LN2, LOG2E, exact, larger, log2, negative, recip, relu, relu_grad, rsqrt
from literal_memory import Memory

from hw.isa import Function, Kind, Opcode

F = Function


class VectorInstruction(Memory):
    """CONVERT or VECTOR. `rates` are learning rate, momentum, weight decay."""

    def __init__(self, cfg, memory, fields, seed=0, rates=(Fraction(0),) * 3):
        super().__init__(cfg, memory, fields, seed)
        self.rates = rates

    def run(self):
        """Execute it."""
        f, tm, tn = self.f, self.size["m"], self.size["n"]
        self.function = F.NONE if f["opcode"] == Opcode.CONVERT.value else F(f["function"])
        if self.function is F.COLUMN_SUM:
            ops = [(m, n, 0) for n in range(tn) for m in range(tm)]
        elif self.function is F.SOFTMAX:
            ops = [(m, n, turn) for m in range(tm) for turn in range(3) for n in range(tn)]
        else:
            ops = [(m, n, 0) for m in range(tm) for n in range(tn)]
        for op in ops:
            self.vector_operations += self.function is not F.NONE
            self.operation(*op)
        return self

    def load(self, name, i, j, dims, bfp, row_exp=False):
        valid = self.valid(i, j, dims)
        self.touch(False, Kind(self.f[f"{name}_kind"]), name, i, j, bfp, valid[0])
        return self.values(name, i, j, valid, bfp, row_exp)

    def put(self, name, i, j, dims, tile, kind=None):
        bfp = name == "y" and bool(self.f["y_bfp"])
        self.store(name, name, i, j, tile, kind or Kind(self.f[f"{name}_kind"]), bfp,
                   self.valid(i, j, dims), True)

    def operation(self, m, n, turn):
        f, function = self.f, self.function
        w = None
        x = self.load("x", m, n, "mn", not f["x_fp32"], bool(f["x_row"]))
        if function in (F.BIAS, F.BIAS_RELU):
            w = self.load("w", 0, n, "1n", not f["w_fp32"])
        elif function in (F.ADD, F.SUB, F.MUL, F.RELU_GRAD, F.MSE, F.SGD) or turn == 2:
            w = self.load("w", m, n, "mn", not f["w_fp32"])
        valid = self.valid(m, n, "mn")
        self.at = list(itertools.product(range(valid[0]), range(valid[1])))
        self.scalar = exact(f["scalar"])
        if function is F.SGD:
            self.sgd(m, n, x, w)
        elif function is F.COLUMN_SUM:
            self.gather(self.check.plus, m == 0, {(c, r): x[r][c] for r, c in self.at})
            if m == self.size["m"] - 1:
                row = self.results(self.check.plus, valid[1])
                self.put("y", 0, n, "1n", [[row[c] for c in range(valid[1])]])
        elif function in (F.ROW_MEAN, F.ROW_MAX):
            op = self.check.plus if function is F.ROW_MEAN else larger
            self.gather(op, n == 0, {(r, c): x[r][c] for r, c in self.at})
            if n == self.size["n"] - 1:
                column = self.results(op, valid[0])
                if function is F.ROW_MEAN:
                    column = [self.check.times(v, self.scalar) for v in column]
                self.put("y", m, 0, "m1", [[v] for v in column])
        elif function is F.SOFTMAX:
            self.softmax(m, n, turn, x, w, valid[0])
        elif function is F.MSE:
            self.mse(m, n, x, w, valid[0])
        else:
            one_row = function in (F.BIAS, F.BIAS_RELU)
            for r, c in self.at:
                x[r][c] = self.element(x[r][c], w[0 if one_row else r][c] if w else None)
            self.put("y", m, n, "mn", x)

    def element(self, x, w):
        plus, times = self.check.plus, self.check.times
        match self.function:
            case F.NONE:
                return x
            case F.ADD | F.BIAS:
                return plus(x, w)
            case F.SUB:
                return plus(x, negative(w))
            case F.MUL:
                return times(x, w)
            case F.SCALE:
                return times(x, self.scalar)
            case F.RELU:
                return relu(x)
            case F.RELU_GRAD:
                return relu_grad(x, w)
            case F.BIAS_RELU:
                return relu(plus(x, w))
            case F.EXP:
                return self.check.exp2(times(x, LOG2E))
            case F.RECIP:
                return recip(x)
            case F.RSQRT:
                return rsqrt(x)

    def gather(self, op, first, elements):
        """Add a tile to the running v[line, j]."""
        if first:
            self.v = elements
        else:
            for key, x in elements.items():
                self.v[key] = op(self.v[key], x)

    def results(self, op, lines):
        """v[0] of every line."""
        return [self.check.fold(op, {j: x for (line, j), x in self.v.items() if line == number},
                                self.t) for number in range(lines)]

    def softmax(self, m, n, turn, x, t, rows):
        plus, times = self.check.plus, self.check.times
        first, last = n == 0, n == self.size["n"] - 1
        if turn == 0:
            self.gather(larger, first, {(r, c): x[r][c] for r, c in self.at})
            if last:
                self.P = [times(v, LOG2E) for v in self.results(larger, rows)]
            return
        e = {(r, c): self.check.exp2(plus(times(x[r][c], LOG2E), negative(self.P[r])))
             for r, c in self.at}
        if turn == 1:
            self.gather(plus, first, e)
            if last:
                total = self.results(plus, rows)
                self.R = [recip(z) for z in total]
                self.H = [plus(log2(z), p) for z, p in zip(total, self.P, strict=True)]
            return
        self.gather(plus, first, {
            (r, c): times(plus(times(x[r][c], negative(LOG2E)), self.H[r]), t[r][c])
            for r, c in self.at})
        for r, c in self.at:
            share = times(e[r, c], self.R[r])
            x[r][c] = times(plus(share, negative(t[r][c])), self.scalar)
        if not self.f["y_off"]:
            self.put("y", m, n, "mn", x)
        if last:
            losses = [[times(v, LN2)] for v in self.results(plus, rows)]
            if not self.f["dw_off"]:
                self.put("dw", m, 0, "m1", losses, Kind.LOSS)

    def mse(self, m, n, x, w, rows):
        plus, times = self.check.plus, self.check.times
        d = {(r, c): plus(x[r][c], negative(w[r][c])) for r, c in self.at}
        self.gather(plus, n == 0, {key: times(v, v) for key, v in d.items()})
        for r, c in self.at:
            x[r][c] = times(d[r, c], self.scalar)
        if not self.f["y_off"]:
            self.put("y", m, n, "mn", x)
        if n == self.size["n"] - 1:
            losses = [[v] for v in self.results(plus, rows)]
            if not self.f["dw_off"]:
                self.put("dw", m, 0, "m1", losses, Kind.LOSS)

    def sgd(self, m, n, gradient, v):
        plus, times = self.check.plus, self.check.times
        w = self.load("dy", m, n, "mn", False)
        learning_rate, momentum, weight_decay = self.rates
        for r, c in self.at:
            g = plus(times(w[r][c], weight_decay), gradient[r][c])
            v[r][c] = plus(times(v[r][c], momentum), g)
            w[r][c] = plus(w[r][c], times(negative(learning_rate), v[r][c]))
        self.put("w", m, n, "mn", v)
        self.put("dy", m, n, "mn", w)
        if not self.f["y_off"]:
            self.put("y", m, n, "mn", w)
