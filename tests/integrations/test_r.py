"""R: the functions of steinstream.R with real fits of rstan, brms and rstanarm, by the code of the documentation page.

cmdstanr is not a Debian package. Its files are those of CmdStan; the test uses such files with the names that it gives.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import steinstream
from tests.stan_runs import DATA

if not os.environ.get("STEINSTREAM_TEST_R"):
    pytest.skip("R is tested by make test-r", allow_module_level=True)

ROOT = Path(__file__).parents[2]
R_FILE = Path(steinstream.__file__).parent / "integrations" / "steinstream.R"
PRELUDE = """
options(steinstream.command = c(%s, "-m", "steinstream"), warn = 1)
suppressMessages({library(rstan); library(posterior)})
if (!nzchar(rstan_options("boost_lib"))) rstan_options(boost_lib = "/usr/include")
source(%s)
same_answer <- function(small, all, variables) {  # means within 0.15 sd, sds within 15 %%
  a <- summarise_draws(subset_draws(as_draws_df(small), variable = variables), "mean", "sd")
  b <- summarise_draws(subset_draws(as_draws_df(all), variable = variables), "mean", "sd")
  print(cbind(a, b[-1]))
  stopifnot(abs(a$mean - b$mean) < 0.15 * b$sd, abs(a$sd / b$sd - 1) < 0.15)
}
rows_of_fit <- function(small, all) {
  all <- as_draws_df(all)
  ids <- attr(small, "source")
  all[match(paste(ids$.chain, ids$.iteration), paste(all$.chain, all$.iteration)), ]
}
fails <- function(expression, pattern) {
  problem <- tryCatch({expression; "no error"}, error = conditionMessage)
  if (!grepl(pattern, problem)) stop("unexpected: ", problem)
}
"""


def has(package):
    command = ["Rscript", "-e", f"quit(status = !requireNamespace('{package}', quietly = TRUE))"]
    return subprocess.run(command, capture_output=True, timeout=120).returncode == 0


def page(title=""):
    """Return the R code of the documentation page: all of it, or that of a section."""
    text = (ROOT / "docs" / "integrations" / "r.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)
    text = next(part for part in parts if part.startswith(title + "\n"))
    return "\n".join(re.findall(r"^```r\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def quoted(path):
    return '"' + str(path).replace("\\", "/") + '"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("r")


@pytest.fixture(scope="module")
def run(folder):
    """Return a function that runs R code and returns what it prints."""

    def run(code):
        script = folder / "script.R"
        script.write_text(PRELUDE % (quoted(sys.executable), quoted(R_FILE)) + code)
        done = subprocess.run(["Rscript", script], cwd=folder, capture_output=True, text=True, timeout=3000)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def fitted(run):
    """The section on rstan: it compiles the model, samples and thins."""
    return run(page("rstan") + 'saveRDS(list(model, data, fit, small, weighted, same), "fit.rds")')


RELOADED = """
saved <- readRDS("fit.rds")
model <- saved[[1]]; data <- saved[[2]]; fit <- saved[[3]]; small <- saved[[4]]
all_draws <- as_draws_df(extract(fit, permuted = FALSE))
"""


def test_the_kept_draws_of_a_stan_fit_have_its_means_and_sds(run, fitted):
    assert "Thinning without scores" not in fitted
    run(
        RELOADED
        + """
stopifnot(inherits(small, "draws_df"), ndraws(small) == 100, nchains(small) == 1)
stopifnot(small$.chain == 1, small$.iteration == 1:100, small$.draw == 1:100)
stopifnot(identical(variables(small), c("mu", "sigma", "w[1]", "w[2]", "w[3]", "y_new", "lp__")))
stopifnot(small$sigma > 0, abs(small$`w[1]` + small$`w[2]` + small$`w[3]` - 1) < 1e-9)
same_answer(small, all_draws, c("mu", "sigma", "w"))
stopifnot(all.equal(unclass(as_draws_matrix(small)), unclass(as_draws_matrix(merge_chains(
  rows_of_fit(small, all_draws)))), check.attributes = FALSE))
stopifnot(table(attr(small, "source")$.chain) >= 10)  # no chain is favoured
weighted <- saved[[5]]
stopifnot(abs(sum(weights(weighted)) - 1) < 1e-9, ndraws(weighted) == 50)
stopifnot(abs(sum(weights(weighted) * weighted$mu) - mean(all_draws$mu)) < 0.15 * sd(all_draws$mu))
stopifnot(identical(as.data.frame(saved[[6]]), as.data.frame(small)))
"""
    )


def test_scores_are_the_gradient_of_the_log_density(run, fitted):
    run(
        RELOADED
        + """
live <- sampling(model, data = data, chains = 0)
table <- draws_and_scores(fit, live)
stopifnot(identical(draws_and_scores(fit, live, cores = 2), table))
names <- c("mu_unc", "sigma_unc", "w_unc.1", "w_unc.2")
stopifnot(identical(names(table), c(".chain", ".iteration", names, paste0("score_", names))), nrow(table) == 4000)
stopifnot(all.equal(exp(table$sigma_unc), all_draws$sigma))
for (row in c(1, 1500, 4000)) {
  at <- unlist(table[row, names])
  for (i in 1:4) {
    step <- replace(numeric(4), i, 1e-5)
    slope <- (log_prob(live, at + step) - log_prob(live, at - step)) / 2e-5
    stopifnot(abs(slope - table[row, paste0("score_", names[i])]) < 1e-5 * (1 + abs(slope)))
  }
}
other <- sampling(model, data = list(N = 2, y = c(0, 1)), chains = 0)
fails(draws_and_scores(fit, other), "not the lp__ of the draws")
"""
    )


def test_a_fit_without_its_model_is_thinned_without_scores(run, fitted):
    said = run(
        RELOADED
        + """
fails(thin_draws(fit, size = 50, scores = TRUE), "compiled model .* not loaded.*chains = 0")
without <- thin_draws(fit, size = 100)
same_answer(without, all_draws, c("mu", "sigma", "w"))
"""
    )
    assert "Thinning without scores. The compiled model" in said


def test_draws_objects_and_data_frames_are_accepted(run, fitted):
    run(
        RELOADED
        + page("Any draws").replace("posterior::as_draws_df(fit)", "all_draws")
        + """
same_answer(any, all_draws, c("mu", "sigma", "w"))
frame <- as.data.frame(all_draws)
again <- thin_draws(frame, size = 100, variables = c("mu", "sigma", "w"), quiet = TRUE)
stopifnot(identical(again$mu, any$mu), identical(attr(again, "source"), attr(any, "source")))
one <- thin_draws(data.frame(a = rnorm(500), b = rnorm(500)), size = 20, quiet = TRUE)
stopifnot(identical(variables(one), c("a", "b")), ndraws(one) == 20)
"""
    )


def test_errors_say_what_to_do(run, fitted):
    run(
        RELOADED
        + """
fails(thin_draws(all_draws, size = 10, kernel = "cubic"), "error: .*cubic")
fails(thin_draws(all_draws, 10, "rbf"), "Options must be named")
fails(thin_draws(lm(dist ~ speed, cars), size = 10), "Expected a fit of rstan.*got lm.*fit.draws")
options(steinstream.command = "no-such-program")
fails(thin_draws(all_draws, size = 10), "no-such-program was not found.*options.steinstream.command = ")
"""
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the CmdStan files are not in ../shared/data/stan")
def test_files_laid_out_as_those_of_cmdstanr(run, folder):
    for chain in (1, 2):
        for kind in ("", "-diagnostic"):
            text = gzip.decompress((DATA / f"normal_simplex{kind}-{chain}.csv.gz").read_bytes()).decode()
            text = re.sub(r"gen/normal_simplex(-diagnostic|)-", rf"{folder}/model\1-202611180101-", text)
            text = text.replace(f"-202611180101-{chain}.csv", f"-202611180101-{chain}-5a1b2c.csv")
            (folder / f"model{kind}-202611180101-{chain}-5a1b2c.csv").write_text(text)
    run(
        """
read <- function(chain) {
  table <- utils::read.csv(Sys.glob(sprintf("model-2*-%d-*.csv", chain)), comment.char = "#", check.names = FALSE)
  names(table) <- gsub("[.]([0-9])$", "[\\\\1]", names(table))
  as_draws_df(table[!grepl("__$", names(table)) | names(table) == "lp__"])
}
all_draws <- bind_draws(read(1), read(2), along = "chain")  # as fit$draws()
files <- Sys.glob("model-diagnostic-2*.csv")  # as fit$latent_dynamics_files()
small <- thin_draws(all_draws, size = 100, latent_dynamics = files)
same_answer(small, all_draws, c("mu", "sigma", "w"))
command <- getOption("steinstream.command")
words <- c(command[-1], "thin", shQuote(files), "-o", "kept.csv", "--size", "100", "--layout", "r")
stopifnot(system2(command[1], words) == 0)
kept <- read.csv("kept.csv", check.names = FALSE)
stopifnot(identical(names(kept), c(".chain", ".iteration", ".draw", "mu", "sigma", "w[1]", "w[2]", "w[3]")))
stopifnot(identical(kept$mu, small$mu), identical(kept$.iteration, as.integer(attr(small, "source")$.iteration)))
kept$.chain <- NULL
same_answer(as_draws_df(kept), all_draws, c("mu", "sigma", "w"))
short <- subset_draws(all_draws, iteration = 1:100)
fails(thin_draws(short, size = 100, latent_dynamics = files), "not those of the fit")
"""
    )


@pytest.mark.skipif(not has("brms"), reason="the R package brms is not installed")
def test_a_brms_fit(run):
    said = run(
        page("brms")
        + """
stopifnot(identical(variables(small_brms), variables(fit_brms)), dim(predicted) == c(100, 60))
same_answer(small_brms, fit_brms, c("b_Intercept", "b_x", "sd_group__Intercept", "sigma"))
stopifnot(identical(rows_of_fit(small_brms, fit_brms)$sigma, small_brms$sigma))
usual <- update(fit_brms, save_pars = save_pars(), recompile = FALSE, refresh = 0)
fails(thin_draws(usual, size = 100, scores = TRUE), "does not contain the parameters .*save_pars.all = TRUE")
same_answer(thin_draws(usual, size = 100, quiet = TRUE), usual, c("b_x", "sigma"))
"""
    )
    assert "Thinning without scores" not in said


@pytest.mark.skipif(not has("rstanarm"), reason="the R package rstanarm is not installed")
def test_an_rstanarm_fit(run):
    data = page("brms").split("fit_brms <-")[0].replace("library(brms)", "")
    said = run(
        data
        + page("rstanarm")
        + """
stopifnot(identical(variables(small_arm), c("(Intercept)", "x", "sigma")))
same_answer(small_arm, as.array(fit_arm), c("(Intercept)", "x", "sigma"))
"""
    )
    assert "Thinning without scores" in said
