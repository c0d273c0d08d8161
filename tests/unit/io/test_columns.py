"""Columns of tables: lists of names, elements of arrays, and ids are taken apart and put together."""

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io import open_chain
from steinstream.io._columns import find_rows, split_element, split_names, variables_of_kept
from steinstream.io._kept_checks import parse_kernel
from steinstream.io.cmdstan import CmdStanConfig, parse_config, stan_variables, unconstrained_name
from steinstream.kernels import IMQ, RBF


def test_a_name_with_a_comma_is_quoted_in_a_list():
    assert split_names('mu, "beta[1,2]"') == ["mu", "beta[1,2]"]


def test_the_title_of_an_element_is_name_and_index():
    assert split_element("a.2.1") == ("a", (2, 1)) and split_element("sigma") == ("sigma", ())
    assert unconstrained_name("sigma") == "sigma_unc" and unconstrained_name("w.1") == "w_unc.1"


def test_elements_become_an_array_and_the_prefix_is_removed():
    found = variables_of_kept(["variable_mu", "w.1", "w.2"], np.array([[1.0, 2.0, 3.0]]))
    assert found["mu"].values.tolist() == [1.0] and found["w"].values.tolist() == [[2.0, 3.0]]


def test_the_columns_of_the_sampler_are_not_variables_of_the_model():
    titles = ["lp__", "sigma", "a.1.1", "a.2.1", "a.1.2", "a.2.2"]
    found = stan_variables(titles, np.array([[0.0, 9, 1, 2, 3, 4]]))
    assert list(found) == ["sigma", "a"] and found["sigma"].values.tolist() == [9.0]
    assert found["a"].values.tolist() == [[[1.0, 3.0], [2.0, 4.0]]] and found["a"].dims == ("a_dim_0", "a_dim_1")


def test_ids_are_found_in_blocks_unless_one_is_missing():
    blocks = [np.array([[0, 5], [0, 6]]), np.array([[0, 7]])]
    assert find_rows(np.array([[0, 7], [0, 5]]), blocks).tolist() == [2, 0]
    assert find_rows(np.array([[0, 7], [1, 5]]), blocks) is None


def test_comments_of_cmdstan_give_the_number_of_draws_and_the_output_file():
    comments = [b"# model = a", b"#  num_samples = 9", b"#  thin = 2", b"# output", b"#   file = o/a.csv (Default)"]
    assert parse_config(comments) == CmdStanConfig(model="a", samples=5, output="a.csv")
    saved = [b"#  num_warmup = 5 (Default)", b"#  save_warmup = true", b"#  thin = 2"]
    assert parse_config(saved).warmup == 3


@pytest.mark.parametrize("kernel", [IMQ(c=2.0, beta=-0.5, linear=0.1), IMQ(), RBF(), RBF(h=2.0)])
def test_a_kernel_is_read_from_its_representation(kernel):
    assert parse_kernel(repr(kernel)) == kernel
    assert parse_kernel(None) is None
    with pytest.raises(InputError, match="Unknown kernel"):
        parse_kernel("Matern(nu=1.5)")


def test_a_huge_index_in_a_title_is_a_column_of_its_own():
    found = variables_of_kept(["a.1", "a.99999999999"], np.ones((2, 2)))
    assert sorted(found) == ["a.1", "a.99999999999"]


@pytest.mark.parametrize("option", ["draws_name", "scores_name"])
def test_an_empty_list_of_columns_is_refused(option, tmp_path):
    (tmp_path / "chain.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column ''"):
        open_chain(tmp_path / "chain.csv", **{option: ""})
