"""A program with the arguments and the output of a compiled CmdStan model, for tests without CmdStan.

Its model has a positive and a simplex parameter: mu ~ normal(0, 1), sigma ~ lognormal(0, 1), w ~ dirichlet(1, 2, 3).
Draws are independent. In unconstrained space (log sigma; Stan's stick-breaking logits of w) the score is known.

    fake_stan.py sample num_samples=1000 random seed=1 output file=out.csv diagnostic_file=diag.csv [fake KEY=VALUE...]

Further options, which take effect after N draws (``at=N``): ``mode=die`` ends in the middle of a line, with text on
standard error; ``mode=pause`` waits in the middle of a line until the file ``gate=PATH`` exists; ``mode=restart`` waits
for it and starts both files again with another seed; ``mode=crash`` ends before any file is opened; ``mode=ok`` returns
0 although draws are missing. ``diverge=N`` marks every Nth draw as divergent, ``sign=-1`` negates the gradients,
``nan=1`` writes nan instead of them, ``wide=N`` adds a variable of N entries to the output. ``flush=1`` flushes each
line; otherwise text is written in pieces of 8 kB, as by a C++ stream.
"""

import math
import os
import random
import sys
import time

SIMPLEX = (1.0, 2.0, 3.0)
DEFAULTS = {"num_samples": "1000", "num_warmup": "1000", "save_warmup": "false", "thin": "1", "sig_figs": "8"}
SECTIONS = ("sample", "data", "random", "output", "fake")


def arguments(words):
    """{"section.key": value}, the last section named holding for what follows."""
    found, section = {}, ""
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            found[key if key in ("id", "init", "method") else f"{section}.{key}"] = value
        elif word in SECTIONS:
            section = word
        else:
            sys.exit(f"{word} is either mistyped or misplaced.")
    return found


def draw(rng):
    """A draw: constrained, unconstrained, and the gradient of the potential, minus the score."""
    mu, log_sigma = rng.gauss(0, 1), rng.gauss(0, 1)
    gammas = [rng.gammavariate(a, 1.0) for a in SIMPLEX]
    total = sum(gammas)
    w = [g / total for g in gammas]
    rest, logits, gradient = 1.0, [], [mu, log_sigma]
    for k in range(len(w) - 1):
        z = w[k] / rest
        rest -= w[k]
        logits.append(math.log(z / (1 - z)) + math.log(len(w) - 1 - k))
        a, b = SIMPLEX[k], sum(SIMPLEX[k + 1 :])
        gradient.append((a + b) * z - a)
    return [mu, math.exp(log_sigma), *w], [mu, log_sigma, *logits], gradient


class Writer:
    def __init__(self, options, seed, mode="w"):
        self.options, self.rng = options, random.Random(seed)
        self.files = [open(options[f"output.{name}"], mode) for name in ("file", "diagnostic_file")]  # noqa: SIM115, PTH123
        self.digits = int(options.get("output.sig_figs", DEFAULTS["sig_figs"]))
        self.wide = int(options.get("fake.wide", 0))
        self.sign = float(options.get("fake.sign", 1))
        self.nan = "fake.nan" in options
        self.diverge, self.rows = int(options.get("fake.diverge", 0)), 0
        self.header()

    def header(self):
        sample = {key: self.options.get(f"sample.{key}", DEFAULTS[key]) for key in list(DEFAULTS)[:4]}
        lines = ["stan_version_major = 2", "stan_version_minor = 35", "stan_version_patch = 0", "model = fake_model"]
        lines += ["method = sample (Default)", "  sample"]
        lines += [f"    {key} = {value}" for key, value in sample.items()]
        lines += ["    adapt", "      engaged = true (Default)", f"id = {self.options.get('id', 1)}", "data"]
        lines += [f"  file = {self.options.get('data.file', '')}", "init = 2 (Default)", "random"]
        lines += [f"  seed = {self.options.get('random.seed', 0)}", "output"]
        lines += [f"  {key} = {self.options[f'output.{key}']}" for key in ("file", "diagnostic_file")]
        for file in self.files:
            file.writelines(f"# {line}\n" for line in lines)
        sampler = ["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__"]
        names = ["mu", "sigma", "w.1", "w.2"]
        wide = [f"yhat.{i + 1}" for i in range(self.wide)]
        self.files[0].write(",".join([*sampler, "mu", "sigma", "w.1", "w.2", "w.3", *wide]) + "\n")
        self.files[1].write(",".join([*sampler, *(f"{p}{n}" for p in ("", "p_", "g_") for n in names)]) + "\n")

    def row(self):
        """The two lines of the next draw."""
        constrained, unconstrained, gradient = draw(self.rng)
        lp = -0.5 * sum(x * x for x in unconstrained) + self.rng.random()
        self.rows += 1
        divergent = int(self.diverge > 0 and self.rows % self.diverge == 0)
        sampler = [lp, 0.9, 0.7, 3, 7, divergent, -lp]
        momenta = [self.rng.gauss(0, 1) for _ in unconstrained]
        gradient = [math.nan if self.nan else self.sign * g for g in gradient]
        wide = [self.rng.random() for _ in range(self.wide)]
        rows = [*sampler, *constrained, *wide], [*sampler, *unconstrained, *momenta, *gradient]
        return [",".join(f"{x:.{self.digits}g}" for x in row) + "\n" for row in rows]

    def comment(self, text, files=(0, 1)):
        for i in files:
            self.files[i].write("".join(f"# {line}\n" for line in text.split("\n")))

    def flush(self):
        for file in self.files:
            file.flush()


def main():
    options = arguments(sys.argv[1:])
    mode, at = options.get("fake.mode"), int(options.get("fake.at", 0))
    seed = int(options.get("random.seed", 0)) + 1000 * int(options.get("id", 1))
    if mode == "crash":
        sys.exit("Exception: variable does not exist; processing stage=data initialization; variable name=N")
    thin = int(options.get("sample.thin", 1))
    samples = -(-int(options.get("sample.num_samples", 1000)) // thin)
    warmup = -(-int(options.get("sample.num_warmup", 1000)) // thin)
    writer = Writer(options, seed)
    print("Gradient evaluation took 1e-05 seconds", flush=True)
    if options.get("sample.save_warmup", "0") in ("1", "true"):
        for _ in range(warmup):
            for file, line in zip(writer.files, writer.row(), strict=True):
                file.write(line)
    writer.comment(
        "Adaptation terminated\nStep size = 0.7\nDiagonal elements of inverse mass matrix:\n1, 1, 1, 1", (0,)
    )
    done = 0
    while done < samples:
        lines = writer.row()
        if done == at and mode == "restart":
            writer.flush()
            wait_for(options["fake.gate"])
            for file in writer.files:
                file.close()
            writer, mode, done = Writer(options, seed + 1), None, 0
            continue
        if done == at and mode in ("die", "pause", "ok"):
            for file, line in zip(writer.files, lines, strict=True):
                file.write(line[: len(line) // 2])
            writer.flush()
            if mode != "pause":
                print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
                os._exit(0 if mode == "ok" else 134)
            wait_for(options["fake.gate"])
            lines, mode = [line[len(line) // 2 :] for line in lines], None
        for file, line in zip(writer.files, lines, strict=True):
            file.write(line)
        if "fake.flush" in options:
            writer.flush()
        done += 1
    writer.comment("\n Elapsed Time: 0.018 seconds (Warm-up)\n               0.068 seconds (Sampling)\n")
    for file in writer.files:
        file.close()


def wait_for(path):
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.01)


if __name__ == "__main__":
    main()
