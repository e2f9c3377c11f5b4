"""Equal modules of a netlist become one."""

import re

MODULE = re.compile(r"^module (\S+)\n(.*?)^end\n", re.M | re.S)
CELL = re.compile(r"^  cell (\\\S+) ", re.M)
#: Amaranth's name for a part of a signal that passes through a module; its number is arbitrary.
THROUGH = re.compile(r"\\port\$\d+\$\d+")


def _renamed(bodies: dict[str, str]) -> dict[str, str]:
    """The modules with ports that are numbered in each."""
    names = {}
    for name, body in bodies.items():
        ports = [line.split()[-1] for line in body.splitlines()
                 if line.startswith("  wire ") and THROUGH.fullmatch(line.split()[-1])]
        names[name] = {port: f"\\through${n}" for n, port in enumerate(ports)}
    out = {}
    for name, body in bodies.items():
        own, inside, lines = names[name], {}, []
        for line in body.splitlines(keepends=True):
            if line.startswith("  cell "):
                inside = names.get(line.split()[1], {})
            if "\\port$" in line:
                if line.startswith("    connect \\port$"):
                    _, port, net = line.split(maxsplit=2)
                    line = f"    connect {inside.get(port, port)} {net}"
                line = THROUGH.sub(lambda p, own=own: own.get(p[0], p[0]), line)
            lines.append(line)
        out[name] = "".join(lines)
    return out


def merged(netlist: str) -> list[str]:
    """Modules of RTLIL `netlist`, without attributes: the first of those that differ in name."""
    bodies = _renamed(dict(MODULE.findall(netlist)))
    while True:
        first, twins = {}, {}
        for name, body in bodies.items():
            if (kept := first.setdefault(body, name)) != name:
                twins[name] = kept
        if not twins:
            return [f"module {name}\n{body}end\n" for name, body in bodies.items()]
        bodies = {name: CELL.sub(lambda c, t=twins: f"  cell {t.get(c[1], c[1])} ", body)
                  for name, body in bodies.items() if name not in twins}
