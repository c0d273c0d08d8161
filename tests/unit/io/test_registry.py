"""The format of a file is that of its content, or else of its extension, unless the user names it."""

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io import FORMATS, open_chain, read_kept

X = np.random.default_rng(0).normal(size=(20, 2))


def test_the_content_comes_before_the_extension_and_the_option_before_both(tmp_path):
    with (tmp_path / "c.csv").open("wb") as file:
        np.savez(file, draws=X, scores=-X)
    assert np.array_equal(next(open_chain(tmp_path / "c.csv").blocks()).draws, X)
    with pytest.raises(InputError, match=r"cannot be read as csv|has no"):
        open_chain(tmp_path / "c.csv", format="csv")
    (tmp_path / "c.txt").write_text("a,score_a\n1,2\n")
    with pytest.raises(InputError, match="unknown extension") as caught:
        open_chain(tmp_path / "c.txt")
    assert "--format" in caught.value.remedy
    assert open_chain(tmp_path / "c.txt", format="csv").names == ("a",)
    with pytest.raises(InputError, match="Unknown format csw") as caught:
        open_chain(tmp_path / "c.txt", format="csw")
    assert "Did you mean csv?" in caught.value.remedy


def test_only_formats_that_hold_a_complete_kept_set_are_read_as_one(tmp_path):
    (tmp_path / "c.csv").write_text("chain,draw,a,score_a\n0,0,1,-1\n")
    with pytest.raises(InputError, match="without kernel and preconditioner") as caught:
        read_kept(tmp_path / "c.csv")
    assert "npz, nc or zarr" in caught.value.remedy
    assert {name for name, form in FORMATS.items() if form.read} == {"npz", "zarr", "netcdf"}


def test_an_output_file_is_for_cmdstan_only(tmp_path):
    np.savez(tmp_path / "c.npz", draws=X, scores=-X)
    with pytest.raises(InputError, match="is not a CmdStan file"):
        open_chain(tmp_path / "c.npz", output=tmp_path / "c.npz")
