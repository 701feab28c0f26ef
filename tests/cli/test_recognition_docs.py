import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocols.md"


def test_the_example_of_the_docs_runs_and_gives_its_figures(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    found = names["found"]
    assert found.rate() == 0.425
    np.testing.assert_allclose(found.cmc()[1][:3], [0.425, 0.546, 0.600], atol=5e-4)
    assert "no significant difference" in capsys.readouterr().out
