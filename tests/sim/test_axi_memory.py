import pytest

from hw.config import Config
from tb import runner


@pytest.mark.parametrize("axi_width", [32, 128])
def test_memory(axi_width, tmp_path):
    directory = runner.build(Config(axi_width=axi_width), top="axi_memory")
    runner.run_cocotb(directory, "tb.memory_checks", tmp_path, top="axi_memory")


def test_unknown_top():
    with pytest.raises(ValueError, match="top must be one of npu_tb, npu, axi_memory, not 'npx'"):
        runner.build(Config(), top="npx")
