"""Is a missing extra named, is torch loaded late, and is torchvision healed only where it is broken?"""

import subprocess
import sys

import pytest
from tests.refusals import refuses
from typer.testing import CliRunner

import cdp.nets
from cdp.cli.main import app
from cdp.errors import MissingExtraError
from cdp.nets import torchvision_guard


def test_a_missing_extra_names_its_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(vars(cdp.nets), "train_supervised", raising=False)
    with refuses("module-missing", MissingExtraError, module="torch", extra="nets"):
        _ = cdp.nets.train_supervised
    words = ["train", str(tmp_path), "--network", "resnet18", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "'.[nets]'" in result.output


def test_importing_the_room_loads_no_torch():
    code = "import sys, cdp.nets, cdp.cli.train_commands, cdp.cli.embed_command; from cdp.nets import Recipe; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_there():
    for name in cdp.nets.__all__:
        assert getattr(cdp.nets, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = cdp.nets.nonsense


def test_torchvision_is_healed_for_its_own_error_only(monkeypatch):
    tried, real = [], torchvision_guard.import_module

    def broken(name):
        if name == "torchvision":
            tried.append(name)
            raise RuntimeError("something else")
        return real(name)

    assert torchvision_guard.import_timm().__name__ == "timm"
    monkeypatch.setattr(torchvision_guard, "import_module", broken)
    with pytest.raises(RuntimeError, match="something else"):
        torchvision_guard.import_timm()
    assert tried == ["torchvision"]
