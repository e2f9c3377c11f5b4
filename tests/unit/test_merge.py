"""Equal modules of a netlist become one, whatever their names and numbers."""

from hw.lib.merge import merged


def module(name, *lines):
    return "\n".join([f"module {name}", *(f"  {line}" for line in lines), "end\n"])


def cell(kind, name, *ports):
    """A cell with (port, net) connections."""
    return "\n".join([f"cell {kind} {name}", *(f"    connect {p} {n}" for p, n in ports), "  end"])


def leaf(name, number, tied="1'0"):
    """A module with a port whose name is a number."""
    return module(name, f"wire width 1 input 0 \\port${number}$1", "wire width 1 \\x",
                  f"connect \\x {tied}")


def user(name, number, kind, instance="\\u"):
    """A module that hands its port on to a leaf."""
    return module(name, f"wire width 1 input 0 \\port${number}$8",
                  cell(kind, instance, (f"\\port${number}$1", f"\\port${number}$8")))


def names(netlist):
    return [line.split()[1] for line in netlist.splitlines() if line.startswith("module ")]


def test_twins_and_their_users_become_one():
    text = "".join([
        leaf(r"\b.leaf", 20), user(r"\b", 20, r"\b.leaf"),
        leaf(r"\a.leaf", 7), user(r"\a", 7, r"\a.leaf"),
        module(r"\top", "wire width 1 \\net",
               cell(r"\a", "\\one", ("\\port$7$8", "\\net")),
               cell(r"\b", "\\two", ("\\port$20$8", "\\net")))])
    out = "".join(merged(text))
    assert names(out) == [r"\b.leaf", r"\b", r"\top"]
    top = out[out.index("module \\top"):]
    assert "cell \\b \\one" in top
    assert "cell \\b \\two" in top
    assert top.count("connect \\through$0 \\net") == 2
    assert "connect \\through$0 \\through$0" in out  # the leaf's port, the user's net


def test_others_stay():
    text = "".join([leaf(r"\a", 7), leaf(r"\b", 7, "1'1"),
                    user(r"\c", 7, r"\a"), user(r"\d", 7, r"\b"), user(r"\e", 7, r"\b", "\\v")])
    assert names("".join(merged(text))) == [r"\a", r"\b", r"\c", r"\d", r"\e"]
